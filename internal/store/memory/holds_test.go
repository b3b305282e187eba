package memory

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/calendar"
	"cellserver/internal/gcra"
	"cellserver/internal/hold"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/racetest"
	"cellserver/internal/store"
	"cellserver/internal/window"
)

// holdRig makes holds in a store.
type holdRig struct {
	*testing.T
	clock *store.StillClock
	store *Store
	view  *view
}

func newHoldRig(t *testing.T, o Options) *holdRig {
	clock := store.NewStillClock(1e18)
	o.Clock, o.SweepEvery = clock, -1
	m := New(o)
	t.Cleanup(func() { _ = m.Close() })
	return &holdRig{t, clock, m, m.newView()}
}

var heldRules = func() (rules []limit.Rule) {
	throttle, _ := gcra.NewLimit(19, 20, quota.Seconds(10))
	windowed, _ := window.NewLimit(20, quota.Seconds(10))
	log, _ := window.NewLogLimit(20, quota.Seconds(10), 100)
	daily, _ := window.NewCalendarLimit(20)
	return []limit.Rule{{Kind: limit.Throttle, Throttle: throttle}, {Kind: limit.Fixed, Window: windowed},
		{Kind: limit.Sliding, Window: windowed}, {Kind: limit.SlidingLog, Log: log},
		{Kind: limit.Quota, Window: daily, Cycle: calendar.Every(20 * time.Second)}}
}()

// hold makes a call with HOLD, and returns the quantity that it took.
func (r *holdRig) hold(key, id string, rule limit.Rule, quantity int64, ttl time.Duration) int64 {
	r.view.Begin()
	requests := []store.LimitRequest{{Key: []byte(key), Rule: rule, Quantity: quantity, Held: true}}
	decisions, _, err := r.view.Once(background, &store.Once{
		Keys: [][]byte{[]byte(key)}, HoldTime: ttl,
		Token: store.Token{ID: []byte(id), Words: [16]byte{byte(quantity)}, TTL: time.Second},
		Decide: func(v store.View) ([]quota.Decision, bool, error) {
			return v.TakeAll(background, requests, quota.UpTo)
		},
		Takes: func(store.View) (bool, error) { return true, nil },
	})
	require.NoError(r, err)
	return decisions[0].Taken
}

func (r *holdRig) settle(key, id string, rule limit.Rule, quantity int64) (quota.Decision, error) {
	r.view.Begin()
	decisions, err := r.view.Settle(background, &store.Settlement{Key: []byte(key), ID: []byte(id), Quantity: quantity,
		Requests: []store.LimitRequest{{Key: []byte(key), Rule: rule, Quantity: quantity}}, Remember: time.Second})
	if err != nil {
		return quota.Decision{}, err
	}
	return decisions[0], nil
}

func (r *holdRig) take(key string, rule limit.Rule, quantity int64, mode quota.Mode) int64 {
	r.view.Begin()
	if rule.Kind == limit.Throttle {
		o, err := r.view.Throttle(background, []byte(key), rule.Throttle, quantity, mode)
		require.NoError(r, err)
		return o.Taken
	}
	d, err := r.view.Take(background, []byte(key), &rule, quantity, mode)
	require.NoError(r, err)
	return d.Taken
}

func (r *holdRig) ids(key string) (ids []string) {
	r.view.Begin()
	holds, err := r.view.Holds(background, []byte(key), store.MaxHoldsPerKey)
	require.NoError(r, err)
	for _, h := range holds {
		ids = append(ids, h.ID)
	}
	return ids
}

