package storetest

import (
	"context"

	"cellserver/internal/form"
	"cellserver/internal/gcra"
	"cellserver/internal/lease"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// naiveNoGrowth is a view of the naive store without growth.
type naiveNoGrowth struct{ *naiveView }

func (v *naiveView) WithoutGrowth() store.View { return naiveNoGrowth{v} }

func (v naiveNoGrowth) within(step func()) {
	v.noGrowth = true
	defer func() { v.noGrowth = false }()
	step()
}

func (v naiveNoGrowth) Throttle(
	_ context.Context, key []byte, limit gcra.Limit, quantity int64, mode quota.Mode,
) (o gcra.Outcome, err error) {
	v.within(func() { o, err = v.naiveView.Throttle(ctx, key, limit, quantity, mode) })
	return o, err
}

func (v naiveNoGrowth) Take(
	_ context.Context, key []byte, rule *store.Rule, quantity int64, mode quota.Mode,
) (d quota.Decision, err error) {
	v.within(func() { d, err = v.naiveView.Take(ctx, key, rule, quantity, mode) })
	return d, err
}

func (v naiveNoGrowth) TakeAll(_ context.Context, requests []store.LimitRequest,
	peek bool) (d []quota.Decision, ok bool, err error) {
	v.within(func() { d, ok, err = v.naiveView.TakeAll(ctx, requests, peek) })
	return d, ok, err
}

func (v naiveNoGrowth) Acquire(_ context.Context, key []byte, r lease.Request,
	maxHolders int) (d quota.Decision, err error) {
	v.within(func() { d, err = v.naiveView.Acquire(ctx, key, r, maxHolders) })
	return d, err
}

func (v naiveNoGrowth) WriteForm(_ context.Context, key []byte, state *form.State) (err error) {
	v.within(func() { err = v.naiveView.WriteForm(ctx, key, state) })
	return err
}

// refusesGrowth reports whether a step needs memory that it must not take.
func (v *naiveView) refusesGrowth(name string, was, next keyState) bool {
	if !v.noGrowth || v.has(noGrowthAdds) {
		return false
	}
	if was.kind != store.None && v.has(noGrowthGrows) {
		return false
	}
	return v.has(noGrowthRefusesAll) || v.needsMemory(name, was, next)
}

// needsMemory reports whether a step needs memory. It needs none if it can reuse that of an expired
// key.
func (v *naiveView) needsMemory(name string, was, next keyState) bool {
	stood, _ := v.database().get(name)
	return next.needsMoreThan(was) && !(was.kind == store.None && stood.reusable(v.last, next.kind))
}

// reusable reports whether an expired state can be reused for a kind.
func (h keyState) reusable(now int64, kind store.Kind) bool {
	return h.kind == kind && h.expires <= now
}

// needsMoreThan reports whether a state takes more memory than the previous one. A log has room for
// eight entries.
func (h keyState) needsMoreThan(was keyState) bool {
	return h.kind != store.None && (was.kind == store.None || len(h.entries) > max(8, len(was.entries)))
}

// fitsWithoutGrowth reports whether taking all needs no memory, and marks the decisions that need
// some as limited.
func (v *naiveView) fitsWithoutGrowth(requests []store.LimitRequest, now int64, decisions []quota.Decision) bool {
	spared := true
	for i, t := range requests {
		name := v.name(t.Key)
		was := v.live(name, now)
		_, next, changed, _ := was.take(now, t.Rule, t.Quantity, quota.Take)
		decisions[i].Limited = changed && v.needsMemory(name, was, next)
		spared = spared && !decisions[i].Limited
	}
	return spared || v.has(noGrowthTakesHalf)
}

// reportUntaken changes decisions to what remains if nothing is taken.
func (v *naiveView) reportUntaken(requests []store.LimitRequest, now int64, decisions []quota.Decision) {
	for i, t := range requests {
		if d := &decisions[i]; !d.Limited {
			peeked, _, _, _ := v.live(v.name(t.Key), now).take(now, t.Rule, 0, quota.Peek)
			d.Remaining, d.ResetAfter, d.Taken = peeked.Remaining, peeked.ResetAfter, 0
		}
	}
}

// forgetting returns the state as if only the latest period counted.
func (h keyState) forgetting(rule store.Rule) keyState {
	h.sliding.Until, h.log.Until = 0, 0
	if h.kind == store.Fixed {
		h.fixed.End = h.fixed.Start + int64(rule.Window.Period())
		h.expires = h.fixed.End
	}
	return h
}
