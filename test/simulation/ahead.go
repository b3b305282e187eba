package simulation

import (
	"math/rand/v2"
	"slices"

	"cellserver/internal/gcra"
	"cellserver/internal/limit"
	"cellserver/internal/store/remote/ahead"
	"cellserver/internal/store/remote/combine"
)

// aheadKey is the limit from which processes take tokens ahead if the plan has a lease.
const aheadKey = "0:0"

// taking is the state of a process that takes tokens ahead.
type taking struct {
	book        *ahead.Book
	rule        limit.Rule
	asleepUntil int64
	slept       int64 // how long the monotonic clock of the process has stood still
}

// PlanOfLeases makes a plan for processes that take tokens ahead. It has only faults after which a limit is still
// exact: no fault loses writes or sets a clock.
func PlanOfLeases(seed uint64) Plan {
	r := rand.New(rand.NewPCG(seed, 7))
	pick := func(of ...int64) int64 { return of[r.IntN(len(of))] }
	p := Plan{
		Seed: seed, Processes: int(pick(1, 2, 3, 8, 20)), Primaries: 1, Slots: 1, Keys: 1, Known: 10,
		Timeout: pick(100, 100, 1000) * ms, Delay: pick(50, 200, 2000, 5000) * us, Jitter: pick(0, 20, 500) * us,
		Wrong: pick(0, 100, 1000) * us, Burst: pick(20, 100, 500), Lease: pick(20, 100, 300) * ms,
		Load: float64(pick(30, 90, 100, 200, 500)) / 100, Saves: r.IntN(3) == 0,
		Duration: 3000 * ms, Grace: 2500 * ms, Calm: 500 * ms, Adds: r.IntN(4) > 0, Compared: 16,
	}
	sometimes := func(of ...int64) int64 { return pick(of...) * pick(0, 1) }
	p.Cut = float64(sometimes(1, 10, 100)) / 1000
	p.CutIdle = sometimes(50, 500) * ms
	p.Late = float64(sometimes(1, 20)) / 1000
	p.Refuse = float64(sometimes(1, 20)) / 1000
	p.Stall = sometimes(300, 1000) * ms
	p.Blackout = sometimes(100, 1000) * ms
	p.Sleep = sometimes(300, 1000) * ms
	p.DenialAge = sometimes(1, 20) * ms
	p.Leave = float64(sometimes(1, 100)) / 1000
	return p
}

// startTaking makes a process take tokens ahead.
func (p *process) startTaking() {
	plan := &p.w.plan
	throttle, err := gcra.NewLimit(plan.burst()-1, int64(1e9)/emission, 1)
	if err != nil {
		panic(err)
	}
	p.taking = &taking{book: ahead.NewBook(1), rule: limit.Rule{Kind: limit.Throttle, Throttle: throttle}}
	p.w.after(p.w.below(10*ms), p.takeAhead)
}

// takeAhead makes a call that may be decided from a block, and the next call after a while.
func (p *process) takeAhead() {
	if p.stopped {
		return
	}
	w, t := p.w, p.taking
	mean := int64(float64(emission) * float64(w.plan.Processes) / w.plan.Load)
	if w.calm { // without faults each step must succeed, so the demand must not be too high
		mean = 10 * max(mean, int64(w.plan.Processes)*w.plan.Delay)
	}
	w.after(w.pauseOf(w.exponential(mean))+1, p.takeAhead)
	switch {
	case t.asleepUntil > w.now:
		return
	case len(p.offsets) == 0: // the clock is not known yet
		p.submitAhead(ahead.Time{}, nil)
		return
	}
	sent := p.aheadTime()
	a := t.book.Decide(sent, ahead.Key{Name: aheadKey}, &t.rule, 1, w.plan.Lease)
	if !a.Decided {
		p.submitAhead(sent, &a.Step)
		return
	}
	if !a.Outcome.Limited {
		w.oracle.spent = append(w.oracle.spent, w.now)
		w.result.Blocks++
	}
}

// aheadTime returns the time as the process knows it.
func (p *process) aheadTime() ahead.Time {
	now := p.time()
	return ahead.Time{Monotonic: now - p.taking.slept, Wall: now, Store: now + p.offsets[p.table[0]],
		Error: p.delay + p.w.plan.Wrong}
}

// submitAhead makes the step of a call that no block decides. answer is nil if the book was not asked.
func (p *process) submitAhead(sent ahead.Time, answer *ahead.Step) {
	w, t := p.w, p.taking
	s := w.oracle.newStep(p, "ahead", []string{aheadKey})
	if answer != nil {
		s.extra = answer.Extra
	}
	submitted := &combine.Step{Keys: s.keys, Deadline: s.deadline + began, Deniable: true,
		Run: func(now int64, values []combine.Value, changes []combine.Change) error {
			return p.run(s, now, values, changes)
		},
		Done: func(_ any, err error) {
			w.oracle.end(s, err)
			if err == nil && s.changes {
				// The step counts from the instant for which it was decided. The server may have made it
				// much later.
				w.oracle.spent = append(w.oracle.spent, s.now-w.nodes[0].offset)
			}
			if answer != nil {
				t.book.Return(sent, ahead.Key{Name: aheadKey}, &t.rule, answer, ahead.Result{Made: err == nil,
					Limited: !s.changes, Extra: s.taken, State: ahead.State{TAT: s.tat}})
			}
		}}
	submitted.Adds = p.adding(s)
	p.machine.Submit(p.time(), submitted)
	p.drive()
}

// take returns the TAT of a limit after a step, and how many tokens the step takes ahead.
func (s *step) take(now, tat, burst int64) (next, extra int64) {
	next = max(tat, now) + emission
	extra = s.extra.Of((now + burst*emission - next) / emission)
	return next + extra*emission, extra
}

// pauseOf returns the time until the next call of a process: the pause, unless the plan says that processes save their
// blocks. Then processes call often, so that their next blocks are large, wait until nearly the end of a lease, and
// all spend their blocks at once.
func (w *world) pauseOf(pause int64) int64 {
	if !w.plan.Saves || w.calm {
		return pause
	}
	lease := w.plan.Lease
	cycle := 4*lease + 2*w.plan.burst()*emission
	switch phase := w.now % cycle; {
	case phase < lease:
		return min(pause, lease+lease/20-phase)
	case phase < lease*18/10:
		return lease*19/10 - phase
	case phase < lease*22/10:
		return w.below(emission / 50)
	default:
		return cycle - phase
	}
}

// sleep suspends a process. Its monotonic clock stands still meanwhile.
func (w *world) sleep() {
	p := w.processes[w.random.IntN(len(w.processes))]
	if p.taking == nil || p.taking.asleepUntil > w.now {
		return
	}
	w.fault("process sleeps")
	long := w.below(3 * w.plan.Lease)
	p.taking.asleepUntil = w.now + long
	w.after(long, func() { p.taking.slept += long })
}

// checkSpent checks that the calls that were allowed conform to the limit: a bucket of its size never overflows.
func (o *oracle) checkSpent() {
	if o.w.plan.Lease == 0 {
		return
	}
	slices.Sort(o.spent)
	wrong := o.w.plan.Delay + 10*us + o.w.plan.Jitter + o.w.plan.Wrong
	level, last, most := int64(0), int64(0), int64(0)
	for _, at := range o.spent {
		level = max(level-(at-last), 0) + emission
		last, most = at, max(most, level)
	}
	if over := most - o.w.plan.burst()*emission - 2*wrong; over > 0 {
		o.w.violation("%s: %d more were admitted than promised", aheadKey, (over+emission-1)/emission)
	}
}