// counters returns the counters of a key, the newest first, with their levels.
func (r *holdRig) counters(key string, rule *limit.Rule) (list []hold.Counter, levels map[hold.Counter]int64) {
	h := r.store.hash([]byte(key))
	s := &r.store.createDatabase(r.view.selected).shards[h.shard]
	at := keySlot{hash: h, key: []byte(key)}
	at.record, at.position = s.find(h, at.key)
	if at.live = at.record != nil && !s.isExpired(at.record.expires(), s.advance(r.clock.Now())); !at.live {
		return []hold.Counter{{}}, nil
	}
	c, _, _, _ := s.newestCounter(at.record, rule)
	list = append(list, c)
	switch rule.Kind {
	case limit.Sliding:
		list = append(list, hold.Counter{At: c.At - c.Span, Span: c.Span})
	case limit.SlidingLog:
		list = nil
		for i := s.logEntries(at.record).Len() - 1; i >= 0; i-- {
			list = append(list, hold.Counter{At: s.logEntries(at.record).At(i).At})
		}
	}
	levels = map[hold.Counter]int64{}
	for _, c := range list {
		levels[c] = s.levelOf(&at, rule, c)
	}
	return list, levels
}

// heldEvent is the quantity that a call took from the first of its counters, or gave back to its
// counters in this order.
type heldEvent struct {
	now      int64
	counters []hold.Counter
	amount   int64
}

// recompute returns the levels after events.
func recompute(events []heldEvent, now int64, decays bool) map[hold.Counter]int64 {
	levels, last := map[hold.Counter]int64{}, int64(0)
	fall := func(to int64) {
		if decays {
			levels[hold.Counter{}] = max(levels[hold.Counter{}]-(to-last), 0)
			last = to
		}
	}
	for _, e := range events {
		if fall(e.now); e.amount >= 0 {
			levels[e.counters[0]] += e.amount
			continue
		}
		left := -e.amount
		for _, c := range e.counters {
			some := min(left, levels[c])
			levels[c] -= some
			left -= some
		}
	}
	fall(now)
	return levels
}

// heldHistory is a random history of calls on one key.
type heldHistory struct {
	*holdRig
	*rand.Rand
	rule   limit.Rule
	unit   int64
	events []heldEvent
	open   map[string]int   // the events of open holds
	taken  map[string]int64 // and the quantities that they took
	gave   bool
}

// call makes a random call. A hold that it makes has the id.
func (h *heldHistory) call(id string) {
	h.clock.Advance(time.Duration(h.Int64N(int64(2 * time.Second))))
	switch choice := h.IntN(8); {
	case choice < 3:
		if n := h.hold("key", id, h.rule, 1+h.Int64N(8), time.Minute); n > 0 {
			h.took(n)
			h.open[id], h.taken[id] = len(h.events)-1, n
		}
	case choice == 3:
		if n := h.take("key", h.rule, 1+h.Int64N(3), quota.Take); n > 0 {
			h.took(n)
		}
	case choice == 4:
		counters, _ := h.counters("key", &h.rule)
		n := 1 + h.Int64N(4)
		h.take("key", h.rule, -n, quota.Take)
		h.events = append(h.events, heldEvent{h.clock.Now(), counters, -n * h.unit})
	case len(h.open) > 0:
		ids := slices.Sorted(maps.Keys(h.open))
		h.settleOne(ids[h.IntN(len(ids))])
	}
}

// took adds what a call has taken from the newest counter.
func (h *heldHistory) took(n int64) {
	counters, _ := h.counters("key", &h.rule)
	h.events = append(h.events, heldEvent{h.clock.Now(), counters[:1], n * h.unit})
}

func (h *heldHistory) settleOne(id string) {
	actual := h.Int64N(h.taken[id] + 2)
	d, err := h.settle("key", id, h.rule, actual)
	require.NoError(h, err)
	h.gave = h.gave || d.Taken < 0
	h.events[h.open[id]].amount = min(actual, h.taken[id]) * h.unit
	if actual > h.taken[id] {
		h.took(1)
	}
	delete(h.open, id)
}

