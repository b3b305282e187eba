// Package store is the contract of what keeps keys and makes each decision atomic on the keys that
// it touches. A store owns the clock: no other code knows what time it is. Package memory below it
// is the store that ships; storetest holds what every store must do.
package store

import (
	"errors"
	"math"

	"cellserver/internal/gcra"
	"cellserver/internal/quota"
	"cellserver/internal/window"
)

// Store holds a number of databases of keys. It is safe for use by many goroutines.
type Store interface {
	// View opens a way in for one caller, such as a session. It starts in database 0.
	View() View
	// Databases says how many there are: they are numbered from 0.
	Databases() int
	// Clock is the clock that decisions are taken by.
	Clock() Clock
	// Close ends the store's own goroutines.
	Close() error
}

// Kind is what a key holds.
type Kind uint8

const (
	None       Kind = iota // nothing
	Throttle               // a CL.THROTTLE key: its state is its TAT
	Fixed                  // a fixed window counter
	Sliding                // a sliding window counter
	SlidingLog             // a sliding window log
	Lease                  // leases of permits
	Integer                // a value that is an integer
	Bytes                  // any other value
)

var kindNames = [...]string{"none", "cl.throttle", "cl.fixed", "cl.sliding", "cl.slidinglog", "cl.lease", "integer",
	"bytes"}

// String is the kind's name as CL.INSPECT shows it.
func (k Kind) String() string { return kindNames[k] }

// IsValue says whether it is a value, as SET makes it.
func (k Kind) IsValue() bool { return k == Integer || k == Bytes }

// Value is what SET gives a key: an integer, or any other bytes. What reads as an integer is to be
// given as one.
type Value struct {
	Bytes     []byte // borrowed
	Integer   int64
	IsInteger bool
}

// Never is the expiry of what does not expire.
const Never int64 = math.MaxInt64

// Change is what Edit does to a key.
type Change struct {
	Operation Operation
	Value     Value // to be written
	Offset    int   // of a Patch: where in the value
	Expires   int64 // of what is there then; in the past, it goes
}

// Operation is done to a key.
type Operation uint8

const (
	NoChange  Operation = iota // nothing
	Put                        // a value is written, whatever was there
	Patch                      // bytes are written over a value of Bytes, or behind it; zeros fill what lies between
	SetExpiry                  // the expiry alone is changed, of a value
	Remove                     // the key goes
)

// KeyRef is where a key stands.
type KeyRef struct {
	Database int
	Key      []byte
}

// Transfer says how something gets to another place.
type Transfer struct {
	Copy    bool // it stays where it was, too
	Replace bool // whatever is there goes
}

// Rule is what a limiter of a quantity goes by: its kind, and the limit of that kind.
type Rule struct {
	Kind     Kind            // Throttle, Fixed, Sliding or SlidingLog
	Throttle gcra.Limit      // of a Throttle
	Window   window.Limit    // of a Fixed or a Sliding
	Log      window.LogLimit // of a SlidingLog
}

// Size is the largest quantity that the limit can ever allow.
func (r *Rule) Size() int64 {
	switch r.Kind {
	case Throttle:
		return r.Throttle.Size()
	case SlidingLog:
		return r.Log.Size()
	default:
		return r.Window.Size()
	}
}

// Blocks says whether a call is limited whatever its key holds, which then is not looked at.
func (r *Rule) Blocks(quantity int64, mode quota.Mode) bool {
	return r.Size() == 0 && quantity > 0 && mode != quota.Force
}

// LimitRequest is one of the things that TakeAll takes.
type LimitRequest struct {
	Key      []byte
	Rule     Rule
	Quantity int64
}

// Entry is what stands at a key, at one instant.
type Entry struct {
	Kind    Kind
	Expires int64 // instant in nanoseconds on the store's clock; for a Throttle key its TAT
}

// Field is a part of a key's state.
type Field struct {
	Name    string
	Value   int64
	Instant bool // Value is one, in nanoseconds on the store's clock
}

// Event says what happened to a key.
type Event uint8

const (
	Changed Event = iota // its state moved
	Created              // it came to be where there was none (or was transferred there: then another may have been there)
	Deleted              // somebody removed it, or a refund emptied it
	Expired              // its state says nothing any more
	Flushed              // its database was emptied; there is one such notice a database, with a nil key
)

// Listener hears of changes, and of who made them, as the view was signed: see Notifier. What the
// store does by itself is 0's.
type Listener func(database int, key []byte, why Event, by int64)

// Usage is what one database holds.
type Usage struct {
	Keys  int   // records, expired ones that were not swept yet included
	Bytes int64 // memory held for them: records, their slack, the index
	// NoExpiry is how many of the keys are values that do not expire.
	NoExpiry int
	Copied   int64 // bytes of values that were copied while a shard was locked, ever since the store was made: for tests
	// Expired is how many have gone because their time was over, ever since the store was made.
	Expired int64
}

// The errors of a store. Each means that nothing was changed, but for ErrUnavailable.
var (
	// ErrWrongKind: the key holds another kind than the command is for.
	ErrWrongKind = errors.New("key holds another kind")
	// ErrFull: there is no room for another key, or for a key to grow.
	ErrFull = errors.New("no room for another key")
	// ErrNotInteger: the value is none.
	ErrNotInteger = errors.New("value is not an integer")
	// ErrOverflow: no int64 can hold the sum.
	ErrOverflow = errors.New("increment or decrement would overflow")
	// ErrUnavailable: the store did not answer, so that it is not known whether anything was
	// changed. A store whose keys are in this process never returns it.
	ErrUnavailable = errors.New("the store does not answer")
)

// Part is what lies between two places of a value, both included, counted as Redis does: negative
// ones from the end.
func Part(value []byte, start, end int64) []byte {
	length := int64(len(value))
	if start < 0 && end < 0 && start > end {
		return nil
	}
	if start < 0 {
		start = max(start+length, 0)
	}
	if end < 0 {
		end = max(end+length, 0)
	}
	if end = min(end, length-1); start > end || length == 0 {
		return nil
	}
	return value[start : end+1]
}
