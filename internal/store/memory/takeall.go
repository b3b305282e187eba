package memory

import (
	"context"
	"errors"

	"cellserver/internal/lease"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// stepOnAll is a step on the keys of several requests, whose shards are locked.
type stepOnAll struct {
	db       *database
	locked   lockSet
	now      int64
	mode     quota.Mode
	holding  *holding // the hold that the call makes; nil without HOLD
	noGrowth bool     // the step must not allocate
	inOrder  bool     // keys are saved in order; otherwise the last one is saved first
	// shared is set if two keys are in one shard. Saving one may then move the other in the index, so it must be found
	// again.
	shared bool
}

// request is one of the requests of a step, with its decision and the planned change of its key.
type request struct {
	*store.LimitRequest
	decision *quota.Decision
	shard    *shard
	plan     plan
	grows    bool // taking it allocates memory; set by fits
}

// The numbers of requests that a call decides on its stack. This memory is zeroed first, so there are two sizes of it.
const fewRequests, someRequests = 2, 8

// TakeAll takes from several keys or from none. It locks all of their shards, so that deciding the requests and saving
// the changes of their keys is one step to all others.
func (v *view) TakeAll(
	_ context.Context, requests []store.LimitRequest, mode quota.Mode,
) ([]quota.Decision, bool, error) {
	var few [fewRequests]request
	all := few[:min(len(requests), fewRequests)]
	if len(requests) > someRequests {
		all = make([]request, len(requests))
	} else if len(requests) > fewRequests {
		all = make([]request, someRequests)[:len(requests)]
	}
	a := stepOnAll{mode: mode, holding: v.holding, noGrowth: v.noGrowth}
	for i := range all {
		h := v.hash(requests[i].Key)
		all[i].plan.at.hash, all[i].plan.at.key = h, requests[i].Key
		a.shared = a.shared || a.locked.has(h.shard)
		a.locked.add(h.shard)
	}
	a.db, a.now = v.lockShards(a.locked)
	defer v.unlock(a.db, a.locked)
	decisions, binding := v.decisionSlice(len(requests)), 0
	for i := range all {
		r := &all[i]
		r.LimitRequest, r.decision, r.shard = &requests[i], &decisions[i], &a.db.shards[r.plan.at.hash.shard]
		if r.shard.noGrowth = v.noGrowth; r.Shadow == 0 {
			binding++
		}
	}
	if v.noGrowth {
		defer endNoGrowth(all)
	}
	allowed, err := a.takeBinding(all[:binding])
	if binding < len(all) && (err == nil || errors.Is(err, store.ErrFull)) {
		a.takeShadows(all, binding, allowed)
	}
	return decisions, allowed, err
}

// decisionBufferSize is the number of decisions for which a view keeps a buffer.
const decisionBufferSize = 8

// decisionSlice returns a slice of n decisions, from the view's buffer if it is large enough.
func (v *viewState) decisionSlice(n int) []quota.Decision {
	if n > decisionBufferSize {
		return make([]quota.Decision, n)
	}
	if len(v.decisionBuffer) < n {
		size := decisionBufferSize
		if n == 1 {
			size = 1 // a single limiter with options: many clients may wait with one
		}
		v.decisionBuffer = make([]quota.Decision, size)
	}
	return v.decisionBuffer[:n]
}

// takeBinding takes from the keys of all requests that are not in shadow mode, or from none, and reports whether all
// requests allowed it.
func (a *stepOnAll) takeBinding(all []request) (bool, error) {
	if a.mode != quota.UpTo || len(all) == 0 || all[0].Quantity <= 0 {
		return a.take(all, 0)
	}
	most, err := a.most(all)
	if err != nil {
		return false, err
	}
	return a.take(all, max(most, 1))
}

// most returns the largest quantity that all requests allow, after what each leaves to other calls. It is 0 or less if
// one of them allows none.
func (a *stepOnAll) most(all []request) (int64, error) {
	most := all[0].Quantity
	for i := range all {
		r := &all[i]
		if r.Rule.Blocks(r.Quantity, quota.UpTo) {
			return 0, nil
		}
		err := r.find(a.now)
		if err == nil {
			*r.decision, err = r.present()
		}
		if err != nil {
			return 0, err
		}
		most = min(most, r.decision.Remaining-r.Leave)
	}
	return most, nil
}

// takeShadows takes from each group of requests in shadow mode, if the call is allowed and all requests of the group
// allow it. If a group has an error, only its own decisions show it.
func (a *stepOnAll) takeShadows(all []request, from int, allowed bool) {
	quantity := int64(0)
	if a.mode == quota.UpTo && allowed && from > 0 {
		quantity = max(all[0].decision.Taken, 0)
	}
	if !allowed && a.mode != quota.Peek {
		a.mode = quota.Ask
	}
	for to := from; from < len(all); from = to {
		for to < len(all) && all[to].Shadow == all[from].Shadow {
			to++
		}
		if _, err := a.take(all[from:to], quantity); err != nil {
			for i := range all[from:to] {
				r := &all[from+i]
				*r.decision = quota.Decision{Limit: r.Size(), RetryAfter: quota.Never}
			}
		}
	}
}

// take takes from all keys or from none: a quantity, or if it is 0, the quantity of each request.
func (a *stepOnAll) take(all []request, quantity int64) (allowed bool, err error) {
	allowed, a.inOrder = true, a.noGrowth
	for i := range all {
		r := &all[i]
		a.inOrder = a.inOrder || r.Lease != nil || r.Mode == quota.Force
		asked := r.Quantity
		if quantity > 0 {
			asked = quantity
		}
		if err := r.decide(a.now, asked); err != nil {
			return false, err
		}
		allowed = allowed && (!r.decision.Limited || r.Mode == quota.Force)
	}
	switch {
	case !allowed:
		return false, a.reportUntaken(all, false)
	case a.mode == quota.Peek:
		return true, nil
	case a.mode == quota.Ask:
		return true, a.reportPresent(all)
	}
	if !a.fits(all) {
		return false, errors.Join(a.reportUntaken(all, true), store.ErrFull)
	}
	return true, a.save(all)
}

// decide decides a request by itself, and plans the change of its key.
func (r *request) decide(now, quantity int64) error {
	blocks := r.Lease == nil && r.Rule.Blocks(quantity, r.Mode)
	if r.Leave > 0 && quantity == 0 {
		blocks = r.Rule.Blocks(r.Leave, r.Mode)
	}
	if blocks {
		*r.decision = quota.Blocked()
		return nil
	}
	if err := r.find(now); err != nil {
		return err
	}
	s, err := r.shard, error(nil)
	switch now = s.lastInstant; {
	case r.Lease != nil:
		*r.decision, err = s.peekLease(&r.plan.at, r.Lease.Request, r.Lease.MaxHolders)
	case r.Leave == 0:
		*r.decision, err = s.step(&r.plan, now, &r.Rule, quantity, r.Mode)
	default:
		*r.decision, err = quota.Leave(r.Leave, quantity, r.Mode,
			func(quantity int64, mode quota.Mode) (quota.Decision, error) {
				return s.step(&r.plan, now, &r.Rule, quantity, mode)
			})
	}
	return err
}

// find finds the key of a request.
func (r *request) find(now int64) error {
	return r.shard.fill(&r.plan.at, r.shard.advance(now), r.Rule.Kind)
}

// present returns the decision about a quantity of 0. The request then takes nothing.
func (r *request) present() (quota.Decision, error) {
	if r.Lease != nil {
		return r.shard.peekLease(&r.plan.at, r.Lease.WithQuantity(0), r.Lease.MaxHolders)
	}
	return r.shard.step(&r.plan, r.shard.lastInstant, &r.Rule, 0, quota.Peek)
}

// save saves the plans of all requests. The caller has called fits, so there is memory for them. Clients get the events
// of the keys in the order of saving: the last key comes first, unless there is a forced quantity or a lease, or memory
// is short. Any order would do, but it should not change between versions.
func (a *stepOnAll) save(all []request) error {
	next := 0
	if !a.inOrder {
		next = max(len(all)-1, 0)
	}
	for range all {
		r := &all[next]
		if next++; next == len(all) {
			next = 0
		}
		var err error
		if a.shared {
			err = r.find(a.now)
		}
		switch {
		case err != nil:
		case r.Lease != nil:
			_, err = r.shard.grant(&r.plan.at, r.shard.lastInstant, r.Lease.Request, r.Lease.MaxHolders)
		default:
			if err = r.shard.save(&r.plan, r.Rule.Kind); err == nil {
				a.noteHolds(r)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// noteHolds adds a hold for the quantity that a request has taken or, after a refund, updates the open holds of its
// key.
func (a *stepOnAll) noteHolds(r *request) {
	switch {
	case a.holding != nil && r.Held:
		r.shard.hold(&r.plan.at, &r.Rule, r.decision.Taken, a.holding)
	case r.Quantity < 0:
		r.shard.refunded(r.plan.at.hash, r.Key, &r.Rule)
	}
}

// fits reports whether there is memory for the plans of all requests. If not, exactly the decisions that need memory
// become limited. A request that needs memory does not fit either if its shard is short of page numbers: a step that
// has begun must not fail half way.
func (a *stepOnAll) fits(all []request) bool {
	fits := !a.noGrowth
	for i := range all {
		fits = fits && all[i].shard.pages.canAdd(len(all))
	}
	if fits {
		return true
	}
	fits, a.inOrder = true, true
	for i := range all {
		r := &all[i]
		r.grows = r.decision.Taken > 0 && r.shard.needsMemory(&r.plan, r.LimitRequest)
		fits = fits && !r.grows
	}
	for i := range all {
		all[i].decision.Limited = all[i].decision.Limited && fits || all[i].grows
	}
	return fits
}

// reportUntaken is called if the call is refused. Decisions that allowed their quantity then show what remains now. A
// forced quantity is not limited, unless full is set and there is no memory for it.
func (a *stepOnAll) reportUntaken(all []request, full bool) error {
	var gaps []gapOf
	for i := range all {
		r := &all[i]
		d := r.decision
		if d.Limited && (full || r.Mode != quota.Force) {
			continue
		}
		if r.Lease != nil {
			s, table := r.shard, r.shard.leaseTable(&r.plan.at)
			*d = table.Untaken(s.lastInstant, r.Lease.Request)
			if gap := table.Gap(s.lastInstant, r.Lease.Request); gap.End > 0 && !full {
				gaps = append(gaps, gapOf{d, gap})
			}
			s.countEnded(table)
			continue
		}
		is, err := r.present()
		if err != nil {
			return err
		}
		*d = quota.Decision{Limit: d.Limit, Remaining: is.Remaining, RetryAfter: quota.Never, ResetAfter: is.ResetAfter}
	}
	limitInGaps(all, gaps)
	return nil
}

// reportPresent replaces all decisions by decisions about a quantity of 0.
func (a *stepOnAll) reportPresent(all []request) (err error) {
	for i := range all {
		r := &all[i]
		if *r.decision, err = r.present(); err != nil {
			return err
		}
		if r.Mode == quota.Force {
			r.decision.Limited, r.decision.RetryAfter = false, quota.Never
		}
	}
	return nil
}

// gapOf is the gap of a lease that a decision allows.
type gapOf struct {
	d *quota.Decision
	lease.Gap
}

// limitInGaps limits each lease that will have ended when all limited decisions allow their quantities, and that would
// not be granted again then.
func limitInGaps(all []request, gaps []gapOf) {
	if len(gaps) == 0 {
		return
	}
	decisions := make([]quota.Decision, len(all))
	for i := range all {
		decisions[i] = *all[i].decision
	}
	retry, never := quota.LongestRetry(decisions)
	for i := 0; i < len(gaps) && !never; i++ {
		g := gaps[i]
		if g.d.Limited || retry < g.End || retry >= g.Again && g.Again != quota.Never {
			continue
		}
		g.d.Limited, g.d.RetryAfter = true, g.Again
		never, retry = g.Again == quota.Never, g.Again
		i = -1 // leases before this one may have ended by then
	}
}

// endNoGrowth ends a step that was not to allocate memory, and counts the bytes of the leases that it has looked
// at.
func endNoGrowth(all []request) {
	for i := range all {
		s, at := all[i].shard, &all[i].plan.at
		s.noGrowth = false
		if r, _ := s.find(at.hash, all[i].Key); all[i].Lease != nil && r != nil && r.kind() == limit.Lease &&
			!r.isInline() {
			s.leases.at(r.stateWord()).updateBytes(&s.leases)
		}
	}
}
