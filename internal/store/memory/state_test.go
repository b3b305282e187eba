package memory

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/calendar"
	"cellserver/internal/form"
	"cellserver/internal/lease"
	"cellserver/internal/limit"
	"cellserver/internal/racetest"
	"cellserver/internal/standing"
	"cellserver/internal/store"
	"cellserver/internal/window"
)

// stateOf returns a state that ends after an instant: a log or leases have n parts.
func stateOf(kind limit.Kind, n int, now int64) *form.State {
	s := &form.State{Kind: kind}
	end := now + 1e9*int64(1+n%7)
	switch kind {
	case limit.Throttle:
		s.TAT = end
	case limit.SlidingLog:
		s.Log = window.Log{Until: end, End: end}
		for i := range n {
			s.Entries = append(s.Entries, window.Entry{At: now + int64(i), Total: uint64(i + 1)})
		}
	case limit.Quota:
		s.Cycle = calendar.Every(time.Second)
		s.Quota = window.Calendar{Used: int64(n), End: s.Cycle.End(end)}
	case limit.Standing:
		s.Standing.Ban = standing.Term{Until: end, Reason: strings.Repeat("r", min(n, standing.MaxReason))}
	case limit.Lease:
		for i := range n {
			s.Leases = append(s.Leases, lease.Lease{Holder: fmt.Sprintf("h%05d", i), Quantity: 2, End: end + int64(i)})
		}
	default:
		s.Plain = limit.State{Numbers: [limit.MaxNumbers]int64{now, int64(n)}, End: end}
		for i := 2; i < kind.Plain().Stored(); i++ {
			s.Plain.Numbers[i] = 1
		}
		s.Plain.End += s.Plain.End - now
	}
	return s
}

var formKinds = append(takers[:len(takers):len(takers)], limit.Lease, limit.Standing)

// States and values of all sizes replace each other in a few keys, with and without memory. A key
// always has the content that was last written without an error, and the store stays consistent.
func TestReplacedStates(t *testing.T) {
	racetest.HasOneGoroutine(t)
	t.Parallel()
	const seed, steps = 3, 20_000
	random := rand.New(rand.NewPCG(seed, seed))
	w := newTwin(t)
	full := 0
	want := map[string]string{}
	for i := range steps {
		now := w.clock.Now()
		key := fmt.Sprint("key", random.IntN(40)) + strings.Repeat("k", []int{0, 200, 400, 800, 5000}[random.IntN(5)])
		n := 1 + random.IntN([]int{3, 60, 700}[random.IntN(3)])
		view := w.view
		if random.IntN(3) == 0 {
			view = view.WithoutGrowth()
		}
		if random.IntN(5) == 0 {
			value := strings.Repeat("v", n)
			require.NoError(t, w.view.Write(background, []byte(key), store.Value{Bytes: []byte(value)}, store.Never))
			want[key] = ""
			continue
		}
		state := stateOf(formKinds[random.IntN(len(formKinds))], n, now)
		require.NoError(t, state.Check())
		if err := view.WriteForm(background, []byte(key), state); err == nil {
			want[key] = string(form.Append(nil, state))
		} else {
			require.Equal(t, store.ErrFull, err)
			full++
		}
		got, _, err := view.ReadForm(background, []byte(key), nil)
		require.NoError(t, err)
		require.Equal(t, want[key], string(got))
		if i%100 == 0 {
			require.NoError(t, w.memory.check())
		}
	}
	require.NoError(t, w.memory.check())
	require.NoError(t, w.view.FlushAll(background))
	require.NoError(t, w.memory.check())
	require.Greater(t, full, steps/20)
}

// With few page numbers left, a state that does not fit leaves the key as it was.
func TestStatesWhenPagesAreShort(t *testing.T) {
	w := newTwin(t)
	m := New(Options{Clock: w.clock, SweepEvery: -1, MaxPages: 4})
	v := m.newView()
	full := 0
	for i := range 20_000 {
		key := []byte(fmt.Sprint("key", i%4000))
		state := stateOf(formKinds[i%len(formKinds)], 1+i%40, w.clock.Now())
		before, _, err := v.ReadForm(background, key, nil)
		require.NoError(t, err)
		err = v.WriteForm(background, key, state)
		after, _, _ := v.ReadForm(background, key, nil)
		if err != nil {
			require.Equal(t, store.ErrFull, err)
			require.Equal(t, string(before), string(after))
			full++
		} else {
			require.Equal(t, string(form.Append(nil, state)), string(after))
		}
	}
	require.NoError(t, m.check())
	require.Greater(t, full, 1000)
}

// Small states are read and written without allocation.
func TestStatesAllocateNothing(t *testing.T) {
	m := New(Options{Clock: store.NewStillClock(1e18), SweepEvery: -1})
	v, buffer := m.View(), make([]byte, 0, 4096)
	for _, kind := range formKinds[:5] {
		key, state := []byte("a key"), stateOf(kind, 3, v.Now())
		require.Zero(t, testing.AllocsPerRun(100, func() {
			require.NoError(t, v.WriteForm(background, key, state))
			buffer, _, _ = v.ReadForm(background, key, buffer[:0])
		}), "%c", kind)
		require.Equal(t, form.Append(nil, state), buffer)
	}
}

// The lock is held for copies: the number of bytes that are copied under it is bounded by the size
// of the state.
func TestLargeStatesAreEncodedWithoutTheLock(t *testing.T) {
	w := newTwin(t)
	key, state := []byte("a key"), stateOf(limit.SlidingLog, 100_000, w.clock.Now())
	require.NoError(t, w.view.WriteForm(background, key, state))
	require.Zero(t, w.memory.Usage()[0].Copied)
	_, _, err := w.view.ReadForm(background, key, nil)
	require.NoError(t, err)
	require.Equal(t, int64(100_000*entryBytes), w.memory.Usage()[0].Copied)
}

// restore replaces a log, or the leases of a key, by others.
func (r *trackingRig) restore(db *modelContent) {
	const never = 1e17
	key, kind := fmt.Sprint("log:", r.random.IntN(many)), limit.SlidingLog
	if r.random.IntN(2) == 0 {
		key, kind = fmt.Sprint("leases:", r.random.IntN(many)), limit.Lease
	}
	state := stateOf(kind, 1+r.random.IntN(100), r.view.Now())
	state.Log.End += never
	for i := range state.Leases {
		state.Leases[i].End += never
	}
	require.NoError(r, r.view.WriteForm(background, []byte(key), state))
	db.now[key] = read(r.T, r.view, key)
}
