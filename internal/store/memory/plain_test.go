package memory

import (
	"slices"
	"time"

	"cellserver/internal/calendar"
	"cellserver/internal/gcra"
	"cellserver/internal/lease"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
	"cellserver/internal/window"
)

// plain is the state of a key in terms of the algorithms' packages. This package's models consist of
// such states. It is immutable: a step makes another one.
type plain struct {
	kind    limit.Kind
	expires int64       // for Throttle, the TAT
	state   limit.State // of a plain kind
	log     window.Log
	entries plainEntries
	quota   window.Calendar
	leases  *lease.Leases
}

type plainEntries []window.Entry

func (e plainEntries) Len() int              { return len(e) }
func (e plainEntries) At(i int) window.Entry { return e[i] }

func (e plainEntries) after(edit window.Edit) plainEntries {
	next := append(plainEntries{}, e[edit.Drop:len(e)-edit.Cut]...)
	if edit.Push {
		next = append(next, edit.Entry)
	}
	return next
}

// at returns the state at an instant.
func (p plain) at(now int64) plain {
	if p.expires <= now {
		return plain{}
	}
	return p
}

func (p plain) entry() store.Entry { return store.Entry{Kind: p.kind, Expires: p.expires} }

// take makes one step of a rule; next is p itself if nothing need be stored.
func (p plain) take(now int64, rule *limit.Rule, quantity int64,
	mode quota.Mode) (d quota.Decision, next plain, err error) {
	if rule.Size() == 0 && quantity > 0 && mode != quota.Force {
		return quota.Decision{Limited: true, RetryAfter: quota.Never}, p, nil
	}
	if p.kind != limit.None && p.kind != rule.Kind {
		return d, p, store.ErrWrongKind
	}
	next, changed := plain{kind: rule.Kind}, false
	switch rule.Kind {
	case limit.Throttle:
		d, next.expires, err = rule.Throttle.Step(now, p.expires, quantity, mode)
		changed = next.expires != p.expires
	case limit.SlidingLog:
		var edit window.Edit
		if d, next.log, edit, err = rule.Log.StepLog(now, p.log, p.entries, quantity, mode); edit != (window.Edit{}) {
			next.entries, next.expires, changed = p.entries.after(edit), next.log.End, true
		}
	case limit.Quota:
		state := p.quota
		if p.kind == limit.None {
			state.End = rule.Cycle.End(now)
		}
		d, next.quota, err = rule.Window.StepCalendar(now, state, quantity, mode)
		if changed = next.quota.Used != state.Used; next.quota.Used > 0 {
			next.expires = next.quota.End
		}
	default:
		d, next.state, err = rule.Kind.Plain().Step(rule, now, p.state, quantity, mode)
		next.expires, changed = next.state.End, next.state != p.state
	}
	if !changed || err != nil {
		return d, p, err
	}
	return d, next.at(now), nil
}

// request makes one request of several.
func (p plain) request(now int64, t *store.LimitRequest) (d quota.Decision, next plain, err error) {
	if t.Lease == nil {
		return p.take(now, &t.Rule, t.Quantity, t.Mode)
	}
	var refused error
	next, err = p.withLeases(func(l *lease.Leases) (changed bool) {
		d, changed, refused = l.Acquire(now, t.Lease.Request, t.Lease.MaxHolders)
		return changed
	})
	if err == nil {
		err = refused
	}
	return d, next, err
}

// allows reports whether a decision allows the other requests.
func allows(t *store.LimitRequest, d quota.Decision) bool { return !d.Limited || t.Mode == quota.Force }

// untaken returns the decision for one key of several if nothing is taken: whether it alone would
// have been limited, and what remains.
func (p plain) untaken(now int64, t *store.LimitRequest, said quota.Decision) quota.Decision {
	if !allows(t, said) {
		return said
	}
	is := quota.Decision{Remaining: said.Limit}
	if t.Lease == nil {
		is, _, _ = p.take(now, &t.Rule, 0, quota.Peek)
	}
	for _, l := range p.at(now).holders(now) {
		is.Remaining, is.ResetAfter = max(is.Remaining-l.Quantity, 0), l.End-now
	}
	return quota.Decision{Limit: said.Limit, Remaining: is.Remaining, RetryAfter: quota.Never, ResetAfter: is.ResetAfter}
}

// withLeases returns the state after change has changed a copy of the leases; p itself if it
// changed nothing.
func (p plain) withLeases(change func(*lease.Leases) (changed bool)) (plain, error) {
	own := &lease.Leases{}
	switch {
	case p.kind != limit.None && p.kind != limit.Lease:
		return p, store.ErrWrongKind
	case p.leases != nil:
		own = p.leases.Clone()
	}
	if !change(own) {
		return p, nil
	}
	if own.Len() == 0 {
		return plain{}, nil
	}
	return plain{kind: limit.Lease, expires: own.Expires(), leases: own}, nil
}

// holders returns the leases at an instant.
func (p plain) holders(now int64) []lease.Lease {
	if p.leases == nil {
		return nil
	}
	return slices.Collect(p.leases.Holders(now))
}

func (p plain) equal(o plain) bool {
	return p.kind == o.kind && p.expires == o.expires && p.state == o.state && p.log == o.log &&
		p.quota == o.quota && slices.Equal(p.entries, o.entries) && slices.Equal(p.holders(0), o.holders(0))
}

// takers lists the kinds that Take supports.
var takers = limit.OfPolicies[:]

// plainRule returns a rule for a limit of size at once and per period, in seconds. The arguments
// must be valid. The windows of a quota are of 3 seconds, whatever the period is, because those of
// a key cannot change.
func plainRule(kind limit.Kind, size, period int64) *limit.Rule {
	r, err := &limit.Rule{Kind: kind, Cycle: calendar.Every(3 * time.Second)}, error(nil)
	if kind == limit.Throttle {
		r.Throttle, err = gcra.NewLimit(size-1, max(size, 1), quota.Seconds(period))
	} else if r.Window, err = window.NewLimit(size, quota.Seconds(period)); err == nil {
		r.Log, err = window.NewLogLimit(size, quota.Seconds(period), 100_000)
	}
	if err != nil {
		panic(err)
	}
	return r
}

func plainRequest(limit, ttl int64, holder string, quantity int64) lease.Request {
	r, err := lease.NewRequest(limit, quota.Seconds(ttl), []byte(holder), quantity)
	if err != nil {
		panic(err)
	}
	return r
}
