package ahead

import (
	"container/heap"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/calendar"
	"cellserver/internal/gcra"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/racetest"
	"cellserver/internal/window"
)

const ms = int64(1e6)

// began is the time of the server at the start: a multiple of all periods.
const began = int64(1_800_000_000e9)

// model is a server with one key, and processes that take from it.
type model struct {
	random  *rand.Rand
	rule    limit.Rule
	lease   int64
	now     int64 // true time, which is the server's
	events  events
	order   int
	state   State
	process []*process
	plan    plan

	level    int64           // the level of the oracle's bucket
	levelAt  int64           // the instant of level
	windows  map[int64]int64 // how much was admitted, by the end of the window
	excess   int64           // the most that was admitted beyond what a window promises
	admitted int64
	steps    int64 // steps that the store has made
	calls    int64
	refused  int64
}

// plan says how a model behaves.
type plan struct {
	processes int
	load      float64 // the demand as a fraction of the rate
	wrong     int64   // by how much clocks are wrong
	delay     int64   // of a message
	stops     bool    // processes stop for a while
	adversary bool    // processes save blocks, and spend them all together
	believed  int64   // the error of the clocks that processes allow for; another value is a planted fault
	lapses    bool    // blocks lapse; if not, this is a planted fault
}

type process struct {
	book    *Book
	offset  int64 // of its idea of the server's clock
	stopped int64 // until when
}

type event struct {
	at    int64
	order int
	do    func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].order < e[j].order
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func (m *model) after(delay int64, do func()) {
	m.order++
	heap.Push(&m.events, event{m.now + delay, m.order, do})
}

func newModel(seed uint64, rule limit.Rule, p plan) *model {
	m := &model{random: rand.New(rand.NewPCG(seed, 1)), rule: rule, lease: 100 * ms, now: began, plan: p,
		windows: map[int64]int64{}, levelAt: began}
	for range p.processes {
		m.process = append(m.process, &process{book: NewBook(10), offset: m.random.Int64N(2*p.wrong+1) - p.wrong})
	}
	return m
}

// run runs for a time.
func (m *model) run(span int64) {
	for i := range m.process {
		m.after(m.random.Int64N(10*ms), func() { m.arrive(m.process[i]) })
	}
	for end := m.now + span; len(m.events) > 0 && m.events[0].at < end; {
		next := heap.Pop(&m.events).(event)
		m.now = next.at
		next.do()
	}
}

// pause is the mean time between two calls of a process.
func (m *model) pause() float64 {
	return float64(m.rule.Period(began)) / float64(m.rule.Size()) * float64(m.plan.processes) / m.plan.load
}

func (m *model) arrive(p *process) {
	pause := int64(m.random.ExpFloat64() * m.pause())
	if m.plan.adversary {
		pause = m.save(pause)
	}
	m.after(pause+1, func() { m.arrive(p) })
	switch {
	case p.stopped > m.now:
		return
	case m.plan.stops && m.random.IntN(200) == 0:
		p.stopped = m.now + m.random.Int64N(3*m.lease)
		return
	}
	m.call(p)
}

// save returns the pause after which an adversary calls next. It calls for the length of a lease, so that its
// blocks are large, takes a block, waits until nearly the end of the lease, and spends the whole block at once.
// Then it waits until the bucket is full again.
func (m *model) save(pause int64) int64 {
	cycle := 4*m.lease + 2*m.rule.Period(began)
	switch phase := (m.now - began) % cycle; {
	case phase < m.lease:
		return min(pause, m.lease+m.lease/20-phase)
	case phase < 18*m.lease/10:
		return 19*m.lease/10 - phase
	case phase < 22*m.lease/10:
		return m.random.Int64N(int64(m.pause()/100) + 1)
	default:
		return cycle - phase
	}
}

func (m *model) time(p *process) Time {
	t := Time{Monotonic: m.now - began, Wall: m.now, Store: m.now + p.offset, Error: m.plan.believed}
	if !m.plan.lapses {
		t.Error = -1 << 60
	}
	return t
}

func (m *model) call(p *process) {
	m.calls++
	key := Key{Name: "k"}
	sent := m.time(p)
	a := p.book.Decide(sent, key, &m.rule, 1, m.lease)
	if a.Decided {
		m.decided(a.limited(), m.now)
		if m.rule.Kind != limit.Throttle && !a.limited() && m.now >= m.state.End {
			m.excess = max(m.excess, 1) // it is of a window that is over
		}
		return
	}
	m.steps++
	var r Result
	m.after(m.plan.delay, func() {
		r = m.execute(sent.Store, &a.Step)
		if !r.Limited {
			m.decided(false, m.now)
		}
		m.after(m.plan.delay, func() {
			if r.Limited {
				m.refused++
			}
			if r.Made = m.random.IntN(50) > 0; r.Made || a.Step.owner {
				p.book.Return(sent, key, &m.rule, &a.Step, r)
			}
		})
	})
}

