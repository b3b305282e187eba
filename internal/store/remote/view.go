package remote

import (
	"context"
	"math"
	"slices"
	"time"

	"cellserver/internal/form"
	"cellserver/internal/gcra"
	"cellserver/internal/lease"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/standing"
	"cellserver/internal/store"
	"cellserver/internal/store/remote/adding"
	"cellserver/internal/store/remote/ahead"
	"cellserver/internal/store/remote/combine"
)

// view implements store.View.
type view struct {
	store     *Store
	selected  int
	now       int64
	running   bool // a step of the view is run at this moment
	caller    int64
	wait      func(done <-chan struct{}) // how calls wait; nil blocks the goroutine
	driven    bool                       // if calls wait, their caller calls Drive
	steps     *scratch                   // within Atomically, the scratch in which steps are made; else nil
	ahead     *leased                    // within Step, the call that may take tokens ahead; nil if none may
	decisions []quota.Decision           // result of the last TakeAll
	spare     *throttleCall              // a call that has ended, for the next one
	watch     watch
}

func (v *view) Begin()                 { v.now = v.store.Options.Clock.Now() }
func (v *view) Now() int64             { return v.now }
func (v *view) Prefetch([][]byte)      {}
func (v *view) Select(database int)    { v.selected = database }
func (v *view) Selected() int          { return v.selected }
func (v *view) SetCaller(caller int64) { v.caller = caller }
func (v *view) Caller() int64          { return v.caller }

// BeginAt implements store.KeyClocks. Within a step, it keeps the instant of the step.
func (v *view) BeginAt(ctx context.Context, key []byte) error {
	if v.steps != nil || v.running || v.store.KeyNow == nil {
		return nil
	}
	now, known := v.store.KeyNow(v.name(key))
	if known {
		v.now = now
		return nil
	}
	// A step that changes nothing reads the clock. Waiting for it blocks the goroutine, so that no later call of the
	// client begins before the step of this call.
	defer func(wait func(<-chan struct{})) { v.wait = wait }(v.wait)
	v.wait = nil
	return v.onKey(ctx, key, false, func(*scratch) error { return nil })
}

// SetWait implements store.Suspender.
func (v *view) SetWait(wait func(done <-chan struct{})) { v.wait, v.driven = wait, false }

// SetDriven implements store.Driven.
func (v *view) SetDriven(wait func(done <-chan struct{})) { v.wait, v.driven = wait, true }

// Drive implements store.Driven.
func (v *view) Drive(done <-chan struct{}) {
	if v.store.driver == nil {
		<-done
		return
	}
	v.store.driver.Drive(done)
}

// WithoutGrowth implements store.Limiters. Keys take no memory of this process.
func (v *view) WithoutGrowth() store.View { return v }

// throttleCall is a call of Throttle. It is the hot path, and needs no scratch.
type throttleCall struct {
	call
	limit    gcra.Limit
	quantity int64
	mode     quota.Mode
	outcome  gcra.Outcome
	result   error
	adds     adding.Call

	// For a call that takes tokens ahead:
	extra ahead.Extra
	taken int64 // tokens that it has taken
	next  int64 // the TAT after the call
}

// prepare sets the step of a call that initCall has initialized.
func (c *throttleCall) prepare(of *Store, key string) {
	c.keys[0] = key
	c.step.Keys, c.step.Deniable, c.step.Adds = c.keys[:], isDeniable(c.quantity, c.mode), nil
	if c.adds.Set(&limit.Rule{Kind: limit.Throttle, Throttle: c.limit}, c.quantity, c.mode, int64(of.margin())) {
		c.step.Adds = &c.adds
	}
}

// run implements runner.
func (c *throttleCall) run(now int64, values []combine.Value, changes []combine.Change) error {
	changes[0].Compared = compared(values[0].Bytes)
	tat, err := readTAT(values[0].Bytes, now)
	if err != nil {
		c.result = err
		return nil
	}
	var next int64
	c.outcome, next, c.result = c.limit.Outcome(now, tat, c.quantity, c.mode)
	if c.taken = 0; c.extra.Most > 0 && c.result == nil && !c.outcome.Limited {
		next = c.takeAhead(now, next)
	}
	c.next = next
	switch {
	case c.result != nil:
	case next == tat:
		changes[0].Denied = c.outcome.Limited
	case next <= now:
		changes[0].Op = combine.Remove
	default:
		expires := c.view.store.margin().after(next)
		changes[0] = combine.Change{Op: combine.Set, Bytes: form.AppendTAT(nil, next), Expires: expires}
	}
	return nil
}

