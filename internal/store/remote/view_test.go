package remote_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/form"
	"cellserver/internal/gcra"
	"cellserver/internal/lease"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
	"cellserver/internal/store/remote"
	"cellserver/internal/store/remote/combine"
	"cellserver/internal/store/remote/remotetest"
)

const start = int64(1_700_000_000_000_000_000)

var ctx = context.Background()

// rig is a view over a table. A test sees and sets the table's keys as other programs do.
type rig struct {
	*testing.T
	clock *store.StillClock
	table *remotetest.Table
	store *remote.Store
	view  store.View
}

func newRig(t *testing.T, o remote.Options) *rig {
	clock := store.NewStillClock(start)
	backend := remotetest.New(clock, 2)
	s := onTable(t, backend, o)
	return &rig{t, clock, backend, s, s.View()}
}

// set makes a key hold bytes, without an expiry.
func (r *rig) set(key, value string) {
	r.table.Put(0, key, []byte(value))
}

func (r *rig) get(key string) string {
	return string(r.table.Get(0, key))
}

func five(t *testing.T) gcra.Limit {
	limit, err := gcra.NewLimit(4, 1, 1)
	require.NoError(t, err)
	return limit
}

func (r *rig) throttle(key string, quantity int64, mode quota.Mode) (gcra.Outcome, error) {
	return r.view.Throttle(ctx, []byte(key), five(r.T), quantity, mode)
}

// acquire takes a permit of a lease.
func (r *rig) acquire(key, holder string) {
	request, err := lease.NewRequest(100, 60, []byte(holder), 1)
	require.NoError(r, err)
	_, err = r.view.Acquire(ctx, []byte(key), request, 100)
	require.NoError(r, err)
}

// The leases of a key take a bounded number of bytes. A holder may still change its own lease.
func TestLeasesAreBounded(t *testing.T) {
	r := newRig(t, remote.Options{})
	acquire := func(holder int, quantity int64) error {
		request, err := lease.NewRequest(1000, 60, fmt.Appendf(nil, "%01000d", holder), quantity)
		require.NoError(t, err)
		_, err = r.view.Acquire(ctx, []byte("k"), request, 1000)
		return err
	}
	holders := 0
	for ; holders < 100 && acquire(holders, 1) == nil; holders++ {
	}
	require.ErrorIs(t, acquire(holders, 1), lease.ErrHolders)
	require.LessOrEqual(t, len(r.get("k")), 64<<10)
	require.Greater(t, len(r.get("k")), 56<<10)
	require.NoError(t, acquire(0, 2))
	_, err := r.view.Release(ctx, []byte("k"), fmt.Appendf(nil, "%01000d", 1))
	require.NoError(t, err)
	require.NoError(t, acquire(holders, 1))
}

func refs(keys ...string) (refs []store.KeyRef) {
	for _, key := range keys {
		refs = append(refs, store.KeyRef{Key: []byte(key)})
	}
	return refs
}

// Throttle keys have the same digits as redis-cell writes, and values that redis-cell has written
// are understood.
func TestThrottleKeysAreThoseOfRedisCell(t *testing.T) {
	r := newRig(t, remote.Options{})
	_, err := r.throttle("k", 2, quota.Take)
	require.NoError(t, err)
	require.Equal(t, fmt.Sprint(start+2e9), r.get("k"))
	r.set("cell", fmt.Sprint(start+3e9))
	o, err := r.throttle("cell", 0, quota.Peek)
	require.NoError(t, err)
	require.Equal(t, int64(3e9), o.Level)
}

// An integer is a TAT to a limiter and a number to a counter, in a transaction too. A call that takes
// nothing leaves it as it is.
func TestCountersAreThrottleKeys(t *testing.T) {
	for _, counter := range []string{"5", "-5", "0", fmt.Sprint(start + 1e9)} {
		r := newRig(t, remote.Options{})
		r.set("k", counter)
		_, err := r.throttle("k", 1, quota.Peek)
		require.NoError(t, err)
		require.Equal(t, counter, r.get("k"))
		require.NoError(t, r.view.Atomically(ctx, refs("k"), false, func() error {
			_, err := r.throttle("k", 1, quota.Peek)
			require.NoError(t, err)
			e, err := r.view.Lookup(ctx, []byte("k"))
			require.Equal(t, store.Entry{Kind: limit.Integer, Expires: store.Never}, e)
			return err
		}))
		require.Equal(t, counter, r.get("k"))
		require.NoError(t, r.view.Atomically(ctx, refs("k"), false, func() error {
			_, err := r.view.Add(ctx, []byte("k"), 2)
			require.NoError(t, err)
			_, err = r.throttle("k", 1, quota.Force)
			return err
		}))
		tat := max(start, parse(t, counter)+2) + 1e9
		require.Equal(t, fmt.Sprint(tat), r.get("k"))
		sum, err := r.view.Add(ctx, []byte("k"), 7)
		require.NoError(t, err)
		require.Equal(t, tat+7, sum)
	}
}

