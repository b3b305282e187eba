package store

import (
	"context"
	"time"

	"cellserver/internal/gcra"
	"cellserver/internal/lease"
	"cellserver/internal/quota"
)

// View is one caller's window on the store: the database it selected, and the instant that a batch
// of its calls shares. They are the caller's own, so they need no lock, and no call has to pass
// them. A View is not safe for use by two goroutines at once. An error of a method, but
// ErrUnavailable, means that nothing was changed.
type View interface {
	Batch
	Limiters
	Values
	Keys
	Keyspace
	Transactions
}

// Batch is what the calls of a view have in common: when, where and on whose behalf they are made.
type Batch interface {
	// Begin reads the clock once for the calls that follow, up to the next Begin.
	Begin()
	// Now is the batch's instant: nanoseconds on the store's clock.
	Now() int64
	// Prefetch says that these keys of the selected database are about to be asked for, so that the
	// store can bring them near. It changes nothing, and nothing depends on it but time. The keys'
	// bytes must stay as they are until Begin, or the next Prefetch.
	Prefetch(keys [][]byte)

	// Select moves the view to another database, 0 <= database < Databases().
	Select(database int)
	// Selected is the database.
	Selected() int

	// Sign says who calls, for the listeners; 0, as it is at first, is nobody.
	SetCaller(by int64)
	// Signed is who does.
	Caller() int64
}

// Limiters decide, each in one atomic step.
type Limiters interface {
	// Throttle takes quantity tokens from key's quota as mode says, by GCRA. The limit makes a
	// decision of the outcome, which no lock is needed for.
	Throttle(
		ctx context.Context, key []byte, limit gcra.Limit, quantity int64, mode quota.Mode,
	) (gcra.Outcome, error)
	// Take is Throttle for any limiter of a quantity. It keeps neither the key nor the rule.
	Take(
		ctx context.Context, key []byte, rule *Rule, quantity int64, mode quota.Mode,
	) (quota.Decision, error)
	// TakeAll takes from several keys, each named once, all or nothing, in one atomic step and at
	// one instant. It returns what each limiter says, and whether all of them allowed it: then each
	// took. Else none did: each says whether it would have limited its quantity alone, and of what
	// remains and when it is reset what is so. With peek none takes. The decisions are the caller's
	// until the next TakeAll. Beside ErrFull they say which keys there is no room for: those that
	// are limited.
	TakeAll(
		ctx context.Context, takes []LimitRequest, peek bool,
	) (decisions []quota.Decision, allowed bool, err error)
	// Tight is this view, but of its limiters' steps those that would need memory, to add a key or
	// to make one larger, are ErrFull.
	WithoutGrowth() View

	// Acquire gives a holder permits until its lease ends; a key has at most maxHolders.
	Acquire(ctx context.Context, key []byte, r lease.Request, maxHolders int) (quota.Decision, error)
	// Renew moves the end of a holder's lease to ttl from now. It is false if there is none.
	Renew(ctx context.Context, key []byte, ttl time.Duration, holder []byte) (bool, error)
	// Release takes a holder's permits back, and says how many they were.
	Release(ctx context.Context, key []byte, holder []byte) (int64, error)
	// Holders lists the leases of a key, by their ends, then by name.
	Holders(ctx context.Context, key []byte) ([]lease.Lease, error)
}

// Values are what SET gives keys.
type Values interface {
	// Read appends to dst what a key's value is, of an integer its digits, and tells what stands
	// there. Of another kind than Integer and Bytes it appends nothing.
	Read(ctx context.Context, key []byte, dst []byte) ([]byte, Entry, error)
	// ReadPart is Read of the bytes from start to end, both included and counted from 0, negative
	// ones from the value's end. It takes no longer than the part is long, and says how long the
	// value is.
	ReadPart(
		ctx context.Context, key []byte, dst []byte, start, end int64,
	) (part []byte, length int, e Entry, err error)
	// Write makes a value what a key holds, whatever it held.
	Write(ctx context.Context, key []byte, v Value, expires int64) error
	// Add adds to an integer, 0 if there is none, and returns the sum. The key keeps its expiry.
	Add(ctx context.Context, key []byte, n int64) (int64, error)
	// Edit shows edit what stands at a key, and of a value its bytes, borrowed until edit returns;
	// and then does as it says. It is one atomic step: edit must be quick, and must not call the
	// store. It may be run several times, of which the last counts: what it says other than by its
	// results, it says each time, and begins by taking back what it said.
	Edit(ctx context.Context, key []byte, edit func(e Entry, value []byte) (Change, error)) error
}

// Keys are what is asked of keys whatever they hold.
type Keys interface {
	// Lookup tells what stands at key; Entry.Kind is None if nothing does.
	Lookup(ctx context.Context, key []byte) (Entry, error)
	// Inspect is Lookup with the kind's own state, field by field.
	Inspect(ctx context.Context, key []byte) (Entry, []Field, error)
	// Count says how many of the keys exist; a key named twice counts twice. Up to 1024 keys are
	// counted at one instant, more in several steps.
	Count(ctx context.Context, keys [][]byte) (int, error)
	// Touch is Count, and uses the keys.
	Touch(ctx context.Context, keys [][]byte) (int, error)
	// Delete removes the keys and says how many were there. Up to 1024 keys go in one step, more in
	// several.
	Delete(ctx context.Context, keys [][]byte) (int, error)
	// Transfer moves or copies what a key holds, with its expiry, to another place. It is false if
	// there is nothing, or, where the transfer is not to replace anything, if there is something at
	// the other place.
	Transfer(ctx context.Context, from, to KeyRef, how Transfer) (done bool, err error)
	// Weight is about how much stands at a key, in bytes: 0 for nothing, or for what is small by
	// its kind.
	StateBytes(ctx context.Context, key []byte) int
}

// Keyspace is whole databases.
type Keyspace interface {
	// Size counts the records of the selected database; those that expired and were not swept yet
	// may be among them.
	Size(ctx context.Context) (int, error)
	// Scan shows the keys of the selected database a piece at a time: a caller that starts at
	// cursor 0, and goes on with the cursor it returns until that is 0 again, has seen every key
	// that was there all the while, each once. It visits about count keys a call. visit must copy
	// the key if it keeps it and must not call the store.
	Scan(
		ctx context.Context, cursor uint64, count int, visit func(key []byte, e Entry),
	) (next uint64, err error)
	// Random returns some key of the selected database, appended to dst; ok is false if there is
	// none.
	Random(ctx context.Context, dst []byte) (key []byte, ok bool, err error)
	// Flush empties the selected database, in one step.
	Flush(ctx context.Context) error
	// FlushAll empties every database.
	FlushAll(ctx context.Context) error
}

// Transactions make one step of several.
type Transactions interface {
	// Atomically has steps, which call this view, appear as one step, at one instant, to everybody
	// else. They must touch no other places; with all they may touch any. It returns the error of
	// steps, which takes nothing back that they did; or its own, and then they did nothing. Within
	// steps it only calls its own. Steps may be run several times, of which the last counts, as
	// those of Edit.
	Atomically(ctx context.Context, places []KeyRef, all bool, steps func() error) error
}
