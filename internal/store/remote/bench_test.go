package remote_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/gcra"
	"cellserver/internal/quota"
	"cellserver/internal/store"
	"cellserver/internal/store/remote"
	"cellserver/internal/store/remote/combine"
)

// echo is an executor that makes each step at once on a value that it keeps.
type echo struct {
	clock   *store.StillClock
	values  [1]combine.Value
	changes [1]combine.Change
}

func (e *echo) Monotonic() int64 { return e.clock.Now() }

func (e *echo) Submit(s *combine.Step) {
	e.changes[0] = combine.Change{}
	err := s.Run(e.clock.Now(), e.values[:], e.changes[:])
	if c := &e.changes[0]; c.Op == combine.Set {
		e.values[0] = combine.Value{Bytes: c.Bytes, Expires: c.Expires}
	}
	s.Done(nil, err)
}

// maxAllocations is what a CL.THROTTLE allocates: the channel that ends it, the name of the key, and
// its value.
const maxAllocations = 3

func newThrottling(tb testing.TB) func() {
	clock := store.NewStillClock(start)
	v := remote.New(remote.Options{Executor: &echo{clock: clock}, Clock: clock}).View()
	limit, err := gcra.NewLimit(1e6, 1e6, 1)
	require.NoError(tb, err)
	key := []byte("user:1234567890")
	return func() {
		clock.Advance(1)
		v.Begin()
		if o, err := v.Throttle(ctx, key, limit, 1, quota.Take); err != nil || o.Limited {
			tb.Fatal(o, err)
		}
	}
}

func TestAllocationsOfThrottle(t *testing.T) {
	require.LessOrEqual(t, testing.AllocsPerRun(100, newThrottling(t)), float64(maxAllocations))
}

// BenchmarkThrottle measures what a view adds to a step.
func BenchmarkThrottle(b *testing.B) {
	throttle := newThrottling(b)
	b.ReportAllocs()
	for b.Loop() {
		throttle()
	}
}
