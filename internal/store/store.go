// Package store keeps keys and makes each decision atomic on the keys that it touches. It owns the clock: nobody else
// knows what time it is. Store and View are the contract; Memory is the implementation that ships; storetest holds what
// every implementation must do.
package store

import (
	"context"
	"errors"

	"cellserver/internal/gcra"
	"cellserver/internal/quota"
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
	// Now is the batch's instant: nanoseconds on the store's clock.
	Now() int64

	// Foresee says that these keys of the selected database are about to be asked for, so that the store can bring them
	// near. It changes nothing, and nothing depends on it but time. The keys' bytes must stay as they are until Begin, or the
	// next Foresee.
	Foresee(keys [][]byte)

	// Throttle takes quantity tokens from key's quota as mode says, by GCRA, in one atomic step.
	Throttle(ctx context.Context, key []byte, limit gcra.Limit, quantity int64, mode quota.Mode) (quota.Decision, error)

	// Lookup tells what stands at key; Entry.Kind is None if nothing does.
	Lookup(ctx context.Context, key []byte) (Entry, error)
	// Count says how many of the keys exist; a key named twice counts twice. Up to 1024 keys are counted at one instant,
	// more in several steps.
	Count(ctx context.Context, keys [][]byte) (int, error)
	// Delete removes the keys and says how many were there. Up to 1024 keys go in one step, more in several.
	Delete(ctx context.Context, keys [][]byte) (int, error)

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
	None     Kind = iota // nothing
	Throttle             // a CL.THROTTLE key: its state is its TAT
)

// String is the kind's name as CL.INSPECT shows it.
func (k Kind) String() string {
	switch k {
	case Throttle:
		return "cl.throttle"
	default:
		return "none"
	}
}

// Entry is what stands at a key, at one instant.
type Entry struct {
	Kind    Kind
	Expires int64 // instant in nanoseconds on the store's clock; for a Throttle key its TAT
}

// Why says what happened to a key.
type Why uint8

const (
	Changed Why = iota // it was made, or its state moved
	Deleted            // somebody removed it, or a refund emptied it
	Expired            // its state says nothing any more
	Flushed            // its database was emptied; there is one such notice a database, with a nil key
)

// Listener hears of changes: see Store.Listen.
type Listener func(database int, key []byte, why Why)

// Usage is what one database holds.
type Usage struct {
	Keys  int   // records, expired ones that were not swept yet included
	Bytes int64 // memory held for them: records, their slack, the index
}

// The errors of a store. Each means that nothing was changed.
var (
	// ErrWrongKind: the key holds another kind than the command is for.
	ErrWrongKind = errors.New("key holds another kind")
	// ErrFull: the table has no room for another key.
	ErrFull = errors.New("no room for another key")
)