// takeAhead takes tokens for later calls, and returns the TAT after that.
func (c *throttleCall) takeAhead(now, tat int64) int64 {
	extra := c.extra.Of(c.limit.Decision(c.outcome).Remaining)
	if extra == 0 {
		return tat
	}
	o, next, err := c.limit.Outcome(now, tat, extra, quota.UpTo)
	if err != nil {
		return tat
	}
	c.taken = o.Taken
	return next
}

// Throttle makes one step of GCRA.
func (v *view) Throttle(ctx context.Context, key []byte, limit gcra.Limit, quantity int64,
	mode quota.Mode) (o gcra.Outcome, err error) {
	if limit.Blocks(quantity, mode) {
		return gcra.Outcome{Limited: true, Retry: quota.Never}, nil
	}
	if quantity < 0 {
		return v.throttleBack(ctx, key, limit, quantity, mode)
	}
	if s := v.steps; s != nil {
		s.require(v.selected, key)
		err = s.withTATs([][]byte{key}, func() (err error) {
			o, err = s.view.Throttle(background, key, limit, quantity, mode)
			return err
		})
		return o, err
	}
	if v.store.Lease > 0 {
		if rule := throttleRule(limit); v.leases(&rule, quantity, mode) {
			return v.throttleAhead(ctx, key, &rule, quantity)
		}
	}
	return v.throttle(ctx, v.newThrottle(limit, quantity, mode, v.name(key)))
}

// throttleRule returns the rule of a GCRA limit.
func throttleRule(l gcra.Limit) limit.Rule { return limit.Rule{Kind: limit.Throttle, Throttle: l} }

// newThrottle returns a call of Throttle on a key, by its name in the backend.
func (v *view) newThrottle(l gcra.Limit, quantity int64, mode quota.Mode, name string) *throttleCall {
	c := v.spare
	if v.spare = nil; c == nil {
		c = new(throttleCall)
	}
	v.initCall(&c.call, c)
	c.limit, c.quantity, c.mode, c.extra = l, quantity, mode, ahead.Extra{}
	c.prepare(v.store, name)
	return c
}

// throttle makes a call of Throttle.
func (v *view) throttle(ctx context.Context, c *throttleCall) (gcra.Outcome, error) {
	if err := v.do(ctx, &c.call); err != nil {
		return gcra.Outcome{}, err
	}
	v.spare = c
	if c.result != nil {
		return gcra.Outcome{}, c.result
	}
	return c.outcome, nil
}

// isDeniable reports whether a call may be denied by a state that was read a moment ago.
func isDeniable(quantity int64, mode quota.Mode) bool {
	return quantity > 0 && (mode == quota.Take || mode == quota.UpTo)
}

// Take takes a quantity from a limiter of any kind that has quantities.
func (v *view) Take(ctx context.Context, key []byte, rule *limit.Rule, quantity int64,
	mode quota.Mode) (d quota.Decision, err error) {
	switch {
	case rule.Blocks(quantity, mode):
		return quota.Blocked(), nil
	case rule.Kind == limit.Throttle:
		o, err := v.Throttle(ctx, key, rule.Throttle, quantity, mode)
		if err != nil {
			return quota.Decision{}, err
		}
		return rule.Throttle.Decision(o), nil
	case quantity < 0:
		err = v.giveBack(ctx, key, false, func(s *scratch) (err error) {
			d, err = s.view.Take(background, key, rule, quantity, mode)
			return err
		})
		return d, err
	}
	if v.leases(rule, quantity, mode) {
		return v.takeAhead(ctx, key, rule, quantity)
	}
	r := &scratchRun{keys: [][]byte{key}, deniable: isDeniable(quantity, mode), operation: func(s *scratch) (err error) {
		d, err = s.view.Take(background, key, rule, quantity, mode)
		s.denied = d.Limited
		return err
	}}
	var adds adding.Call
	if adds.Set(rule, quantity, mode, int64(v.store.margin())) {
		r.adds = &adds
	}
	err = v.runOrJoin(ctx, r)
	return d, err
}

