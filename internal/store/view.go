package store

import (
	"context"
	"time"

	"cellserver/internal/form"
	"cellserver/internal/gcra"
	"cellserver/internal/lease"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/standing"
)

// View is one caller's access to a store. It holds the selected database, and the instant that the
// calls of a batch share, so that they need not be passed to each call. A View must not be used by
// two goroutines at once. If a method returns an error other than ErrUnavailable, nothing was
// changed.
type View interface {
	Batch
	Limiters
	Standings
	Idempotent
	Forms
	Values
	Keys
	Keyspace
	Transactions
}

// Batch holds what the calls of a view have in common: the instant, the database and the caller.
type Batch interface {
	// Begin reads the clock. All calls until the next Begin share this instant.
	Begin()
	// Now returns the instant of the batch, in nanoseconds on the store's clock.
	Now() int64
	// Prefetch announces that these keys of the selected database will be accessed next, so that
	// the store can load them into the processor's caches. It affects only speed. The bytes of the
	// keys must not change until Begin, or the next Prefetch.
	Prefetch(keys [][]byte)

	// Select changes the selected database; 0 <= database < Databases().
	Select(database int)
	// Selected returns the selected database.
	Selected() int

	// SetCaller sets the number of the caller that listeners get. It is initially 0, which stands
	// for no caller.
	SetCaller(caller int64)
	// Caller returns the number of the caller.
	Caller() int64
}

// Limiters contains the operations of limiters. Each is one atomic step.
type Limiters interface {
	// Throttle takes quantity tokens of a key as mode says, by GCRA. The Outcome becomes a decision
	// by Limit.Decision, which needs no lock.
	Throttle(
		ctx context.Context, key []byte, limit gcra.Limit, quantity int64, mode quota.Mode,
	) (gcra.Outcome, error)
	// Take is Throttle for a limiter of any kind. It keeps neither the key nor the rule.
	Take(
		ctx context.Context, key []byte, rule *limit.Rule, quantity int64, mode quota.Mode,
	) (quota.Decision, error)
	// TakeAll takes from several keys, each named once, or from none, in one atomic step and at one
	// instant. It returns the decision for each request, and whether all binding requests that are not forced
	// allowed their quantity or granted their lease. If not, the call is refused, and
	// nothing is taken: each decision says whether it would have limited its quantity alone, which a
	// forced one never does, and its Remaining and ResetAfter are those without the call. All requests
	// would be allowed after the longest RetryAfter: a lease that is granted only because its holder
	// holds as much already is limited too, until it would be granted again, if it ends before the others
	// allow their quantities.
	//
	// The mode is one of these:
	//   - Take takes what the requests ask for.
	//   - Peek takes nothing. It returns the decisions that Take would return.
	//   - Ask takes nothing. If Take would be refused, it returns Take's decisions; otherwise they are about
	//     quantities of 0, and say what remains now.
	//   - UpTo takes as much of the quantity, which is the same in all requests, as every binding request
	//     allows above what it leaves. If that is less than 1, the call is refused like a call for 1. No
	//     request may be forced or for a lease. A quantity of 0 or less is treated as in Take.
	//
	// If the call takes, it then takes from each group of requests in shadow mode whose requests all allow
	// their quantity, which in UpTo is the quantity that the binding requests took. If the call takes nothing,
	// the decisions of a group that would allow it say what remains now; with Peek, they are the decisions of
	// Take. If a group cannot be decided, because a key is of another kind or needs memory, the call does not
	// fail: each decision of the group has only the Limit.
	//
	// An error of a binding request fails the call. The decisions are valid until the next TakeAll.
	// If the error is ErrFull, the decisions of binding requests that are limited are those whose keys
	// need memory.
	TakeAll(
		ctx context.Context, requests []LimitRequest, mode quota.Mode,
	) (decisions []quota.Decision, allowed bool, err error)
	// WithoutGrowth returns a view of the same state as this one, on which operations of limiters
	// that need memory, for a new key or a larger one, return ErrFull.
	WithoutGrowth() View

	// Acquire gives a holder permits until its lease ends. A key has at most maxHolders holders.
	Acquire(ctx context.Context, key []byte, r lease.Request, maxHolders int) (quota.Decision, error)
	// Renew changes the end of a holder's lease to ttl from now. It returns false if the holder has
	// none.
	Renew(ctx context.Context, key []byte, ttl time.Duration, holder []byte) (bool, error)
	// Release ends a holder's lease and returns the number of its permits.
	Release(ctx context.Context, key []byte, holder []byte) (int64, error)
	// Holders returns the leases of a key, sorted by end, then by holder.
	Holders(ctx context.Context, key []byte) ([]lease.Lease, error)
}

// Standings contains the operations on keys that hold the standing of a policy's subject: its
// exemption, its ban and its refusals (package standing). All instants are on the store's clock.
type Standings interface {
	// Standing returns what a key holds, the zero State if it does not exist.
	Standing(ctx context.Context, key []byte) (standing.State, error)
	// EditStanding calls edit with what a key holds, the zero State if it does not exist, and makes the
	// key hold what edit returns, which must be a state that Check accepts. If that has no effect after
	// the instant now, as the zero State, the key is removed. All of it is one atomic step, and edit must
	// obey the rules of Edit.
	EditStanding(
		ctx context.Context, key []byte, edit func(now int64, s standing.State) standing.State,
	) error
}

