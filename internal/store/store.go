// Package store is the contract of what keeps keys and makes each decision atomic on the keys that it touches. A store owns
// the clock: no other code knows what time it is. Package memory below it is the store that ships; storetest holds what
// every store must do.
package store

import (
	"context"
	"errors"
	"math"
	"time"

	"cellserver/internal/gcra"
	"cellserver/internal/lease"
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
	// Listen names the one who hears of every change from now on; nil for nobody. The listener is called while the
	// key is locked: it must be quick, must not call the store, and must copy the key if it keeps it.
	Listen(Listener)
	// Usage sums up what each database holds, one entry a database.
	Usage() []Usage
	// Close ends the store's own goroutines.
	Close() error
}

// View is one caller's window on the store: the database it selected, and the instant that a batch of its calls
// shares. It is not safe for use by two goroutines at once. An error of a method means that nothing was changed.
type View interface {
	// Begin reads the clock once for the calls that follow, up to the next Begin.
	Begin()
	// Select moves the view to another database, 0 <= database < Databases().
	Select(database int)
	// Selected is the database.
	Selected() int
	// Sign says who calls, for the listener; 0, as it is at first, is nobody.
	Sign(by int64)
	// Signed is who does.
	Signed() int64
	// Now is the batch's instant: nanoseconds on the store's clock.
	Now() int64

	// Foresee says that these keys of the selected database are about to be asked for, so that the store can bring them
	// near. It changes nothing, and nothing depends on it but time. The keys' bytes must stay as they are until Begin, or the
	// next Foresee.
	Foresee(keys [][]byte)

	// Throttle takes quantity tokens from key's quota as mode says, by GCRA, in one atomic step. The limit makes a decision of
	// the outcome, which no lock is needed for.
	Throttle(ctx context.Context, key []byte, limit gcra.Limit, quantity int64, mode quota.Mode) (gcra.Outcome, error)
	// Take is Throttle for any limiter of a quantity. It keeps neither the key nor the rule.
	Take(ctx context.Context, key []byte, rule *Rule, quantity int64, mode quota.Mode) (quota.Decision, error)
	// TakeAll takes from several keys, each named once, all or nothing, in one atomic step and at one instant. It returns
	// what each limiter says, and whether all of them allowed it: then each took. Else none did: each says whether it
	// would have limited its quantity alone, and of what remains and when it is reset what is so. With peek none takes.
	// The decisions are the caller's until the next TakeAll. Beside ErrFull they say which keys there is no room for: those
	// that are limited.
	TakeAll(ctx context.Context, takes []Taking, peek bool) (decisions []quota.Decision, allowed bool, err error)

	// Tight is this view, but of its limiters' steps those that would need memory, to add a key or to make one larger, are
	// ErrFull.
	Tight() View

	// Acquire gives a holder permits until its lease ends, in one atomic step; a key has at most maxHolders.
	Acquire(ctx context.Context, key []byte, r lease.Request, maxHolders int) (quota.Decision, error)
	// Renew moves the end of a holder's lease to ttl from now. It is false if there is none.
	Renew(ctx context.Context, key []byte, ttl time.Duration, holder []byte) (bool, error)
	// Release takes a holder's permits back, and says how many they were.
	Release(ctx context.Context, key []byte, holder []byte) (int64, error)
	// Holders lists the leases of a key, by their ends, then by name.
	Holders(ctx context.Context, key []byte) ([]lease.Lease, error)

	// Read appends to dst what a key's value is, of an integer its digits, and tells what stands there. Of another kind than Integer
	// and Bytes it appends nothing.
	Read(ctx context.Context, key []byte, dst []byte) ([]byte, Entry, error)
	// ReadPart is Read of the bytes from start to end, both included and counted from 0, negative ones from the value's end. It takes
	// no longer than the part is long, and says how long the value is.
	ReadPart(ctx context.Context, key []byte, dst []byte, start, end int64) (part []byte, length int, e Entry, err error)
	// Write makes a value what a key holds, whatever it held.
	Write(ctx context.Context, key []byte, v Value, expires int64) error
	// Add adds to an integer, 0 if there is none, and returns the sum. The key keeps its expiry.
	Add(ctx context.Context, key []byte, n int64) (int64, error)
	// Edit shows edit what stands at a key, and of a value its bytes, borrowed until edit returns; and then does as it says. It is
	// one atomic step: edit must be quick, and must not call the store.
	Edit(ctx context.Context, key []byte, edit func(e Entry, value []byte) (Change, error)) error
	// Transfer moves or copies what a key holds, with its expiry, to another place. It is false if there is nothing, or, where
	// the transfer is not to replace anything, if there is something at the other place.
	Transfer(ctx context.Context, from, to Place, how Transfer) (done bool, err error)
	// Swap has two databases change their numbers.
	Swap(ctx context.Context, a, b int) error

	// Atomically has steps, which call this view, appear as one step, at one instant, to everybody else. They must touch no other
	// places; with all they may touch any. Within steps it only calls its own.
	Atomically(ctx context.Context, places []Place, all bool, steps func())

	// Lookup tells what stands at key; Entry.Kind is None if nothing does.
	Lookup(ctx context.Context, key []byte) (Entry, error)
	// Inspect is Lookup with the kind's own state, field by field.
	Inspect(ctx context.Context, key []byte) (Entry, []Field, error)
	// Count says how many of the keys exist; a key named twice counts twice. Up to 1024 keys are counted at one instant,
	// more in several steps.
	Count(ctx context.Context, keys [][]byte) (int, error)
	// Touch is Count, and uses the keys.
	Touch(ctx context.Context, keys [][]byte) (int, error)
	// Idle says for how long a key has not been used, to about a second; it is not found if there is none. To use a key is any step
	// on it but Lookup, Inspect, Count, Idle and Scan.
	Idle(ctx context.Context, key []byte) (idle time.Duration, found bool, err error)
	// Delete removes the keys and says how many were there. Up to 1024 keys go in one step, more in several.
	Delete(ctx context.Context, keys [][]byte) (int, error)

	// Usage is the store's. Within Atomically it is only for steps that may touch any place.
	Usage() []Usage
	// Weight is about how much stands at a key, in bytes: 0 for nothing, or for what is small by its kind.
	Weight(ctx context.Context, key []byte) int
	// Size counts the records of the selected database; those that expired and were not swept yet may be among them.
	Size(ctx context.Context) (int, error)
	// Flush empties the selected database, in one step.
	Flush(ctx context.Context) error
	// FlushAll empties every database.
	FlushAll(ctx context.Context) error
	// Scan shows the keys of the selected database a piece at a time: it starts at cursor 0, and whoever goes on with
	// the cursor it returns until that is 0 again has seen every key that was there all the while, each once. It visits
	// about count keys a call. visit must copy the key if it keeps it and must not call the store.
	Scan(ctx context.Context, cursor uint64, count int, visit func(key []byte, e Entry)) (next uint64, err error)
	// Random returns some key of the selected database, appended to dst; ok is false if there is none.
	Random(ctx context.Context, dst []byte) (key []byte, ok bool, err error)
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

var kindNames = [...]string{"none", "cl.throttle", "cl.fixed", "cl.sliding", "cl.slidinglog", "cl.lease", "integer", "bytes"}

// String is the kind's name as CL.INSPECT shows it.
func (k Kind) String() string { return kindNames[k] }

// IsValue says whether it is a value, as SET makes it.
func (k Kind) IsValue() bool { return k == Integer || k == Bytes }

// Value is what SET gives a key: an integer, or any other bytes. What reads as an integer is to be given as one.
type Value struct {
	Bytes     []byte // borrowed
	Integer   int64
	IsInteger bool
}

// Never is the expiry of what does not expire.
const Never int64 = math.MaxInt64

// Change is what Edit does to a key.
type Change struct {
	What    What
	Value   Value // to be written
	At      int   // of a Patch: where in the value
	Expires int64 // of what is there then; in the past, it goes
}

// What is done to a key.
type What uint8

const (
	Leave  What = iota // nothing
	Put                // a value is written, whatever was there
	Patch              // bytes are written over a value of Bytes, or behind it; zeros fill what lies between
	Expire             // the expiry alone is changed, of a value
	Remove             // the key goes
)

// Place is where a key stands.
type Place struct {
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

// Taking is one of the things that TakeAll takes.
type Taking struct {
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

// Why says what happened to a key.
type Why uint8

const (
	Changed Why = iota // its state moved
	Made               // it came to be where there was none (or was transferred there: then another may have been there)
	Deleted            // somebody removed it, or a refund emptied it
	Expired            // its state says nothing any more
	Flushed            // its database was emptied; there is one such notice a database, with a nil key
)

// Listener hears of changes, and of who made them, as the view was signed: see Store.Listen. What the store does by itself is 0's.
type Listener func(database int, key []byte, why Why, by int64)

// Usage is what one database holds.
type Usage struct {
	Keys  int   // records, expired ones that were not swept yet included
	Bytes int64 // memory held for them: records, their slack, the index
	// Lasting is how many of the keys are values that do not expire.
	Lasting int
	Moved   int64 // bytes of values that were copied while a shard was locked, ever since the store was made: for tests
	// Expired is how many have gone because their time was over, ever since the store was made.
	Expired int64
}

// The errors of a store. Each means that nothing was changed.
var (
	// ErrWrongKind: the key holds another kind than the command is for.
	ErrWrongKind = errors.New("key holds another kind")
	// ErrFull: there is no room for another key, or for a key to grow.
	ErrFull = errors.New("no room for another key")
	// ErrNotInteger: the value is none.
	ErrNotInteger = errors.New("value is not an integer")
	// ErrOverflow: no int64 can hold the sum.
	ErrOverflow = errors.New("increment or decrement would overflow")
)

// Part is what lies between two places of a value, both included, counted as Redis does: negative ones from the end.
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
