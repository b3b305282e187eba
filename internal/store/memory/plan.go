package memory

import (
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
	"cellserver/internal/window"
)

// plan is the change that a step makes to one key: computed, but not stored yet. A step on one key stores its plan at
// once; TakeAll stores the plans of all keys when all requests have been decided.
type plan struct {
	at      keySlot
	change  change
	expires int64                   // the next expiry of the record
	numbers [limit.MaxNumbers]int64 // the next value of the record
	edit    window.Edit
}

// change says what a plan does with a key.
type change uint8

const (
	keeps   change = iota // nothing is stored
	writes                // its record is written, or created
	removes               // its record is removed
)

// step decides a quantity by a rule that does not block it, at the instant now, and plans the change of the key. It may
// be called again for the same key: the last plan counts.
func (s *shard) step(p *plan, now int64, rule *limit.Rule, quantity int64, mode quota.Mode) (quota.Decision, error) {
	switch p.change = keeps; rule.Kind {
	case limit.Throttle:
		return p.throttle(now, rule, quantity, mode)
	case limit.Fixed:
		return p.fixed(now, rule, quantity, mode)
	case limit.Sliding:
		return p.sliding(now, rule, quantity, mode)
	case limit.Quota:
		return s.planQuota(p, now, rule, quantity, mode)
	case limit.SlidingLog:
		return s.planLog(p, now, rule, quantity, mode)
	default:
		return p.plain(now, rule, quantity, mode)
	}
}

// set plans a change, unless the state stays as it is.
func (p *plan) set(changed, empty bool, expires int64) {
	switch {
	case changed && empty:
		p.change = removes
	case changed:
		p.change, p.expires = writes, expires
	}
}

func (p *plan) throttle(now int64, rule *limit.Rule, quantity int64, mode quota.Mode) (quota.Decision, error) {
	var tat int64
	if p.at.live {
		tat = p.at.record.expires()
	}
	o, next, err := rule.Throttle.Outcome(now, tat, quantity, mode)
	p.set(next != tat, next <= now, next)
	return rule.Throttle.Decision(o), err
}

// fixed and sliding are plain for their kinds, without the limit.State in between, which makes calls of CL.FIXED and
// CL.SLIDING a tenth slower.
func (p *plan) fixed(now int64, rule *limit.Rule, quantity int64, mode quota.Mode) (quota.Decision, error) {
	var state window.Fixed
	if r := p.at.record; p.at.live {
		state = window.Fixed{Start: r.field(0), Used: r.field(1), End: r.expires()}
	}
	d, next, err := rule.Window.StepFixed(now, state, quantity, mode)
	p.set(next != state, next == window.Fixed{}, next.End)
	p.numbers[0], p.numbers[1] = next.Start, next.Used
	return d, err
}

func (p *plan) sliding(now int64, rule *limit.Rule, quantity int64, mode quota.Mode) (quota.Decision, error) {
	var state window.Sliding
	if r := p.at.record; p.at.live {
		state = window.Sliding{
			Start: r.field(0), Previous: r.field(1), Current: r.field(2), Until: r.field(3), End: r.expires(),
		}
	}
	d, next, err := rule.Window.StepSliding(now, state, quantity, mode)
	p.set(next != state, next == window.Sliding{}, next.End)
	p.numbers = [limit.MaxNumbers]int64{next.Start, next.Previous, next.Current, next.Until}
	return d, err
}

func (p *plan) plain(now int64, rule *limit.Rule, quantity int64, mode quota.Mode) (quota.Decision, error) {
	var state limit.State
	if p.at.live {
		state = p.at.record.plain()
	}
	d, next, err := rule.Kind.Plain().Step(rule, now, state, quantity, mode)
	p.set(next != state, next == limit.State{}, next.End)
	p.numbers = next.Numbers
	return d, err
}