// Forms contains the operations on whole states of limiters, for copies of keys outside the store.
// A standing is such a state too.
// All instants in a state are on the store's clock.
type Forms interface {
	// ReadForm appends the form of a limiter's state to dst, and returns the key's Entry. If the key
	// does not hold a limiter it appends nothing. Leases that have ended are left out.
	ReadForm(ctx context.Context, key []byte, dst []byte) ([]byte, Entry, error)
	// WriteForm makes a key hold a state, whatever it held; the state must be one that Check accepts.
	// If the state has expired, the key is removed instead. On a view without growth, only a state
	// that fits in the memory of the key is written; for any other, the error is ErrFull. The state
	// is borrowed.
	WriteForm(ctx context.Context, key []byte, state *form.State) error
}

// Values contains the operations on values, as SET writes them.
type Values interface {
	// Read appends the value of a key to dst, an integer in decimal, and returns the key's Entry.
	// If the key does not hold a value it appends nothing.
	Read(ctx context.Context, key []byte, dst []byte) ([]byte, Entry, error)
	// ReadPart appends the bytes of a value from start to end, both included. Positions count from
	// 0, negative ones from the end. It also returns the length of the whole value. The time it
	// takes depends only on the length of the part.
	ReadPart(
		ctx context.Context, key []byte, dst []byte, start, end int64,
	) (part []byte, length int, e Entry, err error)
	// Write makes a key hold a value, whatever it held.
	Write(ctx context.Context, key []byte, v Value, expires int64) error
	// Add adds n to an integer, or to 0 if the key does not exist, and returns the sum. The expiry
	// stays.
	Add(ctx context.Context, key []byte, n int64) (int64, error)
	// Edit calls edit with the key's Entry and, if it is a value, its bytes, which are valid until
	// edit returns, and makes the Change that edit returns. All of it is one atomic step: edit must
	// be fast, and must not call the store. It may be called several times, and only the last call
	// counts; so if it writes to variables outside, it must begin by resetting them.
	Edit(ctx context.Context, key []byte, edit func(e Entry, value []byte) (Change, error)) error
}

// Keys contains the operations on keys of any kind.
type Keys interface {
	// Lookup returns the Entry of a key. Its Kind is None if the key does not exist.
	Lookup(ctx context.Context, key []byte) (Entry, error)
	// Inspect is Lookup with the fields of the key's state.
	Inspect(ctx context.Context, key []byte) (Entry, []Field, error)
	// Count returns how many of the keys exist; a key that is named twice counts twice. Up to 1024
	// keys are counted at one instant, more in several steps.
	Count(ctx context.Context, keys [][]byte) (int, error)
	// Touch is Count, and counts as a use of the keys.
	Touch(ctx context.Context, keys [][]byte) (int, error)
	// Delete removes keys and returns how many existed. Up to 1024 keys are removed in one step,
	// more in several.
	Delete(ctx context.Context, keys [][]byte) (int, error)
	// Transfer moves or copies the content of a key, with its expiry, to another key. It returns
	// false if the source does not exist, or if the destination exists and must not be replaced.
	Transfer(ctx context.Context, from, to KeyRef, how Transfer) (done bool, err error)
	// StateBytes returns the approximate size of a key's variable-length state: 0 if the key does
	// not exist, or if all keys of its kind are small.
	StateBytes(ctx context.Context, key []byte) int
}

// Keyspace contains the operations on whole databases.
type Keyspace interface {
	// Size returns the number of records of the selected database, which may include some that have
	// expired.
	Size(ctx context.Context) (int, error)
	// Scan visits the keys of the selected database in several calls of about count keys each. A
	// caller that starts with cursor 0, and continues with the cursor returned until that is 0,
	// sees every key that exists all the time, exactly once. visit must copy the key to keep it,
	// and must not call the store.
	Scan(
		ctx context.Context, cursor uint64, count int, visit func(key []byte, e Entry),
	) (next uint64, err error)
	// Random appends a random key of the selected database to dst; ok is false if there is none.
	Random(ctx context.Context, dst []byte) (key []byte, ok bool, err error)
	// Flush removes all keys of the selected database, in one step.
	Flush(ctx context.Context) error
	// FlushAll removes all keys of all databases.
	FlushAll(ctx context.Context) error
}

// Transactions contains Atomically.
type Transactions interface {
	// Atomically calls steps, which make calls of this view that appear to all other views as one
	// step at one instant. They may touch only the given keys, or with all set any key. If steps
	// returns an error, Atomically returns it, and what steps did is not undone. If Atomically
	// returns an error of its own, steps did nothing. An Atomically within steps just calls its own
	// function. As in Edit, steps may be called several times, and only the last call counts.
	Atomically(ctx context.Context, keys []KeyRef, all bool, steps func() error) error
}
