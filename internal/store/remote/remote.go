package remote

import (
	"context"
	"sync"
	"time"

	"cellserver/internal/store"
	"cellserver/internal/store/remote/ahead"
	"cellserver/internal/store/remote/combine"
)

// Executor makes steps on the backend.
type Executor interface {
	// Submit begins a step. It does not wait for it.
	Submit(*combine.Step)
	// Monotonic returns the instant on the clock of Step.Deadline.
	Monotonic() int64
}

// Driver is an Executor that makes steps on the goroutine that waits for them.
type Driver interface {
	// SubmitDriven is Submit for a caller that calls Drive next.
	SubmitDriven(*combine.Step)
	// Drive makes steps until done is closed.
	Drive(done <-chan struct{})
}

// Keyspace makes operations on whole databases of the backend: on the keys of all primaries that begin
// with the prefix of the store. It takes and returns them without the prefix.
type Keyspace interface {
	DBSize(ctx context.Context, database int) (keys int64, err error)
	// Scan returns some keys that match a pattern, to which the prefix is added, and the cursor with
	// which to go on; 0 is the first cursor, and the end. It may return a key twice.
	Scan(ctx context.Context, database int, cursor uint64, pattern string, count int) (
		keys []string, next uint64, err error)
	// RandomKey returns a random key; ok is false if there is none.
	RandomKey(ctx context.Context, database int) (key string, ok bool, err error)
	// Flush removes the keys of a database.
	Flush(ctx context.Context, database int) (removed int64, err error)
}

// Options configure a store. Executor, Keyspace and Clock must be set.
type Options struct {
	Executor Executor
	Keyspace Keyspace
	// Clock is the clock of operations without a key. Its instants are Unix nanoseconds, and its offset is 0.
	Clock store.Clock
	// KeyNow returns the present instant on the clock of the server that holds a key, named as in the
	// backend. known is false as long as that clock has not been read. If it is nil, all keys are on Clock.
	KeyNow func(key string) (now int64, known bool)
	// KeyTrip returns the shortest round trip, in nanoseconds, with which the clock of that server was read.
	KeyTrip func(key string) int64
	// Lease is how long this process may decide by tokens that it has taken ahead; 0 means that it asks the backend
	// each time, unless a request says otherwise.
	Lease time.Duration
	// LeasedKeys is the number of keys whose tokens this process may hold at once. If it is not 0, KeyNow, KeyTrip
	// and WallClock must be set.
	LeasedKeys int
	WallClock  func() int64 // the clock of this machine, in nanoseconds

	Name      string        // the name of the backend's program, for External; "" means redis
	Databases int           // 0 means 16; a cluster has 1
	Prefix    string        // begins the names of all keys in the backend
	Timeout   time.Duration // longest time of a call; 0 means no bound
	// Slot returns the slot of a key, as the backend names it. A step can only touch keys of one slot.
	// If it is nil, there are no slots.
	Slot func(key string) int
	// Reserved reports whether a key, as the backend names it, is an internal key of the backend, which
	// clients cannot use. It may be nil.
	Reserved func(key string) bool
	// OwnKey returns an internal key of the store in the slot of a key, both as the backend names them.
	// Different names give different keys. It must be set if there are slots.
	OwnKey     func(key, name string) string
	AllowFlush bool         // Flush and FlushAll are not refused
	Close      func() error // called by Close; may be nil
	// Describe adds fields to the section Store of INFO; may be nil.
	Describe func(add func(name string, value any))
	// RoundTrips returns what store.RoundTripper does; it may be nil.
	RoundTrips func() (below map[float64]uint64, count uint64, sum float64)
}

// Store implements store.Store over a backend.
type Store struct {
	Options
	scratches scratches
	driver    Driver      // the executor, if it is one
	book      *ahead.Book // nil if no tokens are taken ahead
	closeOnce sync.Once
}

// New returns a store.
func New(o Options) *Store {
	if o.Databases == 0 {
		o.Databases = 16
	}
	if o.Name == "" {
		o.Name = "redis"
	}
	s := &Store{Options: o}
	if s.OwnKey == nil {
		s.OwnKey = s.ownKey
	}
	s.scratches.margin = s.margin()
	s.driver, _ = o.Executor.(Driver)
	if s.LeasedKeys > 0 {
		s.book = ahead.NewBook(s.LeasedKeys)
	}
	return s
}

// margin returns how long keys of limiters stay after their states have ended.
func (s *Store) margin() margin { return margin(combine.MarginFor(int64(s.Timeout))) }

// View returns a new view.
func (s *Store) View() store.View {
	v := &view{store: s}
	v.Begin()
	return v
}

func (s *Store) Databases() int     { return s.Options.Databases }
func (s *Store) Clock() store.Clock { return s.Options.Clock }
func (s *Store) External() string   { return s.Name }

// MayBlock returns true: calls wait for the backend.
func (s *Store) MayBlock() bool { return true }

// Close stops what executes the steps.
func (s *Store) Close() (err error) {
	s.closeOnce.Do(func() {
		if s.Options.Close != nil {
			err = s.Options.Close()
		}
	})
	return err
}