// A key has at least as much charged as if the actual quantities of its settled holds had been taken at
// first.
func TestHoldsGiveBackNoMore(t *testing.T) {
	gave := map[limit.Kind]bool{}
	for seed := range uint64(300) {
		h := &heldHistory{holdRig: newHoldRig(t, Options{Databases: 1}), Rand: rand.New(rand.NewPCG(seed, 2)),
			rule: heldRules[seed%uint64(len(heldRules))], unit: 1, open: map[string]int{}, taken: map[string]int64{}}
		decays := h.rule.Kind == limit.Throttle
		if decays {
			h.unit = int64(h.rule.Throttle.EmissionInterval())
		}
		for i := range 40 {
			h.call(fmt.Sprint(i))
			_, levels := h.counters("key", &h.rule)
			for c, want := range recompute(h.events, h.clock.Now(), decays) {
				if level, live := levels[c]; live && level > 0 || decays {
					require.GreaterOrEqual(t, level, want, "seed %d, step %d, %v", seed, i, c)
				}
			}
			require.Len(t, h.ids("key"), len(h.open))
		}
		gave[h.rule.Kind] = gave[h.rule.Kind] || h.gave
	}
	require.Len(t, gave, len(heldRules))
	require.NotContains(t, slices.Collect(maps.Values(gave)), false)
}

// Holds are in passes and in snapshots with the state of their keys.
func TestHoldsAreLoaded(t *testing.T) {
	racetest.HasOneGoroutine(t)
	for seed := range uint64(4) {
		random := rand.New(rand.NewPCG(seed, 3))
		r := newHoldRig(t, Options{Databases: 2})
		r.store.TrackChanges()
		var journal [][]byte
		keep := func(chunk []byte) error {
			journal = append(journal, slices.Clone(chunk))
			return nil
		}
		for round := range 12 {
			for step := range 30 {
				r.randomStep(random, fmt.Sprint(round, ".", step))
			}
			if round%5 == 4 {
				require.NoError(t, r.store.Snapshot(keep))
			}
			require.NoError(t, r.store.Pass(keep))
			loaded := newHoldRig(t, Options{Databases: 2})
			loaded.clock.Advance(time.Duration(r.clock.Now() - loaded.clock.Now()))
			l := loaded.store.Load()
			for _, chunk := range journal {
				require.NoError(t, l.Apply(chunk))
			}
			require.NoError(t, l.Done())
			for n := range 10 {
				key := fmt.Sprint("key", n)
				require.Equal(t, r.ids(key), loaded.ids(key), key)
				require.Equal(t, r.book(key), loaded.book(key), key)
				require.Equal(t, r.remaining(key, heldRules[n%5]), loaded.remaining(key, heldRules[n%5]), key)
			}
			require.Equal(t, r.store.Holds().Open, loaded.store.Holds().Open)
		}
	}
}

// randomStep makes a random call on one of ten keys. A hold that it makes has the id.
func (r *holdRig) randomStep(random *rand.Rand, id string) {
	r.clock.Advance(time.Duration(random.Int64N(int64(time.Second))))
	n := random.IntN(10)
	rule, key := heldRules[n%5], fmt.Sprint("key", n)
	switch random.IntN(8) {
	case 0, 1, 2:
		r.hold(key, id, rule, 1+random.Int64N(4), time.Duration(1+random.IntN(30))*time.Second)
	case 3, 4:
		if ids := r.ids(key); len(ids) > 0 {
			_, err := r.settle(key, ids[0], rule, random.Int64N(5))
			require.NoError(r, err)
		}
	case 5:
		r.take(key, rule, -2, quota.Take)
	case 6:
		_, _ = r.view.Delete(background, [][]byte{[]byte(key)})
	default:
		r.take(key, rule, 1, quota.Take)
	}
}

func (r *holdRig) book(key string) string {
	h := r.store.hash([]byte(key))
	s := &r.store.createDatabase(r.view.selected).shards[h.shard]
	if k := s.held(h, []byte(key), r.clock.Now()); k.record != nil {
		return string(k.Append(nil))
	}
	return ""
}

func (r *holdRig) remaining(key string, rule limit.Rule) int64 {
	r.view.Begin()
	d, err := r.view.Take(background, []byte(key), &rule, 0, quota.Peek)
	require.NoError(r, err)
	return d.Remaining
}

