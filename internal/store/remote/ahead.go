package remote

import (
	"context"

	"cellserver/internal/form"
	"cellserver/internal/gcra"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
	"cellserver/internal/store/remote/adding"
	"cellserver/internal/store/remote/ahead"
)

// A store with Options.Lease takes tokens ahead, by the rules of package ahead. Only a single call that takes from one
// limiter is decided from a block. Everything else, such as a call in a step or in a transaction, asks the backend.

// clockDrift is how far the clock of a server may be from its measurements, in nanoseconds, in addition to half of
// their shortest round trip: two clocks drift apart by up to 50 us a second, and the oldest measurement is ten seconds
// old.
const clockDrift = int64(500e3)

// leases reports whether a call of the view may be decided from a block.
func (v *view) leases(rule *limit.Rule, quantity int64, mode quota.Mode) bool {
	return v.store.Lease > 0 && v.steps == nil && ahead.Leasable(rule, quantity, mode)
}

// leaseOf returns the lease of the only request of a call; 0 if it has none.
func (s *Store) leaseOf(r *store.LimitRequest, mode quota.Mode) int64 {
	lease := r.Ahead
	if lease == 0 {
		lease = int64(s.Lease)
	}
	if s.book == nil || lease < 0 || r.Mode != quota.Take || !isForTake(r, mode) ||
		!ahead.Leasable(&r.Rule, r.Quantity, mode) {
		return 0
	}
	return lease
}

// Spend implements store.Spender.
func (v *view) Spend(r *store.LimitRequest) (d quota.Decision, ok bool) {
	lease := v.store.leaseOf(r, quota.Take)
	if lease == 0 || v.steps != nil {
		return d, false
	}
	l := leased{view: v, rule: &r.Rule, quantity: r.Quantity, lease: lease}
	if !l.prepare(v.name(r.Key), true) {
		return d, false
	}
	a := v.store.book.Spend(l.sent, l.key, l.rule, l.quantity, lease)
	if !a.Decided {
		return d, false
	}
	v.now = l.sent.Store
	if r.Rule.Kind == limit.Throttle {
		return r.Rule.Throttle.Decision(a.Outcome), true
	}
	return a.Decision, true
}

// takeStepped makes the only request of a call within Step, and takes tokens ahead for later calls. The step may run
// several times; it asks the book only once.
func (v *view) takeStepped(r *store.LimitRequest, lease int64) ([]quota.Decision, bool, error) {
	l := v.ahead
	if !l.asked {
		l.view, l.lease, l.quantity, l.asked = v, lease, r.Quantity, true
		rule := r.Rule
		l.rule = &rule
		if l.prepare(v.name(r.Key), true) {
			l.answer.Step = v.store.book.Step(l.sent, l.key, l.rule, l.quantity, lease)
		}
	}
	v.steps.require(v.selected, r.Key)
	var d quota.Decision
	err := v.steps.withTATs([][]byte{r.Key}, func() (err error) {
		d, err = v.steps.takeAhead(r.Key, l.rule, l.quantity, &l.answer.Step, &l.result)
		return err
	})
	l.reached = err == nil
	v.decisions = append(v.decisions[:0], d)
	return v.decisions, err == nil && !d.Limited, err
}

// timeOf returns the present time for a key. known is false until the clock of its server has been read.
func (v *view) timeOf(name string) (t ahead.Time, known bool) {
	s := v.store
	now, known := s.KeyNow(name)
	monotonic := s.Executor.Monotonic()
	return ahead.Time{Monotonic: monotonic, Wall: s.WallClock(), Store: now, Error: s.KeyTrip(name)/2 + clockDrift}, known
}

// leased is a call of a limiter that is decided from a block, or by a step that may take one.
type leased struct {
	view     *view
	key      ahead.Key
	rule     *limit.Rule
	quantity int64
	lease    int64
	sent     ahead.Time
	answer   ahead.Answer
	known    bool
	result   ahead.Result

	asked   bool // the call is within Step, and the book was asked for its step
	reached bool // asked, and the last run of the step has taken or was refused
}

// prepare sets the key and the time of the call. It returns false if the clock of the key is not known yet.
func (l *leased) prepare(name string, stepped bool) bool {
	l.key = ahead.Key{Database: l.view.selected, Name: name, Stepped: stepped}
	l.sent, l.known = l.view.timeOf(name)
	return l.known
}

// begin decides the call from a block, if there is one.
func (l *leased) begin(name string) {
	v := l.view
	if !l.prepare(name, false) {
		return
	}
	l.answer = v.store.book.Decide(l.sent, l.key, l.rule, l.quantity, int64(v.store.Lease))
	if l.answer.Decided {
		v.now = l.sent.Store
	}
}

