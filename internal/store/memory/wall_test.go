package memory

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/calendar"
	"cellserver/internal/form"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/racetest"
	"cellserver/internal/store"
	"cellserver/internal/window"
)

// plainQuota is a calendar quota in the model: what was used until the end of a window, in Unix
// time.
type plainQuota struct{ used, end int64 }

// quotaTwin makes calls of calendar quotas on a store and on a map, while the wall clock is set
// back and forth.
type quotaTwin struct {
	*testing.T
	random *rand.Rand
	clock  *store.StillClock
	store  *Store
	view   store.View
	latest int64 // the latest Unix time that the wall clock has shown
	model  map[string]plainQuota
	limit  int64
}

func newQuotaTwin(t *testing.T, seed uint64) *quotaTwin {
	clock := store.NewStillClock(1_764_000_000e9)
	w := &quotaTwin{
		T: t, random: rand.New(rand.NewPCG(seed, 0)), clock: clock, store: New(Options{Clock: clock, SweepEvery: -1}),
		model: map[string]plainQuota{}, limit: 5,
	}
	w.view = w.store.View()
	return w
}

// unix is the Unix time by the wall clock.
func (w *quotaTwin) unix() int64 { return w.clock.Now() + w.clock.Offset() }

// set sets the wall clock by some hours, and usually back to where it was.
func (w *quotaTwin) set(offset time.Duration) {
	now, before := w.clock.Now(), w.clock.Offset()
	w.store.wall.unix(now) // the clocks were compared now
	w.clock.SetOffset(offset)
	w.clock.Advance(time.Millisecond)
	if int64(offset) < before {
		w.latest = max(w.latest, now+wallInterval+before)
	}
}

// pass makes time pass, and sometimes sets the wall clock.
func (w *quotaTwin) pass() {
	w.clock.Advance(time.Duration(w.random.Int64N(int64(time.Hour))))
	w.store.wall.unix(w.clock.Now())
	w.latest = max(w.latest, w.unix())
	if w.random.IntN(6) == 0 {
		w.set(time.Duration(w.random.IntN(5)-2) * 7 * time.Hour / 2)
	}
	w.latest = max(w.latest, w.unix())
	w.view.Begin()
	if w.random.IntN(4) == 0 {
		w.store.Sweep()
	}
}

// cycleOf returns the windows of a key, and their length: hours and days in UTC, and a period.
func cycleOf(key int) (c calendar.Cycle, length time.Duration) {
	switch key % 3 {
	case 0:
		c, _ = calendar.In(calendar.Hour, []byte("UTC"))
		return c, time.Hour
	case 1:
		c, _ = calendar.In(calendar.Day, []byte("UTC"))
		return c, 24 * time.Hour
	}
	return calendar.Every(7 * time.Minute), 7 * time.Minute
}

// live returns the model's quota of a key, in its present window.
func (w *quotaTwin) live(key int) (q plainQuota, exists bool) {
	q, exists = w.model[fmt.Sprint(key)]
	if !exists || q.end <= w.latest {
		_, length := cycleOf(key)
		return plainQuota{end: (w.latest/int64(length) + 1) * int64(length)}, false
	}
	return q, true
}

// call makes a call, and compares the decision.
func (w *quotaTwin) call(key int, quantity int64, mode quota.Mode) {
	name, rule := fmt.Sprint(key), &limit.Rule{Kind: limit.Quota}
	rule.Window, _ = window.NewCalendarLimit(w.limit)
	rule.Cycle, _ = cycleOf(key)
	got, err := w.view.Take(context.Background(), []byte(name), rule, quantity, mode)
	require.NoError(w, err)
	q, _ := w.live(key)
	left := max(w.limit-q.used, 0)
	taken := quantity
	switch {
	case quantity < 0:
		taken = max(quantity, -q.used)
	case quantity > 0 && mode == quota.UpTo:
		taken = min(quantity, left)
	case quantity > w.limit-q.used && mode != quota.Force:
		taken = 0
	}
	limited := quantity >= 0 && (quantity > w.limit-q.used && (mode != quota.UpTo || quantity == 0 || left == 0))
	q.used += taken
	reset := q.end - w.unix()
	if q.used == 0 {
		reset = 0
	}
	require.Equal(w, []any{limited, taken, max(w.limit-q.used, 0), reset},
		[]any{got.Limited, got.Taken, got.Remaining, got.ResetAfter}, "%s: %d, mode %d", name, quantity, mode)
	switch {
	case mode == quota.Peek:
	case q.used == 0:
		delete(w.model, name)
	default:
		w.model[name] = q
	}
}

// compare compares all keys, and tries one as a key of another kind.
func (w *quotaTwin) compare(keys int) {
	found := map[string]store.Entry{}
	for cursor, more := uint64(0), true; more; more = cursor != 0 {
		cursor, _ = w.view.Scan(context.Background(), cursor, 100, func(key []byte, e store.Entry) { found[string(key)] = e })
	}
	for key := range keys {
		name, want := fmt.Sprint(key), store.Entry{}
		if q, exists := w.live(key); exists {
			want = store.Entry{Kind: limit.Quota, Expires: q.end - w.clock.Offset()}
		}
		require.Equal(w, want, found[name], name)
		e, err := w.view.Lookup(context.Background(), []byte(name))
		require.NoError(w, err)
		require.Equal(w, want, e, name)
		_, err = w.view.Throttle(context.Background(), []byte(name), sixteenAMinute, 1, quota.Peek)
		require.Equal(w, want.Kind == limit.Quota, err == store.ErrWrongKind, name)
	}
}