// If there are too many holds, the hold that ends first lapses before its time.
func TestTooManyHolds(t *testing.T) {
	r, rule := newHoldRig(t, Options{Databases: 1, MaxHolds: 3}), heldRules[1]
	for i, ttl := range []time.Duration{50, 10, 40, 30} {
		require.EqualValues(t, 1, r.hold(fmt.Sprint("key", i), "id", rule, 1, ttl*time.Second))
	}
	require.Equal(t, store.HoldCounts{Open: 3, Early: 1}, r.store.Holds())
	require.Empty(t, r.ids("key1"))
	_, err := r.settle("key1", "id", rule, 0)
	require.ErrorIs(t, err, store.ErrLapsed)
	r.clock.Advance(35 * time.Second)
	r.store.Sweep()
	require.Equal(t, store.HoldCounts{Open: 2, Early: 1, Lapsed: 1}, r.store.Holds())
	books := 0
	for i := range r.store.database(0).shards {
		books += r.store.database(0).shards[i].holds.len()
	}
	require.Equal(t, 2, books)

	many := newHoldRig(t, Options{Databases: 1})
	large := heldRules[1]
	large.Window, _ = window.NewLimit(1e6, quota.Seconds(100))
	for i := range store.MaxHoldsPerKey + 1 {
		require.EqualValues(t, 1, many.hold("key", fmt.Sprint(i), large, 1, time.Duration(2000-i)*time.Second))
	}
	require.Equal(t, store.HoldCounts{Open: store.MaxHoldsPerKey, Early: 1}, many.store.Holds())
	require.NotContains(t, many.ids("key"), fmt.Sprint(store.MaxHoldsPerKey))
}

// Holds go with their keys and databases.
func TestHoldsGoWithTheirKeys(t *testing.T) {
	rule := heldRules[1]
	r := newHoldRig(t, Options{Databases: 2})
	open := func(want int) {
		t.Helper()
		require.Equal(t, want, r.store.Holds().Open)
	}
	r.hold("moved", "id", rule, 3, time.Minute)
	_, err := r.view.Transfer(background, store.KeyRef{Key: []byte("moved")}, store.KeyRef{Database: 1, Key: []byte("to")},
		store.Transfer{})
	require.NoError(t, err)
	require.Empty(t, r.ids("moved"))
	r.view.Select(1)
	require.Equal(t, []string{"id"}, r.ids("to"))
	require.NoError(t, r.view.Swap(background, 0, 1))
	require.Empty(t, r.ids("to"))
	r.view.Select(0)
	d, err := r.settle("to", "id", rule, 1)
	require.NoError(t, err)
	require.EqualValues(t, -2, d.Taken)
	open(0)
	for _, remove := range []func(){
		func() { _, _ = r.view.Delete(background, [][]byte{[]byte("key")}) },
		func() {
			require.NoError(t, r.view.Write(background, []byte("key"), store.Value{Bytes: []byte("x")}, store.Never))
			_, _ = r.view.Delete(background, [][]byte{[]byte("key")})
		},
		func() { require.NoError(t, r.view.Flush(background)) },
		func() {
			_, err := r.view.Transfer(background, store.KeyRef{Key: []byte("to")}, store.KeyRef{Key: []byte("key")},
				store.Transfer{Copy: true, Replace: true})
			require.NoError(t, err)
			_, _ = r.view.Delete(background, [][]byte{[]byte("key")})
		},
	} {
		r.take("to", rule, 1, quota.Take)
		r.hold("key", "id", rule, 3, time.Minute)
		open(1)
		remove()
		require.Empty(t, r.ids("key"))
		open(0)
		r.clock.Advance(2 * time.Second)
	}
}