// TakeAll takes from several keys or from none. A single request is made by Take if possible.
func (v *view) TakeAll(ctx context.Context, requests []store.LimitRequest,
	mode quota.Mode) (_ []quota.Decision, allowed bool, err error) {
	if len(requests) == 1 && v.ahead != nil {
		if lease := v.store.leaseOf(&requests[0], mode); lease > 0 {
			return v.takeStepped(&requests[0], lease)
		}
	}
	switch {
	case len(requests) == 0:
		return nil, true, nil
	case len(requests) == 1 && isForTake(&requests[0], mode):
		return v.takeOne(ctx, &requests[0], mode)
	}
	keys := make([][]byte, len(requests))
	var throttled [][]byte
	for i := range requests {
		keys[i] = requests[i].Key
		if requests[i].Rule.Kind == limit.Throttle {
			throttled = append(throttled, keys[i])
		}
	}
	deniable := len(requests) == 1 && isBinding(&requests[0]) && isDeniable(requests[0].Quantity, mode)
	takeAll := func(s *scratch) error {
		return s.withTATs(throttled, func() error {
			var d []quota.Decision
			var err error
			d, allowed, err = s.view.TakeAll(background, s.withMaxHolders(requests), mode)
			v.decisions = append(v.decisions[:0], d...) // the scratch uses its slice again
			s.denied = deniable && !allowed
			return err
		})
	}
	r := &scratchRun{keys: keys, deniable: deniable, operation: takeAll}
	if refunded := refunds(requests); refunded != nil {
		own := v.holdsNames(refunded)
		r.keys, r.own, r.absent = append(keys, own...), len(own), len(own)
		r.operation = func(s *scratch) error {
			return v.withHolds(s, refunded, nil, func([]*book) error { return takeAll(s) })
		}
	}
	err = v.runOrJoin(ctx, r)
	return v.decisions, allowed && err == nil, err
}

// isBinding reports whether a request may refuse its call because of its quantity.
func isBinding(t *store.LimitRequest) bool {
	return t.Shadow == 0 && t.Lease == nil && t.Mode != quota.Force
}

// isForTake reports whether Take would decide a single request as TakeAll does.
func isForTake(t *store.LimitRequest, mode quota.Mode) bool {
	return t.Leave == 0 && !t.Held && mode != quota.Ask && (isBinding(t) || t.Mode == quota.Force && mode == quota.Take)
}

// takeOne makes a single request. It is the hot path of a limiter with options.
func (v *view) takeOne(ctx context.Context, t *store.LimitRequest, mode quota.Mode) ([]quota.Decision, bool, error) {
	if t.Mode == quota.Force {
		mode = quota.Force
	}
	d, err := v.Take(ctx, t.Key, &t.Rule, t.Quantity, mode)
	v.decisions = append(v.decisions[:0], d)
	return v.decisions, err == nil && (!d.Limited || mode == quota.Force), err
}

// maxLeaseBytes bounds the leases of a key, because all of them are sent with every change: beyond it,
// there are no new holders.
const maxLeaseBytes = 64 << 10

// Acquire grants a lease.
func (v *view) Acquire(ctx context.Context, key []byte, r lease.Request,
	maxHolders int) (d quota.Decision, err error) {
	err = v.onKey(ctx, key, false, func(s *scratch) (err error) {
		d, err = s.view.Acquire(background, key, r, s.maxHolders(key, r, maxHolders))
		return err
	})
	return d, err
}

// maxHolders returns how many holders a key may have if a request is granted: most, or 1 if the leases
// would be too long.
func (s *scratch) maxHolders(key []byte, r lease.Request, most int) int {
	if s.view.StateBytes(background, key)+len(r.Holder()) > maxLeaseBytes {
		return 1
	}
	return most
}

// withMaxHolders returns the requests, with the bound of maxHolders in each request for a lease.
func (s *scratch) withMaxHolders(requests []store.LimitRequest) []store.LimitRequest {
	isLease := func(t store.LimitRequest) bool { return t.Lease != nil }
	if !slices.ContainsFunc(requests, isLease) {
		return requests
	}
	requests = slices.Clone(requests)
	for i := range requests {
		if t := &requests[i]; t.Lease != nil {
			most := s.maxHolders(t.Key, t.Lease.Request, t.Lease.MaxHolders)
			t.Lease = &store.LeaseRequest{Request: t.Lease.Request, MaxHolders: most}
		}
	}
	return requests
}