func parse(t *testing.T, s string) (n int64) {
	_, err := fmt.Sscan(s, &n)
	require.NoError(t, err)
	return n
}

// Every call that reads a form of a newer version refuses it by name. The key can be removed or
// replaced.
func TestNewerFormsAreRefused(t *testing.T) {
	r := newRig(t, remote.Options{})
	key := []byte("k")
	for name, call := range map[string]func() error{
		"throttle": func() error { _, err := r.throttle("k", 1, quota.Take); return err },
		"release":  func() error { _, err := r.view.Release(ctx, key, key); return err },
		"read":     func() error { _, _, err := r.view.Read(ctx, key, nil); return err },
		"lookup":   func() error { _, err := r.view.Lookup(ctx, key); return err },
		"add":      func() error { _, err := r.view.Add(ctx, key, 1); return err },
		"edit":     func() error { return r.view.Edit(ctx, key, nil) },
		"steps": func() error {
			return r.view.Atomically(ctx, refs("k"), false, func() error { t.Error("it ran"); return nil })
		},
	} {
		r.set("k", "\x00cl9fgh")
		err := call()
		require.ErrorAs(t, err, new(*store.RefusedError), name)
		require.ErrorContains(t, err, `"\x00cl9"`, name)
		require.Equal(t, "\x00cl9fgh", r.get("k"), name)
	}
	require.NoError(t, r.view.Write(ctx, key, store.Value{Bytes: []byte("v")}, store.Never))
	require.Equal(t, "v", r.get("k"))
}

// No value can be written that would be read as a limiter.
func TestMarkedValuesAreNotWritten(t *testing.T) {
	r := newRig(t, remote.Options{})
	key, marked := []byte("k"), store.Value{Bytes: []byte("\x00cl1t")}
	edit := func(c store.Change) error {
		return r.view.Edit(ctx, key, func(store.Entry, []byte) (store.Change, error) { return c, nil })
	}
	r.set("k", "?cl1")
	require.Error(t, r.view.Write(ctx, key, marked, store.Never))
	require.Error(t, edit(store.Change{Operation: store.Put, Value: marked, Expires: store.Never}))
	zero := store.Value{Bytes: []byte{0}}
	require.Error(t, edit(store.Change{Operation: store.Patch, Value: zero, Expires: store.Never}))
	require.Error(t, r.view.Atomically(ctx, refs("k"), false, func() error {
		return edit(store.Change{Operation: store.Patch, Value: zero, Expires: store.Never})
	}))
	require.Equal(t, "?cl1", r.get("k"))
}

// Logs and leases get another version with each write, and a step compares only the version.
func TestVersionsOfLogs(t *testing.T) {
	r := newRig(t, remote.Options{})
	seen := map[string]bool{}
	for range 5 {
		r.acquire("k", fmt.Sprint("holder", len(seen)))
		value := r.get("k")
		require.Equal(t, 13, form.Identity([]byte(value)))
		seen[value[:13]] = true
	}
	require.Len(t, seen, 5)
	var compared int
	r.table.Watch = func(_ *combine.Step, changes []combine.Change) { compared = changes[0].Compared }
	r.acquire("k", "another")
	require.Equal(t, 13, compared)
}