// While memory is short, no hold is made, and existing holds can be settled.
func TestHoldsWhileMemoryIsShort(t *testing.T) {
	r, rule := newHoldRig(t, Options{Databases: 1}), heldRules[1]
	r.hold("key", "id", rule, 3, time.Minute)
	r.hold("gone", "id", heldRules[0], 3, time.Minute)
	r.clock.Advance(20 * time.Second) // the bucket is full again, and its record gone
	r.view = r.view.WithoutGrowth().(*view)
	_, _, err := r.view.Once(background, &store.Once{
		Keys: [][]byte{[]byte("key")}, HoldTime: time.Minute, Token: store.Token{ID: []byte("other"), TTL: time.Second},
		Takes: func(store.View) (bool, error) { return true, nil },
	})
	require.ErrorIs(t, err, store.ErrFull)
	d, err := r.settle("gone", "id", heldRules[0], 5)
	require.NoError(t, err)
	require.EqualValues(t, 2, d.Taken)
	_, err = r.settle("key", "id", rule, 1)
	require.NoError(t, err)
	require.Zero(t, r.store.Holds().Open)
}

// For a limit that a policy got after the hold, a settlement charges only an excess.
func TestSettlementsOfOtherLimits(t *testing.T) {
	r, rule := newHoldRig(t, Options{Databases: 1}), heldRules[1]
	for _, c := range []struct{ actual, old, added int64 }{{3, -2, 0}, {5, 0, 0}, {7, 2, 2}} {
		r.hold("key", fmt.Sprint(c.actual), rule, 5, time.Minute)
		decisions, err := r.view.Settle(background, &store.Settlement{Key: []byte("key"), ID: fmt.Append(nil, c.actual),
			Quantity: c.actual, Remember: time.Second,
			Requests: []store.LimitRequest{{Key: []byte("key"), Rule: rule, Quantity: c.actual},
				{Key: []byte("added"), Rule: rule, Quantity: c.actual}}})
		require.NoError(t, err)
		require.Equal(t, []int64{c.old, c.added}, []int64{decisions[0].Taken, decisions[1].Taken}, c)
		r.clock.Advance(11 * time.Second)
	}
}

// The holds of a key that is renamed while the sweep looks for it still lapse in time.
func TestHoldsOfRenamedKeysLapse(t *testing.T) {
	r, rule := newHoldRig(t, Options{Databases: 2}), heldRules[1]
	for i, to := range []store.KeyRef{{Key: []byte("to")}, {Database: 1, Key: []byte("to")}} {
		r.hold("from", fmt.Sprint(i), rule, 1, 5*time.Second)
		r.clock.Advance(6 * time.Second) // the window lasts longer than the hold
		first := r.store.holds.next(r.clock.Now())
		_, err := r.view.Transfer(background, store.KeyRef{Key: []byte("from")}, to, store.Transfer{Replace: true})
		require.NoError(t, err)
		r.store.endFirst(r.clock.Now(), first)
		r.store.Sweep()
		require.Equal(t, store.HoldCounts{Lapsed: int64(i + 1)}, r.store.Holds())
	}
	for n := range 2 {
		for i := range r.store.database(n).shards {
			require.Zero(t, r.store.database(n).shards[i].holds.len())
		}
	}
}

// A transaction that makes too many holds leaves only the maximum number, whatever their keys are.
func TestTooManyHoldsOfATransaction(t *testing.T) {
	r, rule := newHoldRig(t, Options{Databases: 1, MaxHolds: 3}), heldRules[1]
	r.hold("other", "first", rule, 1, time.Second)
	var refs []store.KeyRef
	for n := range 500 {
		refs = append(refs, store.KeyRef{Key: fmt.Append(nil, "key", n%50)})
	}
	require.NoError(t, r.view.Atomically(background, refs, false, func() error {
		for n := range refs {
			r.hold(string(refs[n].Key), fmt.Sprint(n), rule, 1, time.Duration(10+n)*time.Second)
		}
		return nil
	}))
	require.Equal(t, store.HoldCounts{Open: 3, Early: 498}, r.store.Holds())
	var left []string
	for n := range 50 {
		left = append(left, r.ids(fmt.Sprint("key", n))...)
	}
	require.Equal(t, []string{"497", "498", "499"}, left)
}

