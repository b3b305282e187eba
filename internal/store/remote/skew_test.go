package remote_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"cellserver/internal/quota"
	"cellserver/internal/store"
	"cellserver/internal/store/remote"
	"cellserver/internal/store/remote/combine"
)

// skews are the differences between the clocks of two servers of a cluster. The first has the keys
// that begin with a, and the second the keys that begin with b.
var skews = []time.Duration{0, -2 * time.Second, 2 * time.Second}

// newSkewed returns a view over two servers with different clocks.
func newSkewed(t *testing.T, skew time.Duration) *rig {
	slot := func(key string) int { return int(key[0]) }
	r := newRig(t, remote.Options{Slot: slot})
	r.table.Skew = func(key string) int64 {
		if key[0] == 'b' {
			return int64(skew)
		}
		return 0
	}
	r.store.KeyNow = r.table.KeyNow
	return r
}

// A time to live counts on the clock of the server that holds the key, and ends there.
func TestTimesToLiveCountOnTheClockOfTheKey(t *testing.T) {
	for _, skew := range skews {
		r := newSkewed(t, skew)
		c := dialRemote(t, r)
		for _, key := range []string{"a", "b"} {
			for _, call := range [][]any{
				{"set", key, "v", "px", 1000}, {"psetex", key, 1000, "v"}, {"set", key, "v", "nx", "px", 1000},
				{"getex", key, "px", 1000}, {"pexpire", key, 1000}, {"msetex", 1, key, "v", "px", 1000},
			} {
				require.NoError(t, c.Do(ctx, "del", key).Err())
				if call[0] != "set" {
					require.NoError(t, c.Set(ctx, key, "v", 0).Err())
				}
				require.NoError(t, c.Do(ctx, call...).Err(), call)
				require.Equal(t, time.Second, c.PTTL(ctx, key).Val(), "%v, skew %v", call, skew)
			}
		}
		r.clock.Advance(time.Second)
		require.Zero(t, c.Exists(ctx, "a", "b").Val())
	}
}

// An instant in Unix time is compared with the clock of the key.
func TestInstantsAreOnTheClockOfTheKey(t *testing.T) {
	for _, skew := range skews {
		c := dialRemote(t, newSkewed(t, skew))
		at := (start + int64(skew) + 1e9) / 1e6
		require.NoError(t, c.Do(ctx, "set", "b", "v", "pxat", at).Err())
		require.Equal(t, time.Second, c.PTTL(ctx, "b").Val())
		require.NoError(t, c.Do(ctx, "set", "b", "v", "pxat", at-1001).Err())
		require.Zero(t, c.Exists(ctx, "b").Val())
	}
}

// A transaction decides on the clock of its keys, even after a call on a key of another server.
func TestTransactionsAreOnTheClockOfTheirKeys(t *testing.T) {
	for _, skew := range skews {
		r := newSkewed(t, skew)
		other, err := r.throttle("a", 1, quota.Take)
		require.NoError(t, err)
		require.Equal(t, int64(1e9), other.Level)
		for i := range 4 {
			require.NoError(t, r.view.Atomically(ctx, refs("b"), false, func() error {
				require.Equal(t, start+int64(skew), r.view.Now())
				o, err := r.throttle("b", 1, quota.Take)
				require.Equal(t, int64(i+1)*1e9, o.Level)
				return err
			}))
			_, err = r.throttle("a", 0, quota.Peek)
			require.NoError(t, err)
		}
		require.Equal(t, fmt.Sprint(start+int64(skew)+4e9), r.get("b"))
		c := dialRemote(t, r)
		_, err = c.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.Set(ctx, "b", "v", time.Second)
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, time.Second, c.PTTL(ctx, "b").Val())
	}
}

// The clock of a server is asked for before the first time to live is computed for its keys.
func TestUnknownClockIsAskedFor(t *testing.T) {
	r := newSkewed(t, 2*time.Second)
	r.store.KeyNow = func(string) (int64, bool) { return 0, false }
	require.NoError(t, dialRemote(t, r).Set(ctx, "b", "v", time.Second).Err())
	e, err := r.view.Lookup(ctx, []byte("b"))
	require.NoError(t, err)
	require.Equal(t, start+3e9, e.Expires)
}

// A context that is done just after its call has ended does not end the next call, which uses the
// same step, however late the end of the context is noticed.
func TestLateContextsAreIgnored(t *testing.T) {
	executor := &slow{begun: make(chan struct{}, 1)}
	v := remote.New(remote.Options{Executor: executor, Clock: store.NewStillClock(start)}).View()
	stop := func() {}
	v.(store.Suspender).SetWait(func(done <-chan struct{}) {
		<-executor.begun
		step := executor.steps[len(executor.steps)-1]
		require.NoError(t, step.Run(start, make([]combine.Value, 1), make([]combine.Change, 1)))
		step.Done(nil, nil)
		<-done
		stop()
	})
	for range 200 {
		stopped, cancel := context.WithCancel(ctx)
		defer cancel()
		stop = cancel
		_, err := v.Throttle(stopped, []byte("k"), five(t), 1, quota.Take)
		require.NoError(t, err)
	}
	require.Same(t, executor.steps[0], executor.steps[199])
}

// All calls that a view has begun at once are given up when their context is done.
func TestSeveralCallsAreGivenUp(t *testing.T) {
	executor := &slow{begun: make(chan struct{}, 3)}
	s := remote.New(remote.Options{Executor: executor, Clock: store.NewStillClock(start), Slot: func(key string) int {
		return int(key[0])
	}})
	v := s.View()
	v.(store.Suspender).SetWait(func(done <-chan struct{}) { <-done })
	stopped, stop := context.WithCancel(ctx)
	go func() {
		for range 3 {
			<-executor.begun
		}
		stop()
	}()
	pairs := [][]byte{[]byte("a"), []byte("1"), []byte("b"), []byte("2"), []byte("c"), []byte("3")}
	require.ErrorIs(t, v.(store.ManyValues).WriteMany(stopped, pairs), store.ErrUnavailable)
}

// Calls without keys are on the clock of the process, also after calls on keys whose server has another
// clock.
func TestProcessHasItsOwnClock(t *testing.T) {
	for _, skew := range skews {
		server := dialRemote(t, newSkewed(t, skew))
		c, other := server.Conn(), server.Conn()
		defer c.Close()
		defer other.Close()
		require.NoError(t, c.ClientSetName(ctx, "busy").Err())
		require.NoError(t, c.ConfigSet(ctx, "slowlog-log-slower-than", "0").Err())
		alone := func() error { return c.Do(ctx, "cl.throttle", "b", 1, 1, 60).Err() }
		queued := func() error {
			_, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error { return p.Do(ctx, "cl.throttle", "b", 1, 1, 60).Err() })
			return err
		}
		for _, call := range []func() error{alone, queued} {
			require.NoError(t, call())
			require.Contains(t, other.ClientList(ctx).Val(), " name=busy age=0 idle=0 ")
			for _, slow := range other.SlowLogGet(ctx, 10).Val() {
				require.Equal(t, start/1e9, slow.Time.Unix(), slow.Args)
			}
			require.Equal(t, start, c.Time(ctx).Val().UnixNano())
		}
	}
}
