package hold_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/gcra"
	"cellserver/internal/hold"
	"cellserver/internal/quota"
	"cellserver/internal/window"
)

// The model of this test is a history: what was taken, given back and refunded from which counter, and when. For each
// state of the real key, the model computes the whole history again, with the actual quantities of settled holds in
// place of their estimates. The real key must never have less charged than the model. Otherwise a hold would have
// given back more than if the actual quantity had been taken at first.

// event is an event of a history: a charge, or if it is negative a refund, in units of the level.
type event struct {
	now      int64
	counters []hold.Counter // of the key after a charge, before a refund
	amount   int64
}

// rules are the rules of holds, which faults change.
type rules struct {
	correct func(p *hold.Path, number uint64, c hold.Counter, d int64) int64
	decay   bool // apply before each event, on a key whose level decays
	fall    bool // apply after a refund
	forget  bool
}

var sound = rules{correct: (*hold.Path).Correct, decay: true, fall: true, forget: true}

type openHold struct {
	number         uint64
	counter        hold.Counter
	quantity, unit int64
	event          int // index in the history
}

// history plays random calls on a key.
type history struct {
	*rand.Rand
	rules
	key
	decays bool
	path   hold.Path
	open   []openHold
	events []event
	now    int64
	plain  bool  // a call was not seen
	given  int64 // by all corrections, in units of the level
}

// model returns the level of each counter by computing the whole history again.
func (h *history) model() map[hold.Counter]int64 {
	levels, before := map[hold.Counter]int64{}, int64(0)
	for _, e := range h.events {
		if h.decays {
			levels[hold.Counter{}] = max(levels[hold.Counter{}]-(e.now-before), 0)
			before = e.now
		}
		if e.amount >= 0 {
			levels[e.counters[0]] += e.amount
			continue
		}
		for c := range levels {
			if len(e.counters) > 0 && c.Span != e.counters[0].Span { // another period converted it
				levels[c] = 0
			}
		}
		left := -e.amount
		for _, c := range e.counters {
			some := min(left, levels[c])
			levels[c] -= some
			left -= some
		}
	}
	if h.decays {
		levels[hold.Counter{}] = max(levels[hold.Counter{}]-(h.now-before), 0)
	}
	return levels
}

func (h *history) begin() {
	if h.decays && h.decay {
		h.path.Decay(h.now)
	}
}

func (h *history) end() {
	if k, ok := h.key.(*throttle); ok {
		h.path.Last = k.tat
	}
}

func (h *history) take(n int64, mode quota.Mode) (taken int64) {
	if taken = h.step(h.now, n, mode); taken > 0 {
		h.events = append(h.events, event{h.now, h.counters(h.now)[:1], taken * h.unit()})
	}
	return taken
}

// call makes a random call.
func (h *history) call() {
	switch h.IntN(10) {
	case 0, 1, 2, 3:
		h.begin()
		if taken := h.take(h.Int64N(8)+1, quota.Mode(h.IntN(2)*2)); taken > 0 { // Take or UpTo
			c := h.counters(h.now)[0]
			number := h.path.Charge(c, h.level(h.now, c))
			h.open = append(h.open, openHold{number, c, taken, h.unit(), len(h.events) - 1})
			h.end()
		}
	case 4:
		h.plain = h.take(h.Int64N(4)+1, quota.Force*quota.Mode(h.IntN(2))) > 0 || h.plain
	case 5:
		h.refund(h.Int64N(5) + 1)
	case 6:
		if h.IntN(4) == 0 && len(h.open) > 0 {
			h.close(h.IntN(len(h.open))) // it lapses
		}
	default:
		if len(h.open) > 0 {
			h.settle(h.IntN(len(h.open)))
		}
	}
}

func (h *history) refund(n int64) {
	h.begin()
	counters := h.counters(h.now)
	h.step(h.now, -n, quota.Take)
	h.events = append(h.events, event{h.now, counters, -n * h.unit()})
	if h.fall {
		h.path.Fall(func(c hold.Counter) int64 { return h.level(h.now, c) })
	}
	h.end()
}

