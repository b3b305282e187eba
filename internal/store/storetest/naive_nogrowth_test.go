package storetest

import (
	"context"
	"math"

	"cellserver/internal/form"
	"cellserver/internal/gcra"
	"cellserver/internal/lease"
	"cellserver/internal/limit"
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
	_ context.Context, key []byte, rule *limit.Rule, quantity int64, mode quota.Mode,
) (d quota.Decision, err error) {
	v.within(func() { d, err = v.naiveView.Take(ctx, key, rule, quantity, mode) })
	return d, err
}

func (v naiveNoGrowth) TakeAll(_ context.Context, requests []store.LimitRequest,
	mode quota.Mode) (d []quota.Decision, ok bool, err error) {
	v.within(func() { d, ok, err = v.naiveView.TakeAll(ctx, requests, mode) })
	return d, ok, err
}

func (v naiveNoGrowth) Acquire(_ context.Context, key []byte, r lease.Request,
	maxHolders int) (d quota.Decision, err error) {
	v.within(func() { d, err = v.naiveView.Acquire(ctx, key, r, maxHolders) })
	return d, err
}

func (v naiveNoGrowth) Once(_ context.Context, o *store.Once) (d []quota.Decision, repeated bool, err error) {
	v.within(func() { d, repeated, err = v.once(o, v) })
	return d, repeated, err
}

func (v naiveNoGrowth) WriteForm(_ context.Context, key []byte, state *form.State) (err error) {
	v.within(func() { err = v.naiveView.WriteForm(ctx, key, state) })
	return err
}

func (v naiveNoGrowth) EditStanding(_ context.Context, key []byte, edit standingEdit) (err error) {
	v.within(func() { err = v.naiveView.EditStanding(ctx, key, edit) })
	return err
}

// refusesGrowth reports whether a step needs memory that it must not take.
func (v *naiveView) refusesGrowth(name string, was, next keyState) bool {
	if !v.noGrowth || v.has(noGrowthAdds) {
		return false
	}
	if was.kind != limit.None && v.has(noGrowthGrows) {
		return false
	}
	return v.has(noGrowthRefusesAll) || v.needsMemory(name, was, next)
}

// needsMemory reports whether a step needs memory. It needs none if it can reuse the memory of an
// expired key.
func (v *naiveView) needsMemory(name string, was, next keyState) bool {
	stood, _ := v.database().get(name)
	return next.needsMoreThan(was) && !(was.kind == limit.None && stood.reusable(v.last, next.kind))
}

// reusable reports whether an expired state can be reused for a kind.
func (h keyState) reusable(now int64, kind limit.Kind) bool {
	return h.kind == kind && h.expires <= now
}

// needsMoreThan reports whether a state takes more memory than the previous one. A log has room for
// eight entries.
func (h keyState) needsMoreThan(was keyState) bool {
	grows := len(h.entries) > max(8, len(was.entries)) ||
		len(h.stands.Ban.Reason) > max(64, len(was.stands.Ban.Reason))
	return h.kind != limit.None && (was.kind == limit.None || grows)
}

// fitsWithoutGrowth reports whether taking all needs no memory, and marks the decisions that need
// some as limited.
func (v *naiveView) fitsWithoutGrowth(requests []store.LimitRequest, now int64, decisions []quota.Decision) bool {
	spared := true
	for i, t := range requests {
		decisions[i].Limited = v.requestNeedsMemory(t, now)
		spared = spared && !decisions[i].Limited
	}
	return spared || v.has(noGrowthTakesHalf)
}

func (v *naiveView) requestNeedsMemory(t store.LimitRequest, now int64) bool {
	name := v.name(t.Key)
	was := v.live(name, now)
	if t.Lease == nil {
		_, next, changed, _ := was.take(now, t.Rule, t.Quantity, t.Mode)
		return changed && v.needsMemory(name, was, next) && !(v.has(noGrowthForces) && t.Mode == quota.Force)
	}
	l := was.ownLeases()
	again := l.Has(t.Lease.Holder())
	_, changed, _ := l.Acquire(now, t.Lease.Request, t.Lease.MaxHolders)
	return changed && !again && !v.hasReusable(name, now) && !v.has(noGrowthAcquires)
}

// hasReusable reports whether there are leases of a key that have expired.
func (v *naiveView) hasReusable(name string, now int64) bool {
	stood, _ := v.database().get(name)
	return stood.reusable(now, limit.Lease)
}

// reportUntaken changes decisions to what remains if nothing is taken. With full, a forced quantity is
// limited if there is no memory for it.
func (v *naiveView) reportUntaken(requests []store.LimitRequest, now int64, full bool, decisions []quota.Decision) {
	for i, t := range requests {
		d := &decisions[i]
		if d.Limited && (full || t.Mode != quota.Force) {
			continue
		}
		h := v.live(v.name(t.Key), now)
		var is quota.Decision
		switch {
		case t.Lease == nil:
			is, _, _, _ = h.take(now, t.Rule, 0, quota.Peek)
		case v.has(reportsGranted):
			is = *d
		default:
			is = untakenLease(h.ownLeases(), now, t.Lease.Request)
		}
		*d = quota.Decision{Limit: d.Limit, Remaining: is.Remaining, RetryAfter: quota.Never, ResetAfter: is.ResetAfter}
	}
	for again := !full && !v.has(forgetsGaps); again; {
		again = v.limitInGaps(requests, now, decisions)
	}
}

// limitInGaps asks each allowed lease again, at the time at which all others allow their quantities. It
// reports whether one of them is limited then.
func (v *naiveView) limitInGaps(requests []store.LimitRequest, now int64, decisions []quota.Decision) (limited bool) {
	retry, never := quota.LongestRetry(decisions)
	for i, t := range requests {
		if d := &decisions[i]; t.Lease != nil && !d.Limited && !never {
			held := v.live(v.name(t.Key), now)
			then, _, err := held.ownLeases().Acquire(now+retry, t.Lease.Request, math.MaxInt)
			if err == nil && then.Limited {
				d.Limited, d.RetryAfter, limited = true, then.RetryAfter, true
				if then.RetryAfter != quota.Never {
					d.RetryAfter += retry
				}
			}
		}
	}
	return limited
}

// forgetting returns the state as if only the latest period counted.
func (h keyState) forgetting(rule limit.Rule) keyState {
	h.plain.Numbers[untilAt], h.log.Until = 0, 0
	if h.kind == limit.Fixed {
		h.plain.End = h.plain.Numbers[0] + int64(rule.Window.Period())
		h.expires = h.plain.End
	}
	return h
}
