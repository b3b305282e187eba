package storetest

import (
	"context"
	"math"
	"slices"

	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// TakeAll takes from the binding requests, and then from one group in shadow after the other.
func (v *naiveView) TakeAll(
	_ context.Context, requests []store.LimitRequest, mode quota.Mode,
) ([]quota.Decision, bool, error) {
	defer v.lock()()
	now := v.advance(v.Now())
	var groups [][]store.LimitRequest // the first binds
	for i, t := range requests {
		if i == 0 && t.Shadow > 0 {
			groups = append(groups, nil)
		}
		if i == 0 || t.Shadow != requests[i-1].Shadow {
			groups = append(groups, nil)
		}
		last := &groups[len(groups)-1]
		*last = append(*last, t)
	}
	if len(groups) == 0 {
		return nil, true, nil
	}
	decisions, allowed, err := v.takeGroup(groups[0], now, mode)
	if err != nil && err != store.ErrFull {
		return nil, false, err
	}
	for _, group := range groups[1:] {
		in := mode
		switch {
		case v.has(shadowsTakeAnyway):
		case (!allowed || err != nil) && mode != quota.Peek:
			in = quota.Ask
		case mode == quota.UpTo:
			if in = quota.Take; len(decisions) > 0 {
				group = ofQuantity(group, decisions[0].Taken)
			}
		}
		d, fits, failed := v.takeGroup(group, now, in)
		if failed != nil && v.has(shadowsFail) {
			return nil, false, failed
		}
		if failed != nil {
			d = nil
			for _, t := range group {
				d = append(d, quota.Decision{Limit: t.Size(), RetryAfter: quota.Never})
			}
		}
		decisions, allowed = append(decisions, d...), allowed && (fits || !v.has(shadowsRefuse))
	}
	return decisions, allowed, err
}

// ofQuantity returns the requests with this quantity, or unchanged if it is 0.
func ofQuantity(requests []store.LimitRequest, quantity int64) []store.LimitRequest {
	requests = slices.Clone(requests)
	for i := range requests {
		if quantity > 0 {
			requests[i].Quantity = quantity
		}
	}
	return requests
}

// takeGroup is TakeAll for requests that stand together.
func (v *naiveView) takeGroup(requests []store.LimitRequest, now int64, mode quota.Mode) (
	decisions []quota.Decision, allowed bool, err error,
) {
	upTo := mode == quota.UpTo && len(requests) > 0 && requests[0].Quantity > 0
	if upTo {
		most := requests[0].Quantity
		for _, t := range requests {
			if t.Rule.Blocks(1, quota.Take) {
				most = 0
				break
			}
			t.Quantity = 0
			d, err := v.peekAt(t, now)
			if err != nil {
				return nil, false, err
			}
			most = min(most, d.Remaining-t.Leave)
		}
		if requests, mode = ofQuantity(requests, max(most, 1)), quota.Take; v.has(upToTakesFirst) {
			requests[0].Quantity++
		}
	}
	asked := slices.Clone(requests)
	for i := range asked {
		t := &asked[i]
		if t.Quantity < 0 || t.Mode == quota.Force || v.has(leavesNothing) || upTo && v.has(upToLeavesNothing) {
			continue
		}
		t.Quantity += min(t.Leave, math.MaxInt64-t.Quantity) // more than any limit of the tests
	}
	if mode != quota.Ask && slices.EqualFunc(asked, requests, equalQuantities) {
		return v.takeAll(requests, now, mode == quota.Peek)
	}
	decisions, allowed, err = v.takeAll(asked, now, true)
	switch {
	case err != nil || !allowed:
		return decisions, false, err
	case mode == quota.Ask && !v.has(asksAsPeek):
		return v.present(requests, now), true, nil
	}
	return v.takeAll(requests, now, mode == quota.Peek || mode == quota.Ask)
}

func equalQuantities(a, b store.LimitRequest) bool { return a.Quantity == b.Quantity }

// present returns decisions about quantities of 0.
func (v *naiveView) present(requests []store.LimitRequest, now int64) (decisions []quota.Decision) {
	for _, t := range requests {
		force := t.Mode == quota.Force
		if t.Quantity, t.Mode = 0, quota.Take; t.Lease != nil {
			t.Lease = &store.LeaseRequest{Request: t.Lease.WithQuantity(0), MaxHolders: t.Lease.MaxHolders}
		}
		d, _ := v.peekAt(t, now)
		if force {
			d.Limited, d.RetryAfter = false, quota.Never
		}
		decisions = append(decisions, d)
	}
	return decisions
}

// takeAll peeks at each key, and then takes from each.
func (v *naiveView) takeAll(requests []store.LimitRequest, now int64, peek bool) ([]quota.Decision, bool, error) {
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
