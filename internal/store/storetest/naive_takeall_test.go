package storetest

import (
	"context"
	"math"
	"slices"

	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// TakeAll peeks at each key, and then takes from each.
func (v *naiveView) TakeAll(
	_ context.Context, requests []store.LimitRequest, peek bool,
) ([]quota.Decision, bool, error) {
	defer v.lock()()
	now := v.advance(v.Now())
	if v.has(halfTakes) || v.has(takesUpToError) {
		return v.takeInTurn(requests, now, peek)
	}
	decisions, allowed, err := v.peekAtAll(requests, now)
	if err != nil {
		return nil, false, err
	}
	if v.has(mixesAnswers) {
		slices.Reverse(decisions)
	}
	if !allowed && !v.has(reportsUnadjusted) {
		v.reportUntaken(requests, now, false, decisions)
	}
	if allowed && !peek && v.noGrowth && !v.fitsWithoutGrowth(requests, now, decisions) {
		v.reportUntaken(requests, now, true, decisions)
		return decisions, false, store.ErrFull
	}
	for i, t := range requests {
		if allowed && (!peek || v.has(peekTakesAll)) || !peek && v.takesAnyway(t) || v.has(peekAcquires) && t.Lease != nil {
			d, err := v.take1(t, now)
			if err == nil && allowed && (t.Lease != nil || t.Mode == quota.Force) {
				decisions[i] = d
			}
		}
		if v.has(takesInPieces) {
			v.yield()
		}
	}
	return decisions, allowed, nil
}

// takesAnyway reports whether the fault makes a request although another is limited.
func (v *naiveView) takesAnyway(t store.LimitRequest) bool {
	return t.Quantity < 0 && v.has(givesBackAnyway) || t.Mode == quota.Force && v.has(forcesAnyway) ||
		t.Lease != nil && v.has(acquiresAnyway)
}

// peekAtAll returns the decision that each request would get.
func (v *naiveView) peekAtAll(requests []store.LimitRequest, now int64) ([]quota.Decision, bool, error) {
	decisions, allowed := make([]quota.Decision, len(requests)), true
	for i, t := range requests {
		instant := now
		if v.has(manyInstantsOfAll) && i < len(requests)-1 {
			instant = v.now
		}
		var err error
		if decisions[i], err = v.peekAt(t, instant); err != nil {
			return nil, false, err
		}
		allowed = allowed && (!decisions[i].Limited || t.Mode == quota.Force && !v.has(forcedLimits))
	}
	return decisions, allowed, nil
}

func (v *naiveView) peekAt(t store.LimitRequest, now int64) (d quota.Decision, err error) {
	switch {
	case t.Lease != nil:
		_, now, l, err := v.leasesOf(t.Key)
		if err == nil {
			d, _, err = l.Acquire(now, t.Lease.Request, v.mostHolders(t))
		}
		return d, err
	case t.Mode == quota.Force:
		was, err := v.ofKind(v.name(t.Key), now, t.Rule.Kind)
		if err == nil {
			d, _, _, err = was.take(now, t.Rule, t.Quantity, quota.Force)
		}
		if v.has(takesBeforeError) && err == quota.ErrQuantity {
			err = nil
		}
		return d, err
	}
	return v.take(v.name(t.Key), now, t.Rule, t.Quantity, quota.Peek)
}

func (v *naiveView) mostHolders(t store.LimitRequest) int {
	if v.has(allIgnoresMaxHolders) {
		return math.MaxInt
	}
	return t.Lease.MaxHolders
}

// take1 makes one request.
func (v *naiveView) take1(t store.LimitRequest, now int64) (quota.Decision, error) {
	if t.Lease != nil {
		return v.acquire(t.Key, t.Lease.Request, v.mostHolders(t))
	}
	return v.take(v.name(t.Key), now, t.Rule, t.Quantity, t.Mode)
}

// takeInTurn takes from one key after the other until one refuses, as an implementation on top of
// Take would.
func (v *naiveView) takeInTurn(requests []store.LimitRequest, now int64,
	peek bool) (decisions []quota.Decision, allowed bool, err error) {
	allowed = true
	for _, t := range requests {
		mode := quota.Take
		d, err := v.take(v.name(t.Key), now, t.Rule, t.Quantity, quota.Peek)
		if err != nil && v.has(halfTakes) {
			return nil, false, err
		}
		allowed = allowed && !d.Limited && err == nil
		if !allowed || peek {
			mode = quota.Peek
		}
		if d, err = v.take(v.name(t.Key), now, t.Rule, t.Quantity, mode); err != nil {
			return nil, false, err
		}
		decisions = append(decisions, d)
	}
	if !allowed {
		v.reportUntaken(requests, now, false, decisions)
	}
	return decisions, allowed, nil
}
