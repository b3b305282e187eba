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
	view   *view
	head   hold.Open // the hold on the first key of the call that made it, if it is there
	open   bool      // this hold is there
	shared bool      // two keys are in one shard: correcting one may move the other
}

// correction is a request of a settlement.
type correction struct {
	*store.LimitRequest
	shard *shard
	held  hold.Open // the hold on its key; without a Unit if it has charged nothing there
	plan  plan
}

// fewCorrections is the number of requests that a call corrects on its stack.
const fewCorrections = 2

// Settle corrects what a hold has charged. A correction is made although memory is short.
func (v *view) Settle(_ context.Context, o *store.Settlement) ([]quota.Decision, error) {
	var few [fewCorrections]correction
	all := few[:min(len(o.Requests), fewCorrections)]
	if len(o.Requests) > fewCorrections {
		all = make([]correction, len(o.Requests))
	}
	c := settling{Settlement: o, view: &v.viewState.view}
	first := v.hash(o.Key)
	var locked lockSet
	locked.add(first.shard)
	for i := range all {
		r := &o.Requests[i]
		h := first
		if string(r.Key) != string(o.Key) {
			h = v.hash(r.Key)
			c.shared = c.shared || locked.has(h.shard)
		}
		locked.add(h.shard)
		all[i].LimitRequest, all[i].plan.at = r, keySlot{hash: h, key: r.Key}
	}
	db, now := v.lockShards(locked)
	defer v.unlock(db, locked)
	v.now = now
	for i := range all {
		all[i].shard = &db.shards[all[i].plan.at.hash.shard]
		all[i].shard.advance(now)
	}
	s := &db.shards[first.shard]
	s.advance(now)
	return c.settle(s, first, all)
}

// settle makes the call. Its first key is in shard s, and has a hash.
func (c *settling) settle(s *shard, h keyHash, all []correction) ([]quota.Decision, error) {
	if c.look(s, h, all); !c.open {
		past, known := c.view.pastHold(c.Key, c.ID)
		// A settlement has passed over the keys that were not in its call. It is repeated although these are in the
		// call now.
		repeats := known && (!c.Found || !past.lapsed)
		switch {
		case !repeats && !c.Found && !c.Force:
			return nil, store.ErrNoHold
		case !repeats:
		case past.lapsed:
			return nil, store.ErrLapsed
		case past.quantity != c.Quantity:
			return nil, store.ErrSettled(past.quantity)
		default:
			c.Found, c.Repeated = true, true
			return past.settled, nil
		}
	}
	for i := range all {
		if err := c.prepare(&all[i]); err != nil {
			return nil, err
		}
	}
	decisions := c.view.decisionSlice(len(all))
	c.Charged = c.Charged[:0]
	for i := range all {
		r, charged := &all[i], int64(0)
		if r.held.Unit > 0 {
			charged = r.held.Quantity
		}
		c.Charged = append(c.Charged, charged)
		var err error
		if decisions[i], err = c.correct(r); err != nil {
			return nil, err
		}
	}
	c.end(s, h, decisions)
	return decisions, nil
}

// look finds the hold on the keys of the call, and sets head, open, held and Found.
func (c *settling) look(s *shard, h keyHash, all []correction) {
	k := s.held(h, c.Key, s.lastInstant)
	c.Work = len(k.Bytes())
	if c.head, c.open = k.Find(c.ID); c.open {
		c.view.reply = append(c.view.reply[:0], c.head.Reply...) // the book will change
		c.head.ID, c.head.Reply = c.ID, c.view.reply
	}
	c.Found = c.open
	for i := range all {
		r := &all[i]
		if string(r.Key) == string(c.Key) {
			r.held = c.head
			continue
		}
		var found bool
		k := r.shard.held(r.plan.at.hash, r.Key, r.shard.lastInstant)
		c.Work += len(k.Bytes())
		r.held, found = k.Find(c.ID)
		c.Found = c.Found || found
	}
}