// A book takes memory for open holds, and not for settled holds.
func TestSettledHoldsTakeNoMemory(t *testing.T) {
	r, rule := newHoldRig(t, Options{Databases: 1}), heldRules[3]
	rule.Log, _ = window.NewLogLimit(4000, quota.Seconds(1000), 4000)
	for n := range store.MaxHoldsPerKey {
		r.clock.Advance(1)
		r.hold("key", fmt.Sprint(n), rule, 1, time.Minute)
	}
	for n := range store.MaxHoldsPerKey - 1 {
		_, err := r.settle("key", fmt.Sprint(n), rule, 1)
		require.NoError(t, err)
	}
	s := &r.store.database(0).shards[r.store.hash([]byte("key")).shard]
	require.LessOrEqual(t, s.holds.pages.slotSize(s.holds.order[0]), 128)
}

// A shard that has no holds any more keeps at most its index and one page, however many there were and whatever their
// size was. A hold that is made again and again takes no other memory.
func TestShardsWithoutHoldsKeepLittle(t *testing.T) {
	r, rule := newHoldRig(t, Options{Databases: 1}), heldRules[1]
	rule.Window, _ = window.NewLimit(1e6, quota.Seconds(100))
	keys := inOneShard(r.view, "key", 3)
	s := &r.store.createDatabase(0).shards[r.store.hash([]byte(keys[0])).shard]
	for round := range 10 {
		for n := range 100 {
			for i, key := range keys[:1+round%3] {
				r.hold(key, fmt.Sprintf("%*d", 1+round*20, n), rule, 1, time.Duration(1+i)*time.Minute)
			}
		}
		for n := range 100 {
			for _, key := range keys[:1+round%3] {
				_, err := r.settle(key, fmt.Sprintf("%*d", 1+round*20, n), rule, 1)
				require.NoError(t, err)
			}
		}
		require.Zero(t, s.holds.len())
		require.LessOrEqual(t, s.holds.bytes(), int64(2*pageBytes+16*4))
	}
	index := s.holds.index.current.at(0)
	r.hold(keys[0], "a", rule, 1, time.Minute)
	_, err := r.settle(keys[0], "a", rule, 1)
	require.NoError(t, err)
	at := s.holds.spare
	require.NotZero(t, at)
	r.hold(keys[0], "b", rule, 1, time.Minute)
	require.Equal(t, at, s.holds.order[0])
	require.Same(t, index, s.holds.index.current.at(0))
}

// A harmful form of holds from a file is refused.
func TestHoldsOfDamagedFiles(t *testing.T) {
	r := newHoldRig(t, Options{Databases: 1})
	many := hold.Book{}
	for n := range store.MaxHoldsPerKey + 1 {
		many.Add(hold.Open{ID: fmt.Append(nil, n), Ends: 2e18}, 0, 0, 0, 0)
	}
	books := func(ids ...string) *hold.Book {
		var b hold.Book
		for _, id := range ids {
			b.Add(hold.Open{ID: []byte(id), Ends: 2e18}, 0, 0, 0, 0)
		}
		return &b
	}
	for name, form := range map[string][]byte{
		"too many":    many.Append(nil),
		"no id":       books("").Append(nil),
		"a long id":   books(string(make([]byte, store.MaxToken+1))).Append(nil),
		"an id twice": books("a", "a").Append(nil),
		"marks": append([]byte{2, 0, 13, 0, 2, 2, 1, 0, 0, 0, 1, 2, 0, 0, 0, 1, 1},
			books("a").Append(nil)[len(new(hold.Book).Append(nil)):]...),
	} {
		require.ErrorIs(t, r.view.WriteHolds([]byte("key"), form), hold.ErrForm, name)
	}
	require.Empty(t, r.view.HeldKeys())
	good := books("a")
	good.Add(hold.Open{ID: []byte("lapsed"), Ends: 1}, 0, 0, 0, 0)
	require.NoError(t, r.view.WriteHolds([]byte("key"), good.Append(nil)))
	require.Equal(t, []string{"a"}, r.ids("key"))
	require.Equal(t, [][]byte{[]byte("key")}, r.view.HeldKeys())
}
