package remote_test

import (
	"context"
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

// maxAllocations is the number of allocations of a CL.THROTTLE: the channel that ends it, the name
// of the key, and its value.
const maxAllocations = 3

func newThrottling(tb testing.TB, ctx context.Context, wait func(<-chan struct{})) func() {
	clock := store.NewStillClock(start)
	v := remote.New(remote.Options{Executor: &echo{clock: clock}, Clock: clock}).View()
	v.(store.Suspender).SetWait(wait)
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
	require.LessOrEqual(t, testing.AllocsPerRun(100, newThrottling(t, ctx, nil)), float64(maxAllocations))
	require.LessOrEqual(t, testing.AllocsPerRun(100, newThrottling(t, t.Context(), receive)), float64(maxAllocations),
		"in a session")
}

func receive(done <-chan struct{}) { <-done }

// BenchmarkThrottle measures how much a view adds to a step.
func BenchmarkThrottle(b *testing.B) {
	throttle := newThrottling(b, ctx, nil)
	b.ReportAllocs()
	for b.Loop() {
		throttle()
	}
}

// BenchmarkThrottleInSession has a context that may be done, as the calls of a client have.
func BenchmarkThrottleInSession(b *testing.B) {
	throttle := newThrottling(b, b.Context(), receive)
	b.ReportAllocs()
	for b.Loop() {
		throttle()
	}
}