func (h *history) settle(i int) {
	o := h.open[i]
	actual := h.Int64N(o.quantity + 2)
	h.begin()
	if actual < o.quantity {
		h.events[o.event].amount = actual * o.unit
		if h.level(h.now, o.counter) > 0 {
			given := h.correct(&h.path, o.number, o.counter, (o.quantity-actual)*o.unit)
			h.giveBack(h.now, o.counter, given)
			h.given += given
		}
	}
	h.close(i)
	if actual > o.quantity {
		h.take(actual-o.quantity, quota.Force)
	}
	h.end()
}

func (h *history) close(i int) {
	o := h.open[i]
	h.open = append(h.open[:i:i], h.open[i+1:]...)
	if h.forget {
		h.path.Forget(o.number, o.counter)
	}
}

// check compares the key with the model.
func (h *history) check() string {
	for c, want := range h.model() {
		got := h.level(h.now, c)
		switch {
		case h.decays && got < want, !h.decays && got > 0 && got < want:
			return fmt.Sprintf("the level of %v is %d, and would be %d", c, got, want)
		case h.isExact() && got != want && (h.decays || got > 0):
			return fmt.Sprintf("the level of %v is %d, and not exactly %d", c, got, want)
		}
	}
	if len(h.path.Marks) > len(h.open) {
		return "there are marks of no open hold"
	}
	for i := range h.path.Marks {
		m, holds := &h.path.Marks[i], 0
		for _, o := range h.open {
			next := i+1 == len(h.path.Marks) || h.path.Marks[i+1].Counter != m.Counter || o.number < h.path.Marks[i+1].From
			if o.counter == m.Counter && o.number >= m.From && next {
				holds++
			}
		}
		switch {
		case m.Low < 0:
			return "a lowest level is negative"
		case h.forget && m.Holds != holds:
			return fmt.Sprintf("a mark of %d holds counts %d", holds, m.Holds)
		}
	}
	return ""
}

// isExact reports whether the level is known exactly: no marks have been joined, and if the level decays, no call
// was unseen.
func (h *history) isExact() bool {
	switch k := h.key.(type) {
	case *throttle:
		return !h.plain && h.path.Number <= hold.MaxMarks && k.limits[0] == k.limits[1]
	case *fixed, *calendar:
		return h.path.Number <= hold.MaxMarks
	}
	return false
}

func newHistory(random *rand.Rand, r rules) *history {
	h := &history{Rand: random, rules: r, now: 1e18}
	period := []quota.Period{quota.Seconds(1 + h.Int64N(20)), quota.Seconds(1 + h.Int64N(20))}
	if h.IntN(2) == 0 {
		period[1] = period[0]
	}
	size := 1 + h.Int64N(30)
	switch h.IntN(5) {
	case 0:
		k := &throttle{}
		for i := range k.limits {
			k.limits[i], _ = gcra.NewLimit(size-1, size, period[i])
		}
		h.key, h.decays = k, true
	case 1:
		h.key = &fixed{limits: h.windows(size, period)}
	case 2:
		h.key = &calendar{limits: h.windows(size, period), period: int64(h.windows(size, period)[0].Period())}
	case 3:
		h.key = &sliding{limits: h.windows(size, period)}
	default:
		k := &slidingLog{}
		for i := range k.limits {
			k.limits[i], _ = window.NewLogLimit(size+int64(i)*h.Int64N(2)*10, period[i], 1000)
		}
		h.key = k
	}
	return h
}

// windows returns two limits. Their sizes differ in half of the histories.
func (h *history) windows(size int64, period []quota.Period) (limits [2]window.Limit) {
	other := size + h.Int64N(2)*10
	limits[0], _ = window.NewLimit(size, period[0])
	limits[1], _ = window.NewLimit(other, period[1])
	return limits
}

// advance lets time pass, and changes the limit in force.
func (h *history) advance() {
	if h.IntN(3) > 0 {
		h.now += h.Int64N(int64(3 * time.Second))
	}
	if h.IntN(20) == 0 {
		h.now += h.Int64N(int64(30 * time.Second))
	}
	changed := h.IntN(10) == 0
	switch k := h.key.(type) {
	case *throttle:
		k.now = h.IntN(2)
	case *fixed:
		change(&k.now, changed)
	case *calendar:
		change(&k.now, changed)
	case *sliding:
		change(&k.now, changed)
	case *slidingLog:
		change(&k.now, changed)
	}
}