// In a cluster, a step touches one slot. Commands that only count or remove keys are split.
func TestSlots(t *testing.T) {
	r := newRig(t, remote.Options{
		Slot:   func(key string) int { return int(key[0]) },
		OwnKey: func(key, name string) string { return key[:1] + "\x00" + name },
	})
	keys := [][]byte{[]byte("a1"), []byte("b1"), []byte("a2"), []byte("a1"), []byte("c")}
	for _, key := range keys {
		require.NoError(t, r.view.Write(ctx, key, store.Value{Integer: 1, IsInteger: true}, store.Never))
	}
	for name, call := range map[string]func() error{
		"steps": func() error { return r.view.Atomically(ctx, refs("a1", "b1"), false, func() error { return nil }) },
		"transfer": func() error {
			_, err := r.view.Transfer(ctx, refs("a1")[0], refs("b1")[0], store.Transfer{Replace: true})
			return err
		},
		"all": func() error {
			rule := limit.Rule{Kind: limit.Throttle, Throttle: five(t)}
			_, _, err := r.view.TakeAll(ctx, []store.LimitRequest{
				{Key: keys[0], Rule: rule, Quantity: 1}, {Key: keys[1], Rule: rule, Quantity: 1}}, quota.Take)
			return err
		},
	} {
		require.ErrorContains(t, call(), "CROSSSLOT", name)
	}
	n, err := r.view.Count(ctx, keys)
	require.NoError(t, err)
	require.Equal(t, 5, n)
	done, err := r.view.Transfer(ctx, refs("a1")[0], refs("a3")[0], store.Transfer{})
	require.NoError(t, err)
	require.True(t, done)
	n, err = r.view.Delete(ctx, append(keys, []byte("a3")))
	require.NoError(t, err)
	require.Equal(t, 4, n)
}

// If others change its keys, a transaction runs again up to 16 times. Then it fails, and nothing
// was changed.
func TestTransactionsGiveUp(t *testing.T) {
	for _, conflicts := range []int{0, 1, 15, 16, 20} {
		r := newRig(t, remote.Options{})
		runs := 0
		err := r.view.Atomically(ctx, refs("k"), false, func() error {
			if runs++; runs <= conflicts {
				r.set("k", fmt.Sprint("another's ", runs))
			}
			return r.view.Write(ctx, []byte("k"), store.Value{Bytes: []byte("mine")}, store.Never)
		})
		require.Equal(t, min(conflicts+1, 16), runs)
		if conflicts < 16 {
			require.NoError(t, err)
			require.Equal(t, "mine", r.get("k"))
			continue
		}
		require.ErrorContains(t, err, "nothing was changed")
		require.True(t, strings.HasPrefix(r.get("k"), "another's"))
	}
}

// A transaction may touch only the keys that it has named.
func TestTransactionsNameTheirKeys(t *testing.T) {
	r := newRig(t, remote.Options{})
	require.Panics(t, func() {
		_ = r.view.Atomically(ctx, refs("k"), false,
			func() error { _, err := r.throttle("other", 1, quota.Take); return err })
	})
	require.Panics(t, func() {
		_ = r.view.Atomically(ctx, []store.KeyRef{{Database: 1, Key: []byte("k")}}, false,
			func() error { _, err := r.throttle("k", 1, quota.Take); return err })
	})
	_, err := r.throttle("k", 1, quota.Take)
	require.NoError(t, err, "the view is outside of the transaction again")
	require.ErrorContains(t, r.view.Atomically(ctx,
		[]store.KeyRef{{Key: []byte("k")}, {Database: 1, Key: []byte("k")}}, false, nil), "two databases")
	require.ErrorContains(t, r.view.Atomically(ctx, refs("k"), false, func() error { return r.view.Flush(ctx) }), "whole")
}

// Keys of other programs are not removed by accident.
func TestFlushMustBeAllowed(t *testing.T) {
	r := newRig(t, remote.Options{})
	r.store.AllowFlush = false
	r.set("k", "v")
	require.ErrorContains(t, r.view.Flush(ctx), "--store-allow-flush")
	require.ErrorContains(t, r.view.FlushAll(ctx), "--store-allow-flush")
	require.Equal(t, "v", r.get("k"))
}

// A function of the caller that panics does so in the goroutine of the caller.
func TestPanicsOfEdits(t *testing.T) {
	r := newRig(t, remote.Options{})
	require.PanicsWithValue(t, "of an edit", func() {
		defer func() {
			value, _, _ := strings.Cut(fmt.Sprint(recover()), ",")
			panic(value)
		}()
		_ = r.view.Edit(ctx, []byte("k"), func(store.Entry, []byte) (store.Change, error) { panic("of an edit") })
	})
	require.NoError(t, r.view.Edit(ctx, []byte("k"), func(store.Entry, []byte) (store.Change, error) {
		return store.Change{}, nil
	}))
}

// slow is an executor that keeps its steps.
type slow struct {
	mu    sync.Mutex
	steps []*combine.Step
	begun chan struct{}
}

func (s *slow) Monotonic() int64 { return 1000 }

