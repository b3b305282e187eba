package command

import (
	"time"

	"cellserver/internal/store"
)

// A call of a limiter with the option WAIT that is limited does not end: its client is blocked, and its
// row runs again when it may be admitted, each time from the beginning, until the call is admitted or
// its time is over. It queues, with other clients' calls, on the key that limits it longest: see
// package waiting for the order, and session/waiting.go for what runs the rows.

// Attempt says which of these runs of a row this is.
type Attempt uint8

const (
	// FirstAttempt is the run in the session's turn.
	FirstAttempt Attempt = iota
	// NextAttempt is a run after the call has waited. It is its turn, so it may be admitted.
	NextAttempt
	// LastAttempt is the run when the time of the call is over although it is not its turn. It takes
	// nothing; its reply is that the call is limited.
	LastAttempt
)

// Waiting is the part of a Call for a call that may wait.
type Waiting struct {
	Attempt Attempt
	// Left is the time, in nanoseconds, that is left to a call after its first attempt.
	Left int64
	// Line is the key for which a call waits, or waited until its last attempt.
	Line string
	// Delay is set by Wait after the first attempt. Its Key is nil if the call does not wait any longer.
	Delay Delay
}

// maxWait bounds the option WAIT, in milliseconds. It is an hour.
const maxWait = 3_600_000

// WaitArg is the option WAIT.
var WaitArg = Int("ms").In(time.Millisecond).Min(0).Max(maxWait).After("WAIT").Extra()

// WaitingCall describes a call that waits for a limiter.
type WaitingCall struct {
	Client  int64  // the number of the client
	Command string // its name
	Left    int64  // ns until its time is over
}

// WaitingSession has the methods of a session whose calls may wait for a limiter.
type WaitingSession interface {
	// Wait blocks the client until the call is admitted, or its time is over: see Call.Wait. It returns
	// an error if too many calls wait.
	Wait(d Delay) error
	// TakeOver gives the call the place of a call that waits with the same ID, whose client gets an
	// error; the client is blocked then, as by Wait. If left, in nanoseconds, is 0, the call does not
	// wait, so the other only ends. The error is store.ErrReused if the other call is not the same.
	TakeOver(id CallID, left int64) (taken bool, err error)
	// EndWait ends the wait of the call with an ID, whatever its words are. Its client gets an error.
	EndWait(id CallID)
	// IDsWait reports whether calls with an ID wait.
	IDsWait() bool
	// IsAwaited reports whether calls wait for a key of the selected database.
	IsAwaited(key []byte) bool
}

// Delay describes why and how long a call waits.
type Delay struct {
	Key []byte // the key that limits the call; borrowed
	// RetryAfter is the time after which the key may admit it, and Left is how long it may wait, both
	// in nanoseconds.
	RetryAfter, Left int64
	ID               CallID
	// Needs are what the keys of a call that several may limit have decided; borrowed. Memory is how many bytes the
	// queue may need to keep these keys for the call; the first attempt sets it for the whole call.
	Needs  []Need
	Memory int
}

// Need is what one of the keys that may limit a call has decided.
type Need struct {
	Key        []byte
	RetryAfter int64 // ns until the key has enough; 0 if it has
	Cost       int64 // ns in which the limiter admits on average what the call takes from it
}

// CallID is the ID of a call of a limiter, which the client gives to a call that repeats it too.
type CallID struct {
	Key, Name []byte   // borrowed; Name is nil if the call has no ID
	Words     [16]byte // equal for calls that repeat one another
}

// Wait makes the call wait. The row must return what Wait returns, and must have written nothing. It
// must not be called in a transaction, or in the last attempt.
func (c *Call) Wait(d Delay) error {
	switch {
	case c.Attempt != FirstAttempt:
		c.Delay = d
		return nil
	case c.Session == nil:
		return errTooLongToWait
	}
	c.Blocks = true
	return c.Session.Wait(d)
}

// MayWait reports whether a call of a row may have the option WAIT. It does not bind the words, so it may
// report a call that has a key, for example, of this name.
func (row *Command) MayWait(words [][]byte) bool {
	return row.Traits&Decides != 0 && HasWord(words[1:], "WAIT")
}

// errTooLongToWait refuses a call that is made outside the event loop because of its length.
const errTooLongToWait Refusal = "ERR the call is too long to wait"

// ErrManyWait refuses a call because too many calls wait already.
const ErrManyWait Refusal = "ERR too many calls wait"

// IDOption is the option of limiters with the ID token of a call, which is the word after it.
const IDOption = "ID"

// IDArg is this option.
var IDArg = Word("token").Longest(store.MaxToken).After(IDOption).Extra()

// EndsWithToken reports whether the last word of a call of a limiter may be its ID token: see Call.EndsWithToken.
func (row *Command) EndsWithToken(words [][]byte) bool {
	n := len(words)
	return row.Traits&Decides != 0 && n > 3 && FoldEqual(words[n-2], IDOption)
}

// EachToken calls visit for each word of a call of a limiter that may be its ID token. It does not bind
// the words, so it may also find others, such as the word after a key of the name of the option.
func (row *Command) EachToken(words [][]byte, visit func(token []byte)) {
	if row.Traits&Decides == 0 {
		return
	}
	for i := 2; i < len(words)-1; i++ {
		if FoldEqual(words[i], IDOption) {
			visit(words[i+1])
		}
	}
}
