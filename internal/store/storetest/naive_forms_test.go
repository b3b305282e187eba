package storetest

import (
	"context"
	"slices"

	"cellserver/internal/form"
	"cellserver/internal/lease"
	"cellserver/internal/limit"
	"cellserver/internal/store"
)

func (v *naiveView) ReadForm(_ context.Context, key []byte, dst []byte) ([]byte, store.Entry, error) {
	defer v.lock()()
	name, now := v.name(key), v.advance(v.now)
	v.touch(name, now)
	h := v.live(name, now)
	if h.kind == limit.None || h.kind.IsValue() && !v.has(formsOfValues) {
		return dst, h.entry(), nil
	}
	state := form.State{Kind: h.kind, TAT: h.expires, Plain: h.plain, Log: h.log, Entries: h.entries,
		Quota: h.quota, Cycle: h.cycle, Standing: h.stands}
	if h.kind.IsValue() {
		state.Kind = limit.None
	}
	if v.has(formsOfEnded) {
		now = 0
	}
	if h.kind == limit.Lease {
		state.Leases = slices.Collect(h.leases.Holders(now))
	}
	return form.Append(dst, &state), h.entry(), nil
}

func (v *naiveView) WriteForm(_ context.Context, key []byte, state *form.State) error {
	defer v.lock()()
	name, now := v.name(key), v.advance(v.now)
	next := keyState{
		kind: state.Kind, expires: state.Expires(), plain: state.Plain, log: state.Log,
		entries: slices.Clone(state.Entries), quota: state.Quota, cycle: state.Cycle,
		stands: state.Standing,
	}
	if next.kind == limit.Quota {
		next.expires = v.quotaExpiry(next.quota, now)
	}
	if v.has(formsKept) {
		next.entries = state.Entries
	}
	if v.has(formsForgetUntil) {
		next.plain.Numbers[untilAt], next.log.Until = 0, 0
	}
	if next.kind == limit.Lease {
		next.leases = lease.Of(state.Leases)
	}
	was := v.live(name, now)
	switch {
	case v.refusesGrowth(name, was, next) && !v.has(noGrowthForms):
		return store.ErrFull
	case was.kind != limit.None && was.kind != next.kind && v.has(formsOfOneKind):
		return store.ErrWrongKind
	case v.has(quietForms):
		v.database().set(name, next)
		return nil
	case next.expires <= now && v.has(formsExpired):
		next.expires = now + 1
	}
	v.store(name, now, next)
	return nil
}
