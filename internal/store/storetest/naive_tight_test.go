package storetest

import (
	"context"

	"cellserver/internal/gcra"
	"cellserver/internal/lease"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// tightNaive is the naive store's view while memory is short.
type tightNaive struct{ *naiveView }

func (v *naiveView) WithoutGrowth() store.View { return tightNaive{v} }

func (v tightNaive) within(step func()) {
	v.tight = true
	defer func() { v.tight = false }()
	step()
}

func (v tightNaive) Throttle(
	_ context.Context, key []byte, limit gcra.Limit, quantity int64, mode quota.Mode,
) (o gcra.Outcome, err error) {
	v.within(func() { o, err = v.naiveView.Throttle(ctx, key, limit, quantity, mode) })
	return o, err
}

func (v tightNaive) Take(
	_ context.Context, key []byte, rule *store.Rule, quantity int64, mode quota.Mode,
) (d quota.Decision, err error) {
	v.within(func() { d, err = v.naiveView.Take(ctx, key, rule, quantity, mode) })
	return d, err
}

func (v tightNaive) TakeAll(_ context.Context, takes []store.LimitRequest,
	peek bool) (d []quota.Decision, ok bool, err error) {
	v.within(func() { d, ok, err = v.naiveView.TakeAll(ctx, takes, peek) })
	return d, ok, err
}

func (v tightNaive) Acquire(_ context.Context, key []byte, r lease.Request,
	maxHolders int) (d quota.Decision, err error) {
	v.within(func() { d, err = v.naiveView.Acquire(ctx, key, r, maxHolders) })
	return d, err
}

// refuses says whether a step needs memory that it must not take.
func (v *naiveView) refuses(name string, was, next held) bool {
	if !v.tight || v.has(tightAdds) {
		return false
	}
	if was.kind != store.None && v.has(tightGrows) {
		return false
	}
	return v.has(tightRefuses) || v.needs(name, was, next)
}

// needs says whether a step needs memory: none where what has expired has left its place.
func (v *naiveView) needs(name string, was, next held) bool {
	stood, _ := v.database().held(name)
	return next.needs(was) && !(was.kind == store.None && stood.takenAgain(v.last, next.kind))
}

// takenAgain says whether it has expired, and left its place to another of its kind.
func (h held) takenAgain(now int64, kind store.Kind) bool { return h.kind == kind && h.expires <= now }

// needs says whether it takes more memory than what was there: a log has room for eight.
func (h held) needs(was held) bool {
	return h.kind != store.None && (was.kind == store.None || len(h.entries) > max(8, len(was.entries)))
}

// spare says whether all that would be taken needs no memory, and limits what does.
func (v *naiveView) spare(takes []store.LimitRequest, now int64, decisions []quota.Decision) bool {
	spared := true
	for i, t := range takes {
		name := v.name(t.Key)
		was := v.live(name, now)
		_, next, changed, _ := was.take(now, t.Rule, t.Quantity, quota.Take)
		decisions[i].Limited = changed && v.needs(name, was, next)
		spared = spared && !decisions[i].Limited
	}
	return spared || v.has(tightTakesHalf)
}

// untaken says what there is where nothing was taken.
func (v *naiveView) untaken(takes []store.LimitRequest, now int64, decisions []quota.Decision) {
	for i, t := range takes {
		if d := &decisions[i]; !d.Limited {
			asked, _, _, _ := v.live(v.name(t.Key), now).take(now, t.Rule, 0, quota.Peek)
			d.Remaining, d.ResetAfter, d.Taken = asked.Remaining, asked.ResetAfter, 0
		}
	}
}

// forgetting is what a key holds where only the latest period counts.
func (h held) forgetting(rule store.Rule) held {
	h.sliding.Until, h.log.Until = 0, 0
	if h.kind == store.Fixed {
		h.fixed.End = h.fixed.Start + int64(rule.Window.Period())
		h.expires = h.fixed.End
	}
	return h
}
