package resp

import (
	"errors"
	"fmt"
)

// ProtocolError is a breach of the grammar, in Redis's words: "Protocol error: invalid bulk
// length". The session answers "-ERR " and the text, then closes, because nothing says where the
// next call would begin. The text holds no CR, LF or NUL.
type ProtocolError string

// Error returns the text, which begins with "Protocol error: ".
func (e ProtocolError) Error() string { return string(e) }

const (
	errWords           ProtocolError = "Protocol error: invalid multibulk length"
	errWordsLine       ProtocolError = "Protocol error: too big mbulk count string"
	errWordsRestricted ProtocolError = "Protocol error: unauthenticated multibulk length"
	errBulk            ProtocolError = "Protocol error: invalid bulk length"
	errBulkLine        ProtocolError = "Protocol error: too big bulk count string"
	errBulkRestricted  ProtocolError = "Protocol error: unauthenticated bulk length"
	errInline          ProtocolError = "Protocol error: too big inline request"
	errQuotes          ProtocolError = "Protocol error: unbalanced quotes in request"
)

// ErrValueTooLong says that a word is longer than Limits.Bulk: the ProtocolError that Redis has for
// any bad length. Unlike after others, it is known what follows: the word.
var ErrValueTooLong = fmt.Errorf("%w", errBulk)

// expectedDollar names the byte that stands where a word's '$' should. Redis prints it raw, so we
// do; but CR and LF would end the reply's line, and a NUL would end it for a client written in C:
// those three become spaces.
func expectedDollar(got byte) ProtocolError {
	if got == '\r' || got == '\n' || got == 0 {
		got = ' '
	}
	return ProtocolError("Protocol error: expected '$', got '" + string([]byte{got}) + "'")
}

// ErrQueryTooLong says that a call needs more than Limits.Query bytes. The session closes without a
// reply, as Redis does.
var ErrQueryTooLong = errors.New("call is longer than the query limit")
