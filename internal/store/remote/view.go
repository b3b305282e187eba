package remote

import (
	"context"
	"slices"
	"time"

	"cellserver/internal/form"
	"cellserver/internal/gcra"
	"cellserver/internal/lease"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/standing"
	"cellserver/internal/store"
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
	steps     *scratch                   // within Atomically, where its steps are made
	decisions []quota.Decision           // of the last TakeAll
	spare     *throttleCall              // to be used again
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
	// A step that changes nothing finds it out. It blocks the goroutine, so that no later call of the
	// client begins before the step of this one.
	defer func(wait func(<-chan struct{})) { v.wait = wait }(v.wait)
	v.wait = nil
	return v.onKey(ctx, key, false, func(*scratch) error { return nil })
}

// SetWait implements store.Suspender.
func (v *view) SetWait(wait func(done <-chan struct{})) { v.wait = wait }

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

// Throttle makes one step of GCRA.
func (v *view) Throttle(ctx context.Context, key []byte, limit gcra.Limit, quantity int64,
	mode quota.Mode) (o gcra.Outcome, err error) {
	if limit.Blocks(quantity, mode) {
		return gcra.Outcome{Limited: true, Retry: quota.Never}, nil
	}
	if s := v.steps; s != nil {
		s.require(v.selected, key)
		err = s.withTATs([][]byte{key}, func() (err error) {
			o, err = s.view.Throttle(background, key, limit, quantity, mode)
			return err
		})
		return o, err
	}
	c := v.spare
	if v.spare = nil; c == nil {
		c = new(throttleCall)
	}
	v.initCall(&c.call, c)
	c.limit, c.quantity, c.mode = limit, quantity, mode
	c.keys[0] = v.name(key)
	c.step.Keys, c.step.Deniable = c.keys[:], isDeniable(quantity, mode)
	if err = v.do(ctx, &c.call); err != nil {
		return gcra.Outcome{}, err
	}
	v.spare = c
	if c.result != nil {
		return gcra.Outcome{}, c.result
	}
	return c.outcome, nil
}

// isDeniable reports whether a call may be denied by a state that was read a short time ago.
func isDeniable(quantity int64, mode quota.Mode) bool {
	return quantity > 0 && (mode == quota.Take || mode == quota.UpTo)
}

// Take makes one step of any limiter of a quantity.
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
	}
	err = v.runOrJoin(ctx, &scratchRun{keys: [][]byte{key}, deniable: isDeniable(quantity, mode),
		operation: func(s *scratch) (err error) {
			d, err = s.view.Take(background, key, rule, quantity, mode)
			s.denied = d.Limited
			return err
		}})
	return d, err
}

// TakeAll takes from several keys or from none. A request alone is made by Take if it can be.
func (v *view) TakeAll(ctx context.Context, requests []store.LimitRequest,
	mode quota.Mode) (_ []quota.Decision, allowed bool, err error) {
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
	err = v.runOrJoin(ctx, &scratchRun{keys: keys, deniable: deniable, operation: func(s *scratch) error {
		return s.withTATs(throttled, func() error {
			var d []quota.Decision
			var err error
			d, allowed, err = s.view.TakeAll(background, s.withMaxHolders(requests), mode)
			v.decisions = append(v.decisions[:0], d...) // the scratch uses its slice again
			s.denied = deniable && !allowed
			return err
		})
	}})
	return v.decisions, allowed && err == nil, err
}

// isBinding reports whether a request may refuse its call because of its quantity.
func isBinding(t *store.LimitRequest) bool {
	return t.Shadow == 0 && t.Lease == nil && t.Mode != quota.Force
}

// isForTake reports whether Take decides a request alone as TakeAll does.
func isForTake(t *store.LimitRequest, mode quota.Mode) bool {
	return t.Leave == 0 && mode != quota.Ask && (isBinding(t) || t.Mode == quota.Force && mode == quota.Take)
}

// takeOne makes a request alone. It is the hot path of a limiter with options.
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
	return v.onKeys(ctx, keys, false, func(s *scratch) error {
		defer func(outer *scratch) { v.steps = outer }(v.steps)
		v.steps = s
		return step(v)
	})
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
	return e, slices.Clone(fields), err
}