func (s *slow) Submit(step *combine.Step) {
	s.mu.Lock()
	s.steps = append(s.steps, step)
	s.mu.Unlock()
	s.begun <- struct{}{}
}

// A call whose context ends returns, and its step no longer touches the caller's memory.
func TestCallsThatAreGivenUp(t *testing.T) {
	for _, suspends := range []bool{false, true} {
		executor := &slow{begun: make(chan struct{}, 1)}
		s := remote.New(remote.Options{Executor: executor, Clock: store.NewStillClock(start), Timeout: 7})
		v := s.View()
		if suspends {
			v.(store.Suspender).SetWait(func(done <-chan struct{}) { <-done })
		}
		stopped, stop := context.WithCancel(ctx)
		go func() {
			<-executor.begun
			stop()
		}()
		err := v.Edit(stopped, []byte("k"), func(store.Entry, []byte) (store.Change, error) {
			t.Error("the caller has given up")
			return store.Change{}, nil
		})
		require.ErrorIs(t, err, store.ErrUnavailable)
		step := executor.steps[0]
		require.Equal(t, int64(1007), step.Deadline)
		require.Error(t, step.Run(start, make([]combine.Value, 1), make([]combine.Change, 1)))
		step.Done(nil, nil)
	}
}

// While a call waits, calls of other views can begin: a session with many calls under way.
func TestCallsThatWait(t *testing.T) {
	r := newRig(t, remote.Options{})
	executor := &slow{begun: make(chan struct{}, 10)}
	r.store.Executor = executor
	var first, second gcra.Outcome
	inner := r.store.View()
	inner.(store.Suspender).SetWait(func(done <-chan struct{}) {
		require.Len(t, executor.steps, 2, "both are under way")
		for _, step := range executor.steps {
			r.table.Submit(step)
		}
		<-done
	})
	r.view.(store.Suspender).SetWait(func(done <-chan struct{}) {
		second, _ = inner.Throttle(ctx, []byte("k"), five(t), 1, quota.Take)
		<-done
	})
	first, err := r.throttle("k", 1, quota.Take)
	require.NoError(t, err)
	require.ElementsMatch(t, []int64{1e9, 2e9}, []int64{first.Level, second.Level})
}

// A key with the state of a limiter stays longer than the state. Otherwise the backend might remove it
// while a process whose clock is a little behind still counts on it, or while a step that found no key
// is under way. Clients are told about the state, and not about the key. Values have the expiry that
// clients give them.
func TestLimitersOutliveTheirStates(t *testing.T) {
	testMargin(t, newRig(t, remote.Options{}), combine.ExpiryMargin)
	testMargin(t, newRig(t, remote.Options{Timeout: 20 * time.Second}), 20e9)
}

func testMargin(t *testing.T, r *rig, margin int64) {
	var expires int64 // of the first key that the last step has changed
	var moved []int64 // of all of them
	r.table.Watch = func(_ *combine.Step, changes []combine.Change) {
		moved = moved[:0]
		for _, c := range changes {
			moved = append(moved, c.Expires)
		}
		expires = moved[0]
	}
	_, err := r.throttle("k", 2, quota.Take)
	require.NoError(t, err)
	require.Equal(t, start+2e9+margin, expires)
	r.acquire("lease", "a")
	require.Equal(t, start+60e9+margin, expires)
	for _, key := range []string{"k", "lease"} {
		e, err := r.view.Lookup(ctx, []byte(key))
		require.NoError(t, err)
		require.Equal(t, map[string]int64{"k": start + 2e9, "lease": start + 60e9}[key], e.Expires)
		_, err = r.view.Transfer(ctx, store.KeyRef{Key: []byte(key)}, store.KeyRef{Key: []byte("to")},
			store.Transfer{Replace: true})
		require.NoError(t, err)
		require.Contains(t, moved, e.Expires+margin)
	}
	require.NoError(t, r.view.Write(ctx, []byte("v"), store.Value{Bytes: []byte("x")}, start+9e9))
	e, err := r.view.Lookup(ctx, []byte("v"))
	require.NoError(t, err)
	require.Equal(t, start+int64(9e9), e.Expires)
}