// charge returns what the hold has charged on the key of a request, and whether to correct it.
func (c *settling) charge(r *correction) (charged int64, corrects bool) {
	switch {
	case r.held.Unit > 0:
		return r.held.Quantity, true
	case c.head.Quantity > 0 && !c.Skip: // the policy did not have this limit when the hold was made
		return min(c.head.Quantity, r.Quantity), true
	default: // an empty hold, or none
		return 0, c.Force && !c.Found
	}
}

// prepare plans an excess of a request. If it returns no error for any request of the call, no correction has one: if a
// shard is short of page numbers, no excess may need memory, as in stepOnAll.fits.
func (c *settling) prepare(r *correction) error {
	s := r.shard
	now := s.lastInstant
	if err := s.fill(&r.plan.at, now, r.Rule.Kind); err != nil {
		return err
	}
	quantity, mode := int64(0), quota.Peek
	if charged, corrects := c.charge(r); corrects && charged < r.Quantity {
		quantity, mode = r.Quantity-charged, quota.Force
	}
	_, err := s.step(&r.plan, now, &r.Rule, quantity, mode)
	if err == nil && quantity > 0 && !s.pages.canAdd(len(c.Requests)) && s.needsMemory(&r.plan, r.LimitRequest) {
		return store.ErrFull
	}
	return err
}

// correct corrects the charge on the key of a request. It returns the decision about a quantity of 0 after the
// correction, with the corrected quantity as Taken.
func (c *settling) correct(r *correction) (d quota.Decision, err error) {
	s, at, kind := r.shard, &r.plan.at, r.Rule.Kind
	now := s.lastInstant
	if c.shared {
		if err := s.fill(at, now, kind); err != nil {
			return d, err
		}
	}
	var k heldKey
	var e hold.Event
	if r.held.Unit > 0 {
		k = s.held(at.hash, r.Key, now)
		e = k.Begin(byte(kind), now)
	}
	corrected := int64(0)
	switch charged, corrects := c.charge(r); {
	case !corrects:
	case charged < r.Quantity:
		corrected = r.Quantity - charged
		err = s.save(&r.plan, kind)
	case r.held.Unit > 0:
		if kind == limit.SlidingLog && at.live {
			c.Work += s.logEntries(at.record).Len() * entryBytes
		}
		corrected = s.giveBack(at, &e.Path, &r.held, charged-r.Quantity, &r.Rule)
	}
	if err != nil {
		return d, err
	}
	at.live = at.record != nil
	if r.held.Unit > 0 {
		e.Last = lastTAT(at, &r.Rule)
		c.open = c.open && string(r.Key) != string(c.Key)
		s.endHold(&k, &e, c.ID)
	}
	d, err = s.step(&r.plan, now, &r.Rule, 0, quota.Peek)
	d.Limited, d.RetryAfter, d.Taken = false, quota.Never, corrected
	return d, err
}

// endHold ends the hold of a key in the event that has corrected it.
func (s *shard) endHold(k *heldKey, e *hold.Event, id []byte) {
	if k.Len() == 1 { // nothing is left that must be written
		k.Book = hold.Book{}
	} else {
		e.Close(id)
		k.End(e)
	}
	s.keepHolds(k, -1, nil)
}

// giveBack gives back as much of quantity as a hold may give back, and returns this amount as a negative quantity.
func (s *shard) giveBack(at *keySlot, p *hold.Path, o *hold.Open, quantity int64, rule *limit.Rule) int64 {
	level := s.levelOf(at, rule, o.Counter)
	if level <= 0 || rule.Kind == limit.SlidingLog && s.tooLong(at.record) || quantity > math.MaxInt64/o.Unit {
		return 0
	}
	given := min(p.Correct(o.Number, o.Counter, quantity*o.Unit), level)
	if given <= 0 {
		return 0
	}
	s.lower(at, rule, o.Counter, given)
	return -(given / o.Unit)
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
func (c *settling) end(s *shard, h keyHash, decisions []quota.Decision) {
	now := s.lastInstant
	if c.open {
		k := s.held(h, c.Key, now)
		k.Close(c.ID)
		s.keepHolds(&k, -1, nil)
	}
	c.head.ID = c.ID
	s.rememberHold(now, c.Key, now+int64(c.Remember), &c.head, outcome{quantity: c.Quantity, settled: decisions})
}
