package resp

import (
	"errors"
	"fmt"
)

// ProtocolError is a violation of the protocol, in Redis's words: "Protocol error: invalid bulk
// length". The session replies "-ERR " and the text, and closes the connection, because the start
// of the next call is unknown. The text contains no CR, LF or NUL.
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

// ErrWordTooLong means that a word is longer than Limits.Bulk. Its text is the text of the
// ProtocolError for any invalid length, which it wraps. Unlike after other errors it is known what
// the client sends next: the word.
var ErrWordTooLong = fmt.Errorf("%w", errBulk)

// expectedDollar returns the error for a byte in place of a word's '$'. The text contains the byte
// as it is, as in Redis. But CR and LF would end the line of the reply, and a NUL would end it for
// a client written in C: these three become spaces.
func expectedDollar(got byte) ProtocolError {
	if got == '\r' || got == '\n' || got == 0 {
		got = ' '
	}
	return ProtocolError("Protocol error: expected '$', got '" + string([]byte{got}) + "'")
}

// ErrQueryTooLong means that a call has more than Limits.Query bytes. The session closes the
// connection without a reply, as Redis does.
var ErrQueryTooLong = errors.New("call is longer than the query limit")