// planQuota is step for a calendar quota. A key keeps the cycle that it was created with: it returns a store.CycleError
// for another.
func (s *shard) planQuota(p *plan, now int64, rule *limit.Rule, quantity int64, mode quota.Mode) (
	d quota.Decision, err error,
) {
	var state window.Calendar
	switch {
	case !p.at.live:
		state.End = rule.Cycle.End(min(max(s.store.wall.latest(now), 0), window.MaxInstant))
	case p.at.record.cycle() != rule.Cycle:
		return d, &store.CycleError{Cycle: p.at.record.cycle()}
	default:
		state = p.at.record.calendar()
	}
	d, next, err := rule.Window.StepCalendar(s.store.wall.unix(now), state, quantity, mode)
	p.set(next.Used != state.Used, next.Used == 0, -next.End)
	p.numbers[0], p.numbers[1] = next.Used, int64(rule.Cycle)
	return d, err
}

func (s *shard) planLog(p *plan, now int64, rule *limit.Rule, quantity int64, mode quota.Mode) (
	d quota.Decision, err error,
) {
	var state window.Log
	entries := emptyLog
	if p.at.live {
		state, entries = p.at.record.logState(), s.logEntries(p.at.record)
	}
	d, next, edit, err := rule.Log.StepLog(now, state, entries, quantity, mode)
	p.set(edit != window.Edit{}, next == window.Log{}, next.End)
	p.numbers[0], p.numbers[1], p.edit = int64(next.Base), next.Until, edit
	return d, err
}

// save stores a plan. If another key of the shard has changed since the key of the plan was found, it must be found
// again first. If the error is ErrFull, nothing was changed.
func (s *shard) save(p *plan, kind limit.Kind) (err error) {
	switch p.change {
	case keeps:
		return nil
	case removes:
		s.removeKey(&p.at)
		return nil
	}
	if kind == limit.SlidingLog {
		err = s.editLog(&p.at, p.edit)
	} else {
		err = s.createIfAbsent(&p.at, kind, 0)
	}
	if err != nil {
		return err
	}
	if kind != limit.Throttle { // its only number is the expiry
		p.at.record.setNumbers(&p.numbers)
	}
	s.commit(&p.at, p.expires)
	return nil
}

// needsMemory reports whether saving a plan that takes something allocates memory: for a new record, for a larger
// record of a full log, or for a lease. An expired record is reused if it is large enough.
func (s *shard) needsMemory(p *plan, t *store.LimitRequest) bool {
	if p.at.live {
		switch t.Rule.Kind {
		case limit.Lease:
			return s.leaseNeedsMemory(&p.at, t.Lease)
		case limit.SlidingLog:
			return s.logGrows(&p.at, p.edit)
		}
		return false
	}
	expired := p.at
	if expired.record, expired.position = s.find(p.at.hash, t.Key); expired.record == nil {
		return true
	}
	size := recordSize(len(t.Key), t.Rule.Kind)
	switch t.Rule.Kind {
	case limit.Lease:
		return s.leaseNeedsMemory(&expired, t.Lease)
	case limit.SlidingLog:
		if size += entryBytes; inlineCapacity(t.Key, limit.SlidingLog) < entryBytes {
			return true // with a long key, the entries are in a slab
		}
	}
	return s.pages.slotSize(expired.position.ref()) < size
}

// leaseNeedsMemory is needsMemory for a lease that is granted. It grants the lease, and then takes it back; leases in a
// record are a copy in any case.
func (s *shard) leaseNeedsMemory(at *keySlot, l *store.LeaseRequest) bool {
	now, table := s.lastInstant, s.leaseTable(at)
	held, many := table.(*keyLeases)
	if many && held.Has(l.Holder()) {
		return false
	}
	_, _, _ = table.Acquire(now, l.Request, l.MaxHolders)
	if many {
		grown := int64(held.Bytes()) > held.counted
		held.Release(now, l.Holder())
		return grown
	}
	bytes := len(s.scratchLeases.Bytes())
	return bytes > inlineCapacity(at.key, limit.Lease) ||
		recordSize(len(at.key), limit.Lease)+bytes > s.pages.slotSize(at.position.ref())
}

// logGrows reports whether an edit makes a log outgrow its memory.
func (s *shard) logGrows(at *keySlot, e window.Edit) bool {
	if !at.record.isInline() {
		return s.logs.at(at.record.stateWord()).grows(e)
	}
	ring := at.record.ring()
	return e.Left(ring.count) > len(ring.entries)/entryBytes
}
