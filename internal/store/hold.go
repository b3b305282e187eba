package store

import (
	"context"
	"fmt"
	"time"

	"cellserver/internal/limit"
	"cellserver/internal/quota"
)

// HoldKeeper is implemented by views of stores that keep holds (package hold). Once makes a hold if HoldTime is set:
// the requests of its TakeAll that are Held charge as always, and the store remembers what they have taken until the
// hold is settled or lapses.
type HoldKeeper interface {
	// Settle corrects what the requests of a hold have taken. It returns a decision for each request, about a quantity
	// of 0 after the correction. Its Taken is the correction, negative if something was given back. A correction is
	// never limited, and works on a view without growth too. If Settle is repeated with the same quantity, it returns
	// the same decisions. If it returns an error, nothing was changed: a HoldError if the hold cannot be settled. The
	// decisions are valid until the next call of the view.
	Settle(ctx context.Context, s *Settlement) ([]quota.Decision, error)
	// Holds returns at most count open holds of a key, in the order in which they end.
	Holds(ctx context.Context, key []byte, count int) ([]Hold, error)
}

// HoldsOne is implemented by views that make the most frequent hold, of a charge on one key, faster than Once does.
type HoldsOne interface {
	// HoldOne is Once for a hold of what Take takes. If made is false, nothing was changed, and the caller must use
	// Once: for example because there is an error.
	HoldOne(
		ctx context.Context, key []byte, rule *limit.Rule, quantity int64, token Token, holdTime time.Duration,
	) (d quota.Decision, repeated, made bool)
}

// HoldCarrier is implemented by views of stores whose open holds can be exported and imported, as the form of a
// hold.Book.
type HoldCarrier interface {
	// HeldKeys returns the keys of the selected database that have open holds.
	HeldKeys() [][]byte
	// ReadHolds appends the form of the open holds of a key to dst. It appends nothing if there are none.
	ReadHolds(key, dst []byte) []byte
	// WriteHolds replaces the open holds of a key. It returns an error if the form is invalid.
	WriteHolds(key, form []byte) error
}

// HoldCounter is implemented by stores that keep holds.
type HoldCounter interface{ Holds() HoldCounts }

// HoldCounts says how many holds are open, and how many have lapsed since the store was made.
type HoldCounts struct {
	Open   int
	Lapsed int64 // because their time was over
	Early  int64 // lapsed before their time, because there were too many
}

// Settlement is a call that settles a hold.
type Settlement struct {
	Key []byte // the first key of the call that made the hold
	ID  []byte
	// Quantity tells a repetition of the settlement from another settlement. It is the actual quantity; if there are
	// several quantities, it is a negative number that depends on all of them.
	Quantity int64
	// Requests are the limits to correct, with the actual quantities, which are not negative. If the hold has not
	// charged a limit, only an excess beyond what it has charged on its first key is taken, unless Skip is set.
	Requests []LimitRequest
	Skip     bool          // nothing is taken of requests that the hold has not charged
	Force    bool          // a quantity without a hold is charged, as mode Force takes
	Remember time.Duration // for which the settlement is remembered

	Found    bool    // set by Settle: there was a hold, or it was settled before
	Repeated bool    // set by Settle: the hold was settled before, with the same quantity, and nothing is changed
	Charged  []int64 // set by Settle, unless Repeated: what the hold had charged of each request
	Work     int     // set by Settle: the bytes of holds and of logs that it has looked through or moved
}

// Hold describes an open hold of a key.
type Hold struct {
	ID       string
	Quantity int64
	Ends     int64 // instant
}

// AppendHoldFields appends the fields of Inspect for n open holds, which have charged a quantity.
func AppendHoldFields(fields []Field, n int, held int64) []Field {
	if n == 0 {
		return fields
	}
	return append(fields, Field{Name: "holds", Value: int64(n)}, Field{Name: "held", Value: held})
}

// MaxHoldsPerKey is the largest number of open holds of a key.
const MaxHoldsPerKey = 1000

// HoldError is an error of a call about a hold. Code is the first word of the reply.
type HoldError struct{ Code, Text string }

func (e *HoldError) Error() string { return e.Text }

// The errors about holds.
var (
	ErrNoHold = &HoldError{"NOHOLD", "no such hold: nothing was charged under this ID, or it was settled or lapsed long ago"}
	ErrLapsed = &HoldError{"HOLDLAPSED", "the hold has lapsed: what it charged stays charged"}
	ErrIsOpen = &HoldError{"HOLDOPEN", "a hold of another call is open under this ID"}
)

// ErrSettled refuses another correction of a hold that was settled with a quantity.
func ErrSettled(quantity int64) error {
	if quantity < 0 {
		return &HoldError{"HOLDSETTLED", "the hold was settled with other quantities"}
	}
	return &HoldError{"HOLDSETTLED", fmt.Sprintf("the hold was settled with %d", quantity)}
}
