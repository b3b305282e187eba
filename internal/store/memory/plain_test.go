package memory

import (
	"slices"

	"cellserver/internal/gcra"
	"cellserver/internal/lease"
	"cellserver/internal/quota"
	"cellserver/internal/store"
	"cellserver/internal/window"
)

// plain is what a key holds, as the packages that decide have it and with nothing around it: the
// models of this package's tests are made of it. Nothing that it points to is ever changed: a step
// makes another.
type plain struct {
	kind    store.Kind
	expires int64 // of a Throttle its TAT
	fixed   window.Fixed
	sliding window.Sliding
	log     window.Log
	entries plainEntries
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

// at is what is left of it at an instant.
func (p plain) at(now int64) plain {
	if p.expires <= now {
		return plain{}
	}
	return p
}

func (p plain) entry() store.Entry { return store.Entry{Kind: p.kind, Expires: p.expires} }

// take is one step of a rule; next is p itself if nothing is to be kept.
func (p plain) take(now int64, rule *store.Rule, quantity int64,
	mode quota.Mode) (d quota.Decision, next plain, err error) {
	if size := plainSize(rule); size == 0 && quantity > 0 && mode != quota.Force {
		return quota.Decision{Limited: true, RetryAfter: quota.Never}, p, nil
	}
	if p.kind != store.None && p.kind != rule.Kind {
		return d, p, store.ErrWrongKind
	}
	next, changed := plain{kind: rule.Kind}, false
	switch rule.Kind {
	case store.Throttle:
		d, next.expires, err = rule.Throttle.Step(now, p.expires, quantity, mode)
		changed = next.expires != p.expires
	case store.Fixed:
		d, next.fixed, err = rule.Window.StepFixed(now, p.fixed, quantity, mode)
		next.expires, changed = next.fixed.End, next.fixed != p.fixed
	case store.Sliding:
		d, next.sliding, err = rule.Window.StepSliding(now, p.sliding, quantity, mode)
		next.expires, changed = next.sliding.End, next.sliding != p.sliding
	case store.SlidingLog:
		var edit window.Edit
		if d, next.log, edit, err = rule.Log.StepLog(now, p.log, p.entries, quantity, mode); edit != (window.Edit{}) {
			next.entries, next.expires, changed = p.entries.after(edit), next.log.End, true
		}
	}
	if !changed || err != nil {
		return d, p, err
	}
	return d, next.at(now), nil
}

func plainSize(rule *store.Rule) int64 {
	return map[store.Kind]int64{store.Throttle: rule.Throttle.Size(), store.Fixed: rule.Window.Size(),
		store.Sliding:    rule.Window.Size(),
		store.SlidingLog: rule.Log.Size()}[rule.Kind]
}

// untaken is what a limiter of several says where nothing was taken: whether alone it would have
// been, and what there is.
func (p plain) untaken(now int64, rule *store.Rule, said quota.Decision) quota.Decision {
	if said.Limited {
		return said
	}
	is, _, _ := p.take(now, rule, 0, quota.Peek)
	said.Remaining, said.ResetAfter, said.Taken = is.Remaining, is.ResetAfter, 0
	return said
}

// withLeases is what a key holds once a step has changed a copy of its leases as change says; p
// itself if it changed nothing.
func (p plain) withLeases(change func(*lease.Leases) (changed bool)) (plain, error) {
	own := &lease.Leases{}
	switch {
	case p.kind != store.None && p.kind != store.Lease:
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
	return plain{kind: store.Lease, expires: own.Expires(), leases: own}, nil
}

// holders are its leases at an instant.
func (p plain) holders(now int64) []lease.Lease {
	if p.leases == nil {
		return nil
	}
	return slices.Collect(p.leases.Holders(now))
}

func (p plain) equal(o plain) bool {
	return p.kind == o.kind && p.expires == o.expires && p.fixed == o.fixed && p.sliding == o.sliding && p.log == o.log &&
		slices.Equal(p.entries, o.entries) && slices.Equal(p.holders(0), o.holders(0))
}

// takers are the kinds that Take knows.
var takers = []store.Kind{store.Throttle, store.Fixed, store.Sliding, store.SlidingLog}

// plainRule is a limit of size at once and in each period, in seconds. Its arguments are good.
func plainRule(kind store.Kind, size, period int64) *store.Rule {
	r, err := &store.Rule{Kind: kind}, error(nil)
	if kind == store.Throttle {
		r.Throttle, err = gcra.NewLimit(size-1, max(size, 1), period)
	} else if r.Window, err = window.NewLimit(size, period); err == nil {
		r.Log, err = window.NewLogLimit(size, period, 100_000)
	}
	if err != nil {
		panic(err)
	}
	return r
}

func plainRequest(limit, ttl int64, holder string, quantity int64) lease.Request {
	r, err := lease.NewRequest(limit, ttl, []byte(holder), quantity)
	if err != nil {
		panic(err)
	}
	return r
}