// execute makes a step at the server.
func (m *model) execute(now int64, s *Step) (r Result) {
	take := func(n int64, mode quota.Mode) (taken, remaining int64) {
		var d quota.Decision
		var w window.Fixed
		var q window.Calendar
		switch m.rule.Kind {
		case limit.Throttle:
			d, m.state.TAT, _ = m.rule.Throttle.Step(now, m.state.TAT, n, mode)
		case limit.Fixed:
			w = window.Fixed{Start: m.state.Start, Used: m.state.Used, End: m.state.End}
			d, w, _ = m.rule.Window.StepFixed(now, w, n, mode)
			m.state = State{Start: w.Start, Used: w.Used, End: w.End}
		default:
			if m.state.Used == 0 || now >= m.state.End {
				m.state = State{End: m.rule.Cycle.End(now)}
			}
			d, q, _ = m.rule.Window.StepCalendar(now, window.Calendar{Used: m.state.Used, End: m.state.End}, n, mode)
			m.state = State{Used: q.Used, End: q.End}
		}
		return d.Taken, d.Remaining
	}
	if s.Surplus > 0 && s.IsOfWindow(m.state) && now < m.state.End {
		take(-s.Surplus, quota.Take)
	}
	taken, remaining := take(1, quota.Take)
	if r.Limited = taken == 0; !r.Limited {
		if extra := s.Extra.Of(remaining); extra > 0 {
			r.Extra, _ = take(extra, quota.UpTo)
		}
	}
	r.State = m.state
	return r
}

// decided tells the oracle about a decision. The admitted tokens conform to a limit in every window if and only if a
// bucket of the limit never overflows.
func (m *model) decided(limited bool, at int64) {
	if limited {
		m.refused++
		return
	}
	m.admitted++
	if m.rule.Kind != limit.Throttle {
		end := m.state.End
		m.windows[end]++
		m.excess = max(m.excess, m.windows[end]-m.rule.Size())
		return
	}
	emission := int64(m.rule.Throttle.EmissionInterval())
	m.level = max(m.level-(at-m.levelAt), 0) + emission
	m.levelAt = at
	slack := 2 * (m.plan.wrong + m.plan.delay)
	m.excess = max(m.excess, (m.level-int64(m.rule.Throttle.Tolerance())-slack+emission-1)/emission)
}

func rules(t testing.TB) []limit.Rule {
	var rules []limit.Rule
	for _, c := range []struct{ size, rate int64 }{{20, 100}, {100, 1000}, {1000, 1000}, {50, 5000}} {
		throttle, err := gcra.NewLimit(c.size-1, c.rate, 1)
		require.NoError(t, err)
		rules = append(rules, limit.Rule{Kind: limit.Throttle, Throttle: throttle})
	}
	fixed, err := window.NewLimit(1000, quota.Seconds(1))
	require.NoError(t, err)
	calendric, err := window.NewCalendarLimit(1000)
	require.NoError(t, err)
	return append(rules, limit.Rule{Kind: limit.Fixed, Window: fixed},
		limit.Rule{Kind: limit.Quota, Window: calendric, Cycle: calendar.Every(1e9)})
}

// Nothing is admitted beyond a limit in any window, whatever the load, the clocks and the processes do.
func TestBlocksAdmitNoMore(t *testing.T) {
	racetest.HasOneGoroutine(t)
	for i, rule := range rules(t) {
		spent := int64(0)
		for seed := range uint64(10) {
			r := rand.New(rand.NewPCG(seed, 2))
			p := plan{processes: 1 + r.IntN(8), load: [...]float64{0.1, 0.5, 0.9, 1, 2, 5}[r.IntN(6)], wrong: r.Int64N(2) * ms,
				delay: [...]int64{ms / 10, ms, 20 * ms}[r.IntN(3)], stops: r.IntN(2) == 0, adversary: r.IntN(3) == 0,
				lapses: true}
			p.believed = p.wrong
			m := newModel(seed, rule, p)
			m.run(5000 * ms)
			require.LessOrEqual(t, m.excess, int64(0), "rule %d, seed %d, %+v", i, seed, p)
			for _, process := range m.process {
				spent += process.book.Counters().Spent
			}
		}
		assert.Positive(t, spent, "rule %d", i)
	}
}

// The model finds blocks that do not lapse, and clocks whose error is not taken into account.
func TestModelFindsExcess(t *testing.T) {
	for name, fault := range map[string]func(p *plan){
		"blocks do not lapse":          func(p *plan) { p.lapses = false },
		"the clock is taken for right": func(p *plan) { p.believed = -5 * p.wrong },
	} {
		t.Run(name, func(t *testing.T) {
			for i, rule := range rules(t)[1:3] {
				found := int64(0)
				for seed := range uint64(10) {
					p := plan{processes: 8, load: 0.9, wrong: 4 * ms, believed: 4 * ms, delay: ms / 10,
						adversary: seed%2 == 0, lapses: true}
					fault(&p)
					m := newModel(seed, rule, p)
					m.run(5000 * ms)
					found = max(found, m.excess)
				}
				assert.Positive(t, found, "rule %d", i+1)
			}
		})
	}
}

// A hot key costs the store a small part of the steps, and clients are refused about as often as without blocks.
func TestBlocksSaveSteps(t *testing.T) {
	for _, c := range []struct {
		rate  int64
		load  float64
		saves int64 // calls per step
	}{{10_000, 0.5, 10}, {10_000, 0.9, 10}, {10_000, 0.95, 10}, {10_000, 2, 3}, {1000, 2, 3}} {
		throttle, err := gcra.NewLimit(c.rate-1, c.rate, 1)
		require.NoError(t, err)
		m := newModel(1, limit.Rule{Kind: limit.Throttle, Throttle: throttle},
			plan{processes: 8, load: c.load, delay: 150_000, wrong: 150_000, believed: 650_000, lapses: true})
		m.run(5000 * ms)
		t.Logf("%d a second, load %.2f: %d calls, %d steps (1 of %.1f), %d admitted, %.2f %% refused", c.rate, c.load,
			m.calls, m.steps, float64(m.calls)/float64(m.steps), m.admitted, 100*float64(m.refused)/float64(m.calls))
		assert.Greater(t, m.calls, c.saves*m.steps)
		if c.load < 1 {
			assert.LessOrEqual(t, m.refused, m.calls/100)
		}
	}
}