// Renew changes the end of a lease.
func (v *view) Renew(ctx context.Context, key []byte, ttl time.Duration, holder []byte) (renewed bool, err error) {
	err = v.onKey(ctx, key, false, func(s *scratch) (err error) {
		renewed, err = s.view.Renew(background, key, ttl, holder)
		return err
	})
	return renewed, err
}

// Release ends a lease.
func (v *view) Release(ctx context.Context, key []byte, holder []byte) (permits int64, err error) {
	err = v.onKey(ctx, key, false, func(s *scratch) (err error) {
		permits, err = s.view.Release(background, key, holder)
		return err
	})
	return permits, err
}

// Holders returns the leases of a key.
func (v *view) Holders(ctx context.Context, key []byte) (list []lease.Lease, err error) {
	err = v.lookAt(ctx, key, false, func(s *scratch) (err error) {
		list, err = s.view.Holders(background, key)
		return err
	})
	return list, err
}

// Standing returns the standing that a key holds.
func (v *view) Standing(ctx context.Context, key []byte) (state standing.State, err error) {
	err = v.lookAt(ctx, key, false, func(s *scratch) (err error) {
		state, err = s.view.Standing(background, key)
		return err
	})
	return state, err
}

// EditStanding changes the standing that a key holds.
func (v *view) EditStanding(ctx context.Context, key []byte,
	edit func(now int64, s standing.State) standing.State) error {
	return v.onKey(ctx, key, false, func(s *scratch) error { return s.view.EditStanding(background, key, edit) })
}

// Step implements store.Stepper.
func (v *view) Step(ctx context.Context, keys [][]byte, step func(store.View) error) error {
	var l *leased
	if v.steps == nil && v.store.book != nil {
		l = new(leased)
		defer l.end()
	}
	err := v.onKeys(ctx, keys, false, func(s *scratch) error {
		defer func(steps *scratch, ahead *leased) { v.steps, v.ahead = steps, ahead }(v.steps, v.ahead)
		if v.steps, v.ahead = s, l; l != nil {
			l.reached = false
		}
		return step(v)
	})
	if l != nil {
		l.result.Made = err == nil && l.reached
	}
	return err
}

// ReadForm appends the form of a limiter's state to dst.
func (v *view) ReadForm(ctx context.Context, key []byte, dst []byte) (read []byte, e store.Entry, err error) {
	read = dst
	err = v.lookAt(ctx, key, true, func(s *scratch) (err error) {
		read, e, err = s.view.ReadForm(background, key, read[:len(dst)])
		return err
	})
	return read, e, err
}

// WriteForm makes a key hold a state.
func (v *view) WriteForm(ctx context.Context, key []byte, state *form.State) error {
	if s := v.steps; s != nil {
		s.require(v.selected, key)
		if err := v.endHolds(s, key); err != nil {
			return err
		}
		return s.view.WriteForm(background, key, state)
	}
	expires := state.Expires()
	if expires > v.now {
		expires = v.store.margin().after(expires)
	}
	return v.set(ctx, key, appendState(nil, state), expires)
}

// Lookup returns the entry of a key.
func (v *view) Lookup(ctx context.Context, key []byte) (e store.Entry, err error) {
	err = v.lookAt(ctx, key, true, func(s *scratch) (err error) {
		e, err = s.view.Lookup(background, key)
		return err
	})
	return e, err
}

// Inspect returns the entry of a key, and its state by name.
func (v *view) Inspect(ctx context.Context, key []byte) (e store.Entry, fields []store.Field, err error) {
	err = v.lookAt(ctx, key, true, func(s *scratch) (err error) {
		e, fields, err = s.view.Inspect(background, key)
		return err
	})
	if fields = slices.Clone(fields); err != nil || e.Kind == limit.Bytes {
		return e, fields, err
	}
	holds, err := v.Holds(ctx, key, store.MaxHoldsPerKey)
	held := int64(0)
	for i := range holds {
		if held += holds[i].Quantity; held < 0 {
			held = math.MaxInt64
			break
		}
	}
	return e, store.AppendHoldFields(fields, len(holds), held), err
}