// In the margin, the key is still in the backend, but there is no state of a limiter any more.
func TestLimitersThatHaveEnded(t *testing.T) {
	r := newRig(t, remote.Options{})
	_, err := r.throttle("k", 2, quota.Take)
	require.NoError(t, err)
	r.acquire("lease", "a")
	require.NoError(t, err)
	r.clock.Advance(2*time.Second + 50*time.Millisecond)
	require.NotEmpty(t, r.get("k"))
	o, err := r.throttle("k", 1, quota.Take)
	require.NoError(t, err)
	require.Equal(t, int64(time.Second), o.Level)
	r.clock.Advance(60*time.Second - 2*time.Second)
	require.NotEmpty(t, r.get("lease"))
	r.expectNone("k", "lease")
}

// Limiters that have ended long ago, with a long margin.
func TestLimitersThatHaveEndedLongAgo(t *testing.T) {
	r := newRig(t, remote.Options{Timeout: 20 * time.Second})
	_, err := r.throttle("k", 2, quota.Take)
	require.NoError(t, err)
	r.clock.Advance(20 * time.Second)
	require.NotEmpty(t, r.get("k"))
	r.expectNone("k")
	value, _, err := r.view.Read(ctx, []byte("k"), nil)
	require.NoError(t, err)
	require.Empty(t, value)
	r.set("number", fmt.Sprint(start))
	sum, err := r.view.Add(ctx, []byte("number"), 1)
	require.NoError(t, err)
	require.Equal(t, int64(start+1), sum)
}

// expectNone checks that there are no keys, as far as clients are told.
func (r *rig) expectNone(keys ...string) {
	for _, key := range keys {
		e, err := r.view.Lookup(ctx, []byte(key))
		require.NoError(r.T, err)
		require.Equal(r.T, limit.None, e.Kind)
	}
}

// Changes of a part of a value are refused if the value is too long, because all other steps wait while
// a step runs. Whole values may have any length.
func TestLargeValues(t *testing.T) {
	r := newRig(t, remote.Options{})
	write := func(length int) {
		err := r.view.Write(ctx, []byte("k"), store.Value{Bytes: make([]byte, length)}, store.Never)
		require.NoError(t, err)
	}
	edit := func(length int) error {
		return r.view.Edit(ctx, []byte("k"), func(store.Entry, []byte) (store.Change, error) {
			return store.Change{Operation: store.Put, Value: store.Value{Bytes: make([]byte, length)}}, nil
		})
	}
	write(1 << 20)
	require.NoError(t, edit(1<<20))
	require.ErrorContains(t, edit(1<<20+1), "longer than 1 MiB")
	write(1<<20 + 1)
	require.ErrorContains(t, edit(1), "longer than 1 MiB")
	_, err := r.throttle("k", 1, quota.Take)
	require.ErrorIs(t, err, store.ErrWrongKind)
	read, _, err := r.view.Read(ctx, []byte("k"), nil)
	require.NoError(t, err)
	require.Len(t, read, 1<<20+1)
	part, length, _, err := r.view.ReadPart(ctx, []byte("k"), nil, 0, 1)
	require.NoError(t, err)
	require.Len(t, part, 2)
	require.Equal(t, 1<<20+1, length)
}

// A transaction is bounded in keys and in bytes, for reads and for writes.
func TestTransactionsAreBounded(t *testing.T) {
	r := newRig(t, remote.Options{})
	run := func(keys int, steps func() error) error {
		var names []string
		for i := range keys {
			names = append(names, fmt.Sprint(i%1025), fmt.Sprint(i%1025)) // some twice
		}
		return r.view.Atomically(ctx, refs(names...), false, steps)
	}
	nothing := func() error { return nil }
	writing := func(length int) func() error {
		return func() error {
			for _, key := range []string{"0", "1"} {
				value := store.Value{Bytes: make([]byte, length)}
				require.NoError(t, r.view.Write(ctx, []byte(key), value, store.Never))
			}
			return nil
		}
	}
	require.NoError(t, run(1024, nothing))
	require.EqualError(t, run(1025, nothing),
		"ERR nothing was changed: the store takes at most 1024 keys in a transaction, with those that are watched")
	require.NoError(t, run(2, writing(8<<20)))
	require.NoError(t, run(2, nothing))
	require.NoError(t, run(2, writing(1)))
	require.ErrorContains(t, run(2, writing(8<<20+1)), "at most 16 MiB of values in a transaction")
	require.Len(t, r.get("1"), 1, "nothing was changed")
	r.set("0", strings.Repeat("x", 16<<20))
	require.ErrorContains(t, run(2, nothing), "at most 16 MiB of values in a transaction")
}