// Whatever the wall clock does, a key has the count of the window that contains the latest time
// that the wall clock has shown, and times to wait count from the time that it shows now.
func TestQuotasWhileTheWallClockIsSet(t *testing.T) {
	racetest.HasOneGoroutine(t)
	t.Parallel()
	const keys = 9
	for seed := range uint64(8) {
		w := newQuotaTwin(t, seed)
		for range 400 {
			w.pass()
			w.call(w.random.IntN(keys), w.random.Int64N(9)-2, quota.Mode(w.random.IntN(4)))
			w.compare(keys)
			require.NoError(t, w.store.check())
		}
	}
}

// Compared with the store's clock, the wall clock is at most a millisecond late, does not follow
// differences of a millisecond, and does not run back.
func TestWallClock(t *testing.T) {
	clock := store.NewStillClock(1e18)
	clock.SetOffset(5 * time.Second)
	w := newWallClock(clock)
	require.Equal(t, int64(1e18+5e9), w.unix(clock.Now()))
	clock.SetOffset(time.Minute)
	require.Equal(t, int64(1e18+5e9+1e6-1), w.unix(1e18+1e6-1), "it has not been compared yet")
	require.Equal(t, int64(1e18+60e9+1e6), w.unix(1e18+1e6))
	clock.SetOffset(time.Minute - time.Millisecond)
	require.Equal(t, int64(1e18+60e9+2e6), w.unix(1e18+2e6), "rounding")
	clock.SetOffset(0)
	require.Equal(t, int64(1e18+3e6), w.unix(1e18+3e6))
	require.Equal(t, int64(1e18+60e9+3e6), w.latest(1e18+3e6), "it stands still")
	require.Equal(t, int64(1e18+60e9+3e6), w.latest(1e18+60e9))
	require.Equal(t, int64(1e18+61e9), w.latest(1e18+61e9), "it has caught up")
}

// The expiry of a quota on the store's clock never overflows, and is never the expiry of a key that
// lasts.
func TestFarEndsOfQuotas(t *testing.T) {
	for _, offset := range []time.Duration{0, 1, -1, math.MaxInt64 / 2, -math.MaxInt64 / 2} {
		clock := store.NewStillClock(1e18)
		m := New(Options{Clock: clock, SweepEvery: -1})
		clock.SetOffset(offset)
		clock.Advance(time.Millisecond)
		v := m.View()
		end := int64(math.MaxInt64)
		c, _ := calendar.In(calendar.Year, []byte("UTC"))
		state := &form.State{Kind: limit.Quota, Quota: window.Calendar{Used: 1, End: end}, Cycle: c}
		require.NoError(t, v.WriteForm(background, []byte("key"), state))
		e, err := v.Lookup(background, []byte("key"))
		require.NoError(t, err)
		require.Equal(t, limit.Quota, e.Kind)
		require.Greater(t, e.Expires, clock.Now())
		require.Less(t, e.Expires, store.Never)
	}
}

// A call of a quota allocates nothing, neither on a key that exists nor when its window begins.
func TestQuotasAllocateNothing(t *testing.T) {
	clock := store.NewStillClock(1e18)
	m := New(Options{Clock: clock, SweepEvery: -1})
	v, key := m.View(), []byte("a key")
	for _, cycle := range []string{"DAY", "a period"} {
		rule := &limit.Rule{Kind: limit.Quota, Cycle: calendar.Every(time.Second)}
		if cycle == "DAY" {
			rule.Cycle, _ = calendar.In(calendar.Day, []byte("America/Havana"))
		}
		rule.Window, _ = window.NewCalendarLimit(1000)
		_, err := v.Take(background, key, rule, 1, quota.Take)
		require.NoError(t, err)
		require.Zero(t, testing.AllocsPerRun(100, func() {
			clock.Advance(10 * time.Millisecond)
			v.Begin()
			_, _ = v.Take(background, key, rule, 1, quota.Take)
		}), cycle)
		v.Delete(background, [][]byte{key})
	}
}

// Entries of a pass have the end of a window in Unix time, so a load after the wall clock was set
// finds what has ended by then.
func TestQuotasAreLoadedByTheWallClock(t *testing.T) {
	for offset, loaded := range map[time.Duration]int{0: 3, time.Hour: 2, 25 * time.Hour: 1, -50 * time.Hour: 3} {
		w := newQuotaTwin(t, 1)
		w.clock.Advance(22*time.Hour + 30*time.Minute - time.Duration(w.clock.Now()%int64(24*time.Hour)))
		w.view.Begin()
		w.store.TrackChanges()
		w.latest = w.unix()
		w.call(0, 1, quota.Take) // hours
		w.call(1, 2, quota.Take) // days
		year, _ := calendar.In(calendar.Year, []byte("Asia/Tokyo"))
		rule := &limit.Rule{Kind: limit.Quota, Cycle: year}
		rule.Window, _ = window.NewCalendarLimit(5)
		_, err := w.view.Take(background, []byte("year"), rule, 3, quota.Take)
		require.NoError(t, err)
		w.clock.SetOffset(offset)
		m := New(Options{Clock: w.clock, SweepEvery: -1})
		loader := m.Load()
		require.NoError(t, w.store.Pass(loader.Apply))
		require.NoError(t, loader.Done())
		size, err := m.View().Size(background)
		require.NoError(t, err)
		require.Equal(t, loaded, size, offset)
		d, err := m.View().Take(background, []byte("year"), rule, 0, quota.Take)
		require.NoError(t, err)
		require.Equal(t, int64(2), d.Remaining)
	}
}
