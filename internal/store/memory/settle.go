package memory

import (
	"context"
	"math"

	"cellserver/internal/hold"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
	"cellserver/internal/window"
)

// MaxHeldEntries is the length of the longest log, in entries, that a hold gives back to: a correction rewrites all
// entries after its own.
const MaxHeldEntries = 4000

// settling is a call that settles a hold, whose keys are locked.
type settling struct {
	*store.Settlement
	view  *view
	head  *hold.Open  // the hold on the first key of the call that made it; nil if it is not there
	held  []hold.Open // the hold on the key of each request; without a Unit if it has charged nothing there
	found bool        // some key of the call has the hold
}

// Settle corrects what a hold has charged.
func (v *view) Settle(ctx context.Context, o *store.Settlement) (decisions []quota.Decision, err error) {
	refs := make([]store.KeyRef, 1, 1+len(o.Requests))
	refs[0] = store.KeyRef{Database: v.selected, Key: o.Key}
	for i := range o.Requests {
		refs = append(refs, store.KeyRef{Database: v.selected, Key: o.Requests[i].Key})
	}
	v = &v.viewState.view // a correction is made although memory is short
	err = v.Atomically(ctx, refs, false, func() (err error) {
		decisions, err = (&settling{Settlement: o, view: v}).settle()
		return err
	})
	return decisions, err
}

func (c *settling) settle() ([]quota.Decision, error) {
	v := c.view
	c.look()
	// A settlement has passed over the keys that were not in its call. It is repeated although these are in the call
	// now.
	if past, known := v.pastHold(c.Key, c.ID); known && (!c.found || c.head == nil && !past.lapsed) {
		switch {
		case past.lapsed:
			return nil, store.ErrLapsed
		case past.quantity != c.Quantity:
			return nil, store.ErrSettled(past.quantity)
		}
		c.Found, c.Repeated = true, true
		return past.settled, nil
	}
	if !c.found && !c.Force {
		return nil, store.ErrNoHold
	}
	for i := range c.Requests {
		if err := c.check(i); err != nil {
			return nil, err
		}
	}
	decisions := make([]quota.Decision, len(c.Requests))
	c.Found = c.found
	c.Charged = make([]int64, len(c.Requests))
	for i := range c.Requests {
		var err error
		if o := &c.held[i]; o.Unit > 0 {
			c.Charged[i] = o.Quantity
		}
		if decisions[i], err = c.correct(i); err != nil {
			return nil, err
		}
	}
	c.end(decisions)
	return decisions, nil
}

// look finds the hold on the keys of the call, and sets head, held and found.
func (c *settling) look() {
	if o, found := c.find(c.Key); found {
		c.head = &o
	}
	c.held = make([]hold.Open, len(c.Requests))
	for i := range c.Requests {
		if key := c.Requests[i].Key; string(key) != string(c.Key) {
			c.held[i], _ = c.find(key)
		} else if c.head != nil {
			c.held[i] = *c.head
		}
	}
}

func (c *settling) find(key []byte) (hold.Open, bool) {
	k, _ := c.view.lockedShard(key).held(key, c.view.now)
	o, found := k.Find(c.ID)
	c.found = c.found || found
	return o, found
}

// charge returns what the hold has charged on the key of a request, and whether to correct it.
func (c *settling) charge(i int) (charged int64, corrects bool) {
	o, r := &c.held[i], &c.Requests[i]
	switch {
	case o.Unit > 0:
		return o.Quantity, true
	case c.head != nil && c.head.Quantity > 0 && !c.Skip: // the policy did not have this limit when the hold was made
		return min(c.head.Quantity, r.Quantity), true
	default: // an empty hold, or none
		return 0, c.Force && !c.found
	}
}

// check returns the error that the correction of a request would get. Nothing changes.
func (c *settling) check(i int) error {
	r := &c.Requests[i]
	s, h := c.view.lockedShard(r.Key), c.view.memory.hash(r.Key)
	if !s.pages.canAdd(1) {
		return store.ErrFull
	}
	now := s.lastInstant
	at, err := s.lookup(h, r.Key, now, r.Rule.Kind)
	if err != nil {
		return err
	}
	p := plan{at: at}
	if charged, corrects := c.charge(i); corrects && charged < r.Quantity {
		_, err = s.step(&p, now, &r.Rule, r.Quantity-charged, quota.Force)
		return err
	}
	_, err = s.step(&p, now, &r.Rule, 0, quota.Peek)
	return err
}

