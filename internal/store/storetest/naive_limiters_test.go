package storetest

import (
	"cmp"
	"context"
	"math"
	"reflect"
	"slices"
	"time"
	"unsafe"

	"cellserver/internal/lease"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// The indexes of numbers of a sliding window.
const (
	previousAt = 1
	untilAt    = 3
)

// ofKind returns the state of a key of a kind, or an error if it is of another kind.
func (v *naiveView) ofKind(name string, now int64, kind limit.Kind) (keyState, error) {
	h := v.live(name, now)
	if stale, _ := v.database().get(name); v.has(remembersKind) && stale.kind != limit.None {
		h.kind = stale.kind
	}
	if h.kind != limit.None && h.kind != kind {
		if v.has(mixesKinds) {
			return keyState{}, nil
		}
		return keyState{}, store.ErrWrongKind
	}
	if h.kind == limit.None && v.has(leavesState) && (kind == limit.SlidingLog || kind == limit.Lease) {
		return v.left[kind], nil
	}
	return h, nil
}

func (v *naiveView) Take(_ context.Context, key []byte, rule *limit.Rule, quantity int64,
	mode quota.Mode) (quota.Decision, error) {
	defer v.lock()()
	return v.take(v.name(key), v.advance(v.Now()), *rule, quantity, mode)
}

func (v *naiveView) take(name string, now int64, rule limit.Rule, quantity int64,
	mode quota.Mode) (quota.Decision, error) {
	if rule.Kind == limit.Throttle {
		o, err := v.throttle(name, now, rule.Throttle, quantity, mode)
		if err != nil {
			return quota.Decision{}, err
		}
		return rule.Throttle.Decision(o), nil
	}
	if rule.Size() == 0 && quantity > 0 && mode != quota.Force && !v.has(looksAtBlocked) {
		return quota.Blocked(), nil
	}
	return v.takeBy(name, now, rule, quantity, mode)
}

// takeBy is take for a limiter other than GCRA that does not block its key.
func (v *naiveView) takeBy(name string, now int64, rule limit.Rule, quantity int64,
	mode quota.Mode) (quota.Decision, error) {
	v.touch(name, now)
	was, err := v.ofKind(name, now, rule.Kind)
	if err != nil {
		return quota.Decision{}, err
	}
	if v.has(unlockedWindows) && mode == quota.Take {
		v.yield()
	}
	was = v.misread(was, rule, now)
	d, next, changed, err := was.take(now, rule, quantity, mode)
	if mode == quota.Peek && v.has(peekTakes) {
		_, next, changed, _ = was.take(now, rule, quantity, quota.Take)
	}
	if err != nil || !changed {
		return d, err
	}
	if v.has(forgetsPrevious) {
		next.plain.Numbers[previousAt] = 0
	}
	if v.refusesGrowth(name, was, next) {
		return quota.Decision{}, store.ErrFull
	}
	if v.has(forgetsOthers) {
		next = next.forgetting(rule)
	}
	if v.has(keepsEmpty) && next.kind == limit.None {
		next = keyState{kind: rule.Kind, expires: now + int64(time.Second)}
	}
	if v.has(quietWindows) {
		v.database().set(name, next)
		return d, nil
	}
	v.store(name, now, next)
	return d, nil
}

// leasesOf returns the leases of a key, as a copy to be changed and stored, and the instant of the
// step.
func (v *naiveView) leasesOf(key []byte) (name string, now int64, l *lease.Leases, err error) {
	name, now = v.name(key), v.advance(v.Now())
	h, err := v.ofKind(name, now, limit.Lease)
	if v.has(leasesForever) {
		if v.frozen == 0 {
			v.frozen = now
		}
		stale, _ := v.database().get(name)
		h, now = stale, v.frozen
	}
	return name, now, h.ownLeases(), err
}

func (v *naiveView) keepLeases(name string, now int64, l *lease.Leases) {
	next, was := withLeases(l), v.live(name, v.last)
	if v.has(keepsLongestEnd) && next.kind != limit.None {
		next.expires = max(next.expires, was.expires)
	}
	v.store(name, now, next)
}

func (v *naiveView) Acquire(_ context.Context, key []byte, r lease.Request, maxHolders int) (quota.Decision, error) {
	defer v.lock()()
	return v.acquire(key, r, maxHolders)
}

func (v *naiveView) acquire(key []byte, r lease.Request, maxHolders int) (quota.Decision, error) {
	name, now, l, err := v.leasesOf(key)
	if err != nil {
		return quota.Decision{}, err
	}
	if v.has(unlockedLeases) {
		v.yield()
	}
	if v.has(ignoresMaxHolders) {
		maxHolders = math.MaxInt
	}
	peeked := reflect.ValueOf(r) // only package lease has access to its fields
	holder, ttl := peeked.FieldByName("holder").Bytes(), peeked.FieldByName("ttl").Int()
	again := slices.ContainsFunc(slices.Collect(l.Holders(now)),
		func(l lease.Lease) bool { return l.Holder == string(holder) })
	if v.has(countsRetries) && again {
		r, _ = lease.NewRequest(peeked.FieldByName("limit").Int(), quota.Seconds(ttl/1e9), append(holder, '\''),
			peeked.FieldByName("quantity").Int())
	}
	d, changed, err := l.Acquire(now, r, maxHolders)
	if v.noGrowth && changed && !again && !v.hasReusable(name, now) && !v.has(noGrowthAdds) {
		return quota.Decision{}, store.ErrFull
	}
	if d.Limited && v.has(renewsRefused) {
		changed = l.Renew(now, time.Duration(ttl), holder)
	}
	if v.has(borrowsHolder) {
		v.borrowed[string(holder)] = unsafe.String(&holder[0], len(holder))
	}
	if err == nil && changed {
		v.keepLeases(name, now, l)
	}
	return d, err
}

func (v *naiveView) Renew(_ context.Context, key []byte, ttl time.Duration, holder []byte) (bool, error) {
	defer v.lock()()
	name, now, l, err := v.leasesOf(key)
	renewed := err == nil && l.Renew(now, ttl, holder)
	if renewed && !v.has(losesRenewal) {
		v.keepLeases(name, now, l)
	}
	return renewed, err
}

func (v *naiveView) Release(_ context.Context, key []byte, holder []byte) (permits int64, err error) {
	defer v.lock()()
	name, now, l, err := v.leasesOf(key)
	if err != nil {
		return 0, err
	}
	permits = l.Release(now, holder)
	for other := range l.Holders(now) {
		if permits == 0 && v.has(releasesAnyHolder) {
			permits = l.Release(now, []byte(other.Holder))
			break
		}
	}
	if permits > 0 || v.has(noticesAnyRelease) && l.Len() > 0 {
		v.keepLeases(name, now, l)
	}
	return permits, nil
}

func (v *naiveView) Holders(_ context.Context, key []byte) ([]lease.Lease, error) {
	defer v.lock()()
	_, now, l, err := v.leasesOf(key)
	if err != nil {
		return nil, err
	}
	list := slices.Collect(l.Holders(now))
	if v.has(listsByName) {
		slices.SortFunc(list, func(a, b lease.Lease) int { return cmp.Compare(a.Holder, b.Holder) })
	}
	for i, l := range list {
		if v.has(borrowsHolder) {
			list[i].Holder = v.borrowed[l.Holder]
		}
	}
	return list, nil
}

func (v *naiveView) Inspect(_ context.Context, key []byte) (store.Entry, []store.Field, error) {
	defer v.lock()()
	name, now := v.name(key), v.advance(v.now)
	h := v.live(name, now)
	if v.has(inspectsExpired) {
		h, _ = v.database().get(name)
	}
	return h.entry(), h.fields(now), nil
}

func (h keyState) fields(now int64) []store.Field {
	switch h.kind {
	case limit.Throttle:
		return []store.Field{{Name: "tat", Value: h.expires, Instant: true}}
	case limit.SlidingLog:
		n := len(h.entries)
		return []store.Field{
			{Name: "entries", Value: int64(n)}, {Name: "used", Value: int64(h.entries[n-1].Total - h.log.Base)},
			{Name: "oldest", Value: h.entries[0].At, Instant: true}, {Name: "newest", Value: h.entries[n-1].At, Instant: true},
		}
	case limit.Quota:
		return []store.Field{{Name: "unit", Text: h.cycle.Word()}, {Name: "used", Value: h.quota.Used},
			{Name: "end", Value: h.quota.End}}
	case limit.Lease:
		holders, permits := int64(0), int64(0)
		for l := range h.leases.Holders(now) {
			holders++
			permits += l.Quantity
		}
		return []store.Field{{Name: "holders", Value: holders}, {Name: "held", Value: permits}}
	case limit.Standing:
		return h.standingFields(now)
	}
	if h.kind.Plain() == nil {
		return nil
	}
	list := []store.Field{{Name: "start", Value: h.plain.Numbers[0], Instant: true}}
	for i, name := range h.kind.Plain().Counts {
		list = append(list, store.Field{Name: name, Value: h.plain.Numbers[1+i]})
	}
	return list
}