// change makes the other limit the one in force.
func change(now *int, changed bool) {
	if changed {
		*now = 1 - *now
	}
}

// play plays a history, and returns what is wrong with it.
func play(seed uint64, r rules) (wrong string, calls int, h *history) {
	h = newHistory(rand.New(rand.NewPCG(seed, 1)), r)
	for calls = range 5 + h.IntN(60) {
		h.advance()
		h.call()
		if wrong = h.check(); wrong != "" {
			return fmt.Sprintf("%T: %s", h.key, wrong), calls, h
		}
	}
	return "", calls, h
}

// After a correction, a key has at least as much charged as if the actual quantity had been taken at first.
// HOLD_CALLS sets the number of random calls.
func TestCorrectionsGiveBackNoMore(t *testing.T) {
	most, given := 300_000, map[string]int64{}
	if n, err := strconv.Atoi(os.Getenv("HOLD_CALLS")); err == nil {
		most = n
	}
	calls := 0
	for seed := uint64(0); calls < most; seed++ {
		wrong, n, of := play(seed, sound)
		require.Empty(t, wrong, "seed %d, call %d", seed, n)
		calls += n + 1
		given[fmt.Sprintf("%T", of.key)] += of.given
	}
	require.Len(t, given, 5)
	for kind, some := range given {
		require.Positive(t, some, kind)
	}
}

// The test finds rules that give back too much.
func TestFaultsOfCorrectionsAreFound(t *testing.T) {
	faults := map[string]func(r *rules){
		"a plain refund": func(r *rules) {
			r.correct = func(_ *hold.Path, _ uint64, _ hold.Counter, d int64) int64 { return d }
		},
		"time is not seen": func(r *rules) { r.decay = false },
		"refunds are not":  func(r *rules) { r.fall = false },
		"marks stay":       func(r *rules) { r.forget = false },
		"the path stays high": func(r *rules) {
			r.correct = func(p *hold.Path, number uint64, c hold.Counter, d int64) int64 {
				before := append([]hold.Mark(nil), p.Marks...)
				defer func() { p.Marks = before }()
				return p.Correct(number, c, d)
			}
		},
		"only the last mark counts": func(r *rules) {
			r.correct = func(p *hold.Path, _ uint64, c hold.Counter, d int64) int64 {
				return p.Correct(^uint64(0), c, d)
			}
		},
	}
	for name, plant := range faults {
		r := sound
		plant(&r)
		found := false
		for seed := uint64(0); seed < 20_000 && !found; seed++ {
			wrong, _, _ := play(seed, r)
			found = wrong != ""
		}
		require.True(t, found, name)
	}
}

// Whatever the order of events is, nothing panics, no level is negative, and no more is given back than was
// charged.
func FuzzPath(f *testing.F) {
	f.Add([]byte{0, 5, 0, 3, 1, 2, 2, 1, 3, 0})
	f.Fuzz(func(t *testing.T, calls []byte) {
		var p hold.Path
		var numbers []uint64
		for i := 0; i+1 < len(calls); i += 2 {
			n, c := int64(calls[i+1]), hold.Counter{At: int64(calls[i+1] % 3)}
			number := uint64(n) % uint64(len(numbers)+1)
			switch calls[i] % 5 {
			case 0:
				if last := len(p.Marks) - 1; last >= 0 && p.Marks[last].Counter.At > c.At {
					c = p.Marks[last].Counter // counters do not come again
				}
				numbers = append(numbers, p.Charge(c, n))
			case 1:
				given := p.Correct(number, c, n)
				require.True(t, 0 <= given && given <= n)
			case 2:
				p.Forget(number, c)
			case 3:
				p.Fall(func(hold.Counter) int64 { return n % 7 })
			default:
				p.Last = 1000
				p.Decay(n * 5)
			}
			perCounter := map[hold.Counter]int{}
			for _, m := range p.Marks {
				require.GreaterOrEqual(t, m.Low, int64(0))
				perCounter[m.Counter]++
				require.LessOrEqual(t, perCounter[m.Counter], hold.MaxMarks)
			}
		}
	})
}
