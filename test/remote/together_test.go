package remote

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/calendar"
	"cellserver/internal/gcra"
	"cellserver/internal/lease"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
	"cellserver/internal/store/remote"
	"cellserver/internal/store/remote/combine"
	"cellserver/internal/window"
)

// newStore returns a store over its own backend, as each process has one. With losesConflicts it has a
// planted fault: it takes writes that lost a conflict for successful ones.
func newStore(t *testing.T, url string, losesConflicts bool) *remote.Store {
	l := open(t, url)
	sender := remote.Sender(l.Backend)
	if losesConflicts {
		sender = conflictLoser{sender}
	}
	e := remote.NewEngine(remote.EngineOptions{Sender: sender, Monotonic: now, Self: rand.Uint64(), Known: 100,
		KnownBytes: 1 << 20, Connections: 2, Timeout: time.Minute})
	clocks := remote.NewClocks(processClock{}, l.Backend)
	s := remote.New(remote.Options{
		Executor: e, Keyspace: l.Backend, Clock: clocks, KeyNow: clocks.OfKey, Prefix: "cl:",
		Reserved: l.IsInternal, OwnKey: l.OwnKey,
		Close: func() error { e.Close(l.Close); return nil },
	})
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// processClock is the clock of the backends of the tests.
type processClock struct{}

func (processClock) Now() int64    { return now() }
func (processClock) Offset() int64 { return 0 }

// conflictLoser is a backend with the planted fault of newStore.
type conflictLoser struct{ remote.Sender }

func (l conflictLoser) Do(b *combine.Batch) {
	l.Sender.Do(b)
	for _, r := range b.Requests {
		if r.Reply.Status == combine.Conflict {
			r.Reply.Status = combine.Done
		}
	}
}

// limitersOf returns a call of each kind of limiter, which takes one token of size and reports
// whether it was allowed. No token comes back during the test.
func limitersOf(t *testing.T, size int64) map[string]func(v store.View, caller int) (bool, error) {
	const day = 86400
	throttle, err := gcra.NewLimit(size-1, 1, day)
	require.NoError(t, err)
	windows, err := window.NewLimit(size, day)
	require.NoError(t, err)
	log, err := window.NewLogLimit(size, day, int(size))
	require.NoError(t, err)
	calls := map[string]func(v store.View, caller int) (bool, error){}
	for _, rule := range []limit.Rule{{Kind: limit.Throttle, Throttle: throttle}, {Kind: limit.Fixed, Window: windows},
		{Kind: limit.Sliding, Window: windows}, {Kind: limit.SlidingLog, Log: log},
		{Kind: limit.Quota, Window: windows, Cycle: calendar.Every(31 * 365 * 24 * time.Hour)}} {
		calls[rule.Kind.String()] = func(v store.View, _ int) (bool, error) {
			d, err := v.Take(context.Background(), []byte(rule.Kind.String()), &rule, 1, quota.Take)
			return !d.Limited, err
		}
	}
	var holders atomic.Int64
	calls["lease"] = func(v store.View, caller int) (bool, error) {
		r, err := lease.NewRequest(size, day, []byte(fmt.Sprint(caller, " ", holders.Add(1))), 1)
		assert.NoError(t, err)
		d, err := v.Acquire(context.Background(), []byte("lease"), r, 10_000)
		return !d.Limited, err
	}
	return calls
}

// Two processes on one server admit together exactly what the limit allows.
func TestStoresAdmitTogether(t *testing.T) {
	const size, callers, each = 100, 8, 50
	url := "redis://" + start(t).Addr
	stores := []*remote.Store{newStore(t, url, false), newStore(t, url, false)}
	for name, take := range limitersOf(t, size) {
		var admitted atomic.Int64
		var running sync.WaitGroup
		for i, s := range stores {
			for caller := range callers {
				view := s.View()
				running.Go(func() {
					for range each {
						view.Begin()
						allowed, err := take(view, i*callers+caller)
						assert.NoError(t, err)
						if allowed {
							admitted.Add(1)
						}
					}
				})
			}
		}
		running.Wait()
		assert.Equal(t, int64(size), admitted.Load(), name)
	}
}

// Two processes that take in turns, and lose conflicts, admit more than the limit allows.
func TestLostConflictsAreFound(t *testing.T) {
	const size = 100
	url := "redis://" + start(t).Addr
	views := []store.View{newStore(t, url, true).View(), newStore(t, url, true).View()}
	for name, take := range limitersOf(t, size) {
		admitted := 0
		for i := range 2 * size {
			allowed, err := take(views[i%2], i%2)
			require.NoError(t, err)
			if allowed {
				admitted++
			}
		}
		require.Greater(t, admitted, size, name)
	}
}
