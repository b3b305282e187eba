package memory

import (
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
	"cellserver/internal/window"
)

// plan is what a step makes of one key: computed, but not stored yet. A step on one key stores its plan at
// once; TakeAll stores the plans of all keys when all requests have been decided.
type plan struct {
	at      keySlot
	change  change
	expires int64    // what the record's expiry becomes
	fields  [4]int64 // what the value of the record becomes; how many there are depends on its kind
	edit    window.Edit
}

// change is what becomes of a key.
type change uint8

const (
	keeps   change = iota // nothing is stored
	writes                // its record is written, or created
	removes               // its record is removed
)

// planFields is the number of fields of a plan for a record of a kind.
var planFields = [limit.Kinds]int{limit.Fixed: 2, limit.Sliding: 4, limit.SlidingLog: 2, limit.Quota: 2}

// step decides a quantity of a rule, which does not block it, at the instant now, and plans what it makes of the
// key. It may be called again for the same key: the last plan counts.
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
	default:
		return s.planLog(p, now, rule, quantity, mode)
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

func (p *plan) fixed(now int64, rule *limit.Rule, quantity int64, mode quota.Mode) (quota.Decision, error) {
	var state window.Fixed
	if p.at.live {
		state = p.at.record.fixed()
	}
	d, next, err := rule.Window.StepFixed(now, state, quantity, mode)
	p.set(next != state, next == window.Fixed{}, next.End)
	p.fields[0], p.fields[1] = next.Start, next.Used
	return d, err
}

func (p *plan) sliding(now int64, rule *limit.Rule, quantity int64, mode quota.Mode) (quota.Decision, error) {
	var state window.Sliding
	if p.at.live {
		state = p.at.record.sliding()
	}
	d, next, err := rule.Window.StepSliding(now, state, quantity, mode)
	p.set(next != state, next == window.Sliding{}, next.End)
	p.fields = [4]int64{next.Start, next.Previous, next.Current, next.Until}
	return d, err
}

// planQuota is step for a calendar quota. Its key has the windows that it was created with.
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
	p.fields[0], p.fields[1] = next.Used, int64(rule.Cycle)
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
	p.fields[0], p.fields[1], p.edit = int64(next.Base), next.Until, edit
	return d, err
}

// save stores a plan. Its key must have been found since another key of the shard was changed. If the error is
// ErrFull, nothing was changed.
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
	if n := planFields[kind]; n > 0 {
		value := p.at.record.value()
		for i, field := range p.fields[:n] {
			setInteger(value[8*i:], field)
		}
	}
	s.commit(&p.at, p.expires)
	return nil
}

// needsMemory reports whether saving a plan that takes something allocates memory: for a record, or a larger
// one for a log that is full, or for a lease. An expired record is reused if it is large enough.
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

// leaseNeedsMemory is needsMemory for a request that is granted. It grants the lease, and then takes it back;
// inline leases are a copy in any case.
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