// end returns the step and its result to the book.
func (l *leased) end() {
	if l.known {
		l.view.store.book.Return(l.sent, l.key, l.rule, &l.answer.Step, l.result)
	}
}

// throttleAhead is Throttle for a call that may be decided from a block.
func (v *view) throttleAhead(ctx context.Context, key []byte, rule *limit.Rule, quantity int64) (gcra.Outcome, error) {
	l := leased{view: v, rule: rule, quantity: quantity}
	name := v.name(key)
	if l.begin(name); l.answer.Decided {
		return l.answer.Outcome, nil
	}
	defer l.end()
	c := v.newThrottle(rule.Throttle, quantity, quota.Take, name)
	if c.extra = l.answer.Step.Extra; c.extra.Most > 0 {
		c.adds.TakeAhead(c.extra)
	}
	o, err := v.throttle(ctx, c)
	l.result = ahead.Result{Made: err == nil, Limited: o.Limited, Extra: c.taken, State: ahead.State{TAT: c.next}}
	return o, err
}

// takeAhead is Take for a call that may be decided from a block.
func (v *view) takeAhead(ctx context.Context, key []byte, rule *limit.Rule,
	quantity int64) (d quota.Decision, err error) {
	l := leased{view: v, rule: rule, quantity: quantity}
	if l.begin(v.name(key)); l.answer.Decided {
		return l.answer.Decision, nil
	}
	defer l.end()
	step := &l.answer.Step
	r := &scratchRun{keys: [][]byte{key}, deniable: true, operation: func(s *scratch) error {
		d, err = s.takeAhead(key, rule, quantity, step, &l.result)
		return err
	}}
	var adds adding.Call
	if adds.Set(rule, quantity, quota.Take, int64(v.store.margin())) && step.Surplus == 0 {
		adds.TakeAhead(step.Extra)
		r.adds = &adds
	}
	err = v.run(ctx, r)
	l.result.Made = err == nil
	return d, err
}

// takeAhead makes a step of package ahead.
func (s *scratch) takeAhead(key []byte, rule *limit.Rule, quantity int64, step *ahead.Step,
	r *ahead.Result) (quota.Decision, error) {
	*r = ahead.Result{}
	if step.Surplus > 0 {
		if err := s.giveBack(key, step); err != nil {
			return quota.Decision{}, err
		}
	}
	d, err := s.view.Take(background, key, rule, quantity, quota.Take)
	if err != nil {
		return d, err
	}
	s.denied, r.Limited = d.Limited, d.Limited
	if extra := step.Extra.Of(d.Remaining); extra > 0 && !d.Limited {
		more, err := s.view.Take(background, key, rule, extra, quota.UpTo)
		if err != nil {
			return d, err
		}
		r.Extra = more.Taken
	}
	_, r.State, err = s.stateOf(key)
	return d, err
}

// stateOf returns the form and the state of a key, if it holds a limiter whose tokens may be taken ahead.
func (s *scratch) stateOf(key []byte) (f form.State, state ahead.State, err error) {
	bytes, e, err := s.view.ReadForm(background, key, nil)
	if err != nil || !e.Kind.TakesAhead() {
		return f, state, err
	}
	if e.Kind == limit.Throttle {
		return f, ahead.State{TAT: e.Expires}, nil
	}
	if err := f.Read(bytes, 0); err != nil {
		return f, state, err
	}
	if f.Kind == limit.Fixed {
		return f, ahead.State{Start: f.Plain.Numbers[0], Used: f.Plain.Numbers[1], End: f.Plain.End}, nil
	}
	return f, ahead.State{Used: f.Quota.Used, End: f.Quota.End}, nil
}

// giveBack gives back the surplus of a block, if the window of the block is still the present one.
func (s *scratch) giveBack(key []byte, step *ahead.Step) error {
	f, state, err := s.stateOf(key)
	if err != nil || f.Kind == limit.None || !step.IsOfWindow(state) {
		return err
	}
	left := max(state.Used-step.Surplus, 0)
	if left == 0 {
		_, err := s.view.Delete(background, [][]byte{key})
		return err
	}
	if f.Kind == limit.Fixed {
		f.Plain.Numbers[1] = left
	}
	f.Quota.Used = left
	return s.view.WriteForm(background, key, &f)
}

// describeBook adds the counts of calls decided from blocks to INFO.
func (s *Store) describeBook(add func(name string, value any)) {
	var c ahead.Counters
	if s.book != nil {
		c = s.book.Counters()
	}
	add("store_lease_spent", c.Spent)
	add("store_lease_refused", c.Refused)
}
