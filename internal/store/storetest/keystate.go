package storetest

import (
	"cellserver/internal/calendar"
	"cellserver/internal/lease"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/standing"
	"cellserver/internal/store"
	"cellserver/internal/window"
)

// keyState is the content of a key in terms of the algorithms' packages, for comparison with what a
// store returns. It is immutable: a step makes another one.
type keyState struct {
	kind    limit.Kind
	expires int64 // for Throttle, the TAT
	plain   limit.State
	log     window.Log
	entries entries
	quota   window.Calendar
	cycle   calendar.Cycle
	wall    wallTime
	leases  *lease.Leases
	stands  standing.State
	value   string // for Integer and Bytes
}

// wallTime is the wall clock as a step on a calendar quota sees it. The zero value is for a wall
// clock that has never been set.
type wallTime struct {
	offset int64 // to be added to an instant of the store
	latest int64 // the latest Unix time that it has shown, if it has been set back
}

// entries is the list of a log's entries, oldest first.
type entries []window.Entry

func (e entries) Len() int              { return len(e) }
func (e entries) At(i int) window.Entry { return e[i] }

func (e entries) after(edit window.Edit) entries {
	next := append(entries{}, e[edit.Drop:len(e)-edit.Cut]...)
	if edit.Push {
		next = append(next, edit.Entry)
	}
	return next
}

// at returns the state at an instant: the zero keyState if it has expired.
func (h keyState) at(now int64) keyState {
	if h.expires <= now {
		return keyState{}
	}
	return h
}

func (h keyState) entry() store.Entry { return store.Entry{Kind: h.kind, Expires: h.expires} }

// take makes one step of a rule. The result need be stored only if changed is true.
func (h keyState) take(now int64, rule limit.Rule, quantity int64,
	mode quota.Mode) (d quota.Decision, next keyState, changed bool, err error) {
	next = keyState{kind: rule.Kind}
	switch rule.Kind {
	case limit.Throttle:
		d, next.expires, err = rule.Throttle.Step(now, h.expires, quantity, mode)
		changed = next.expires != h.expires
	case limit.SlidingLog:
		var edit window.Edit
		d, next.log, edit, err = rule.Log.StepLog(now, h.log, h.entries, quantity, mode)
		next.entries, next.expires, changed = h.entries.after(edit), next.log.End, edit != window.Edit{}
	case limit.Quota:
		return h.takeQuota(now, rule, quantity, mode)
	default:
		d, next.plain, err = rule.Kind.Plain().Step(&rule, now, h.plain, quantity, mode)
		next.expires, changed = next.plain.End, next.plain != h.plain
	}
	return d, next.at(now), changed, err
}

// takeLeaving is take for a call that leaves n of the limit.
func (h keyState) takeLeaving(now, n int64, rule limit.Rule, quantity int64,
	mode quota.Mode) (d quota.Decision, next keyState, changed bool, err error) {
	d, err = quota.Leave(n, quantity, mode, func(quantity int64, mode quota.Mode) (d quota.Decision, err error) {
		d, next, changed, err = h.take(now, rule, quantity, mode)
		changed = changed && mode != quota.Peek
		return d, err
	})
	return d, next, changed, err
}

func (h keyState) takeQuota(now int64, rule limit.Rule, quantity int64,
	mode quota.Mode) (d quota.Decision, next keyState, changed bool, err error) {
	unix, state := now+h.wall.offset, h.quota
	switch {
	case h.kind == limit.None:
		state = window.Calendar{End: rule.Cycle.End(max(unix, h.wall.latest))}
	case h.cycle != rule.Cycle:
		return d, h, false, &store.CycleError{Cycle: h.cycle}
	}
	next = keyState{kind: limit.Quota, cycle: rule.Cycle}
	d, next.quota, err = rule.Window.StepCalendar(unix, state, quantity, mode)
	if changed = next.quota.Used != state.Used; next.quota.Used == 0 {
		return d, keyState{}, changed, err
	}
	next.expires = next.quota.End - h.wall.offset
	return d, next, changed, err
}

// ownLeases returns a copy of the leases, which a step may change.
func (h keyState) ownLeases() *lease.Leases {
	if h.leases == nil {
		return &lease.Leases{}
	}
	return h.leases.Clone()
}

// withLeases returns the state of a key with these leases.
func withLeases(l *lease.Leases) keyState {
	if l.Len() == 0 {
		return keyState{}
	}
	return keyState{kind: limit.Lease, expires: l.Expires(), leases: l}
}