// correct corrects the charge on the key of a request. It returns the decision about a quantity of 0 after the
// correction, with the corrected quantity as Taken.
func (c *settling) correct(i int) (d quota.Decision, err error) {
	r, o := &c.Requests[i], &c.held[i]
	s, h := c.view.lockedShard(r.Key), c.view.memory.hash(r.Key)
	now := s.lastInstant
	charged, corrects := c.charge(i)
	var at keySlot
	corrected := int64(0)
	change := func(p *hold.Path) bool {
		switch {
		case !corrects:
		case charged < r.Quantity:
			corrected = r.Quantity - charged
			_, err = s.take(h, r.Key, now, &r.Rule, corrected, quota.Force)
		case o.Unit > 0:
			corrected, err = s.giveBack(h, r.Key, p, o, charged-r.Quantity, &r.Rule)
		}
		if err == nil {
			at, err = s.lookup(h, r.Key, now, r.Rule.Kind)
		}
		p.Last = lastTAT(&at, &r.Rule)
		return err == nil
	}
	if o.Unit == 0 {
		change(&hold.Path{})
	} else if k, _ := s.held(r.Key, now); k.Settle(c.ID, byte(r.Rule.Kind), now, change) {
		s.keepHolds(r.Key, &k, -1, nil)
	} else {
		s.keepHolds(r.Key, &k, 0, nil)
	}
	if err != nil {
		return d, err
	}
	d, err = s.step(&plan{at: at}, now, &r.Rule, 0, quota.Peek)
	d.Limited, d.RetryAfter, d.Taken = false, quota.Never, corrected
	return d, err
}

// giveBack gives back as much of quantity as a hold may give back, and returns this amount as a negative quantity.
func (s *shard) giveBack(
	h keyHash, key []byte, p *hold.Path, o *hold.Open, quantity int64, rule *limit.Rule,
) (int64, error) {
	at, err := s.lookup(h, key, s.lastInstant, rule.Kind)
	if err != nil {
		return 0, err
	}
	level := s.levelOf(&at, rule, o.Counter)
	if level <= 0 || rule.Kind == limit.SlidingLog && s.tooLong(at.record) || quantity > math.MaxInt64/o.Unit {
		return 0, nil
	}
	given := min(p.Correct(o.Number, o.Counter, quantity*o.Unit), level)
	if given <= 0 {
		return 0, nil
	}
	s.lower(&at, rule, o.Counter, given)
	return -(given / o.Unit), nil
}

func (s *shard) tooLong(r record) bool { return s.logEntries(r).Len() > MaxHeldEntries }

// lower lowers the level of a counter of a live key, and removes the key if it becomes empty.
func (s *shard) lower(at *keySlot, rule *limit.Rule, c hold.Counter, by int64) {
	r := at.record
	expires := r.expires()
	empty := false
	switch rule.Kind {
	case limit.Throttle:
		expires -= by
		empty = expires <= s.lastInstant
	case limit.Quota:
		used := r.calendar().Used - by
		if empty = used <= 0; !empty {
			r.setCalendar(used, r.cycle())
		}
	case limit.SlidingLog:
		s.lowerLog(at, c, by)
		return
	default:
		next := rule.Kind.Plain().GiveBack(rule, s.lastInstant, r.plain(), c, by)
		if empty = next == (limit.State{}); !empty {
			r.setNumbers(&next.Numbers)
			expires = next.End
		}
	}
	if empty {
		s.removeKey(at)
		return
	}
	s.commit(at, expires)
}

// lowerLog is lower for a log.
func (s *shard) lowerLog(at *keySlot, c hold.Counter, by int64) {
	var edits []window.Edit
	next := window.GiveBackLog(at.record.logState(), s.logEntries(at.record), c.At, by, func(e window.Edit) {
		edits = append(edits, e)
	})
	if next == (window.Log{}) {
		s.removeKey(at)
		return
	}
	for _, e := range edits {
		_ = s.editLog(at, e) // the log gets no longer than it was, so it has the memory
	}
	at.record.setField(0, int64(next.Base))
	at.record.setField(1, next.Until)
	s.commit(at, next.End)
}

// end ends the hold on the first key of its call, if no request has corrected it there, and remembers the settlement.
func (c *settling) end(decisions []quota.Decision) {
	v := c.view
	s := v.lockedShard(c.Key)
	past := hold.Open{ID: string(c.ID)}
	if c.head != nil {
		past = *c.head
	}
	if k, _ := s.held(c.Key, v.now); k.Close(c.ID) {
		s.keepHolds(c.Key, &k, -1, nil)
	}
	s.rememberHold(v.now, c.Key, v.now+int64(c.Remember), &past, outcome{quantity: c.Quantity, settled: decisions})
}
