package storetest

import (
	"fmt"
	"math"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/calendar"
	"cellserver/internal/lease"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

var kindCases = []testCase{
	{"kinds apart", "a key holds one kind: a call for another kind returns ErrWrongKind and changes nothing", kindsApart},
	{"kind follows kind", "a key that has expired can be used for any kind", kindFollowsKind},
	{"expiry of any kind", "a key of any kind exists until its expiry, and for no caller after that",
		expiryOfAnyKind},
	{"afresh", "nothing is left of a key that was deleted or flushed, for any key created later", afresh},
	{"borrowed words", "the bytes of keys, rules and holders are borrowed: the store keeps copies", borrowedWords},
	{"inspect", "Inspect returns the state of a key by field, and nothing if the key does not exist", inspect},
}

// limiters lists the kinds that Take supports, kinds all kinds that are not values.
var (
	limiters = limit.OfPolicies[:]
	kinds    = append(limiters[:len(limiters):len(limiters)], limit.Lease, limit.Standing)
)

// maxLog and maxHolders are larger than necessary, for cases that do not test them.
const maxLog, maxHolders = 1000, 1000

// quotaMinute is the cycle of the calendar quotas in cases that are not about their windows. It is
// the same for all of their calls, because the windows of a key cannot change.
var quotaMinute = calendar.Every(time.Minute)

// rule returns a rule of a kind for a limit of size at once and per period, in seconds.
func rule(kind limit.Kind, size, period int64) limit.Rule {
	r := limit.Rule{Kind: kind, Cycle: quotaMinute}
	if kind == limit.Throttle {
		r.Throttle = throttleLimit(size-1, max(size, 1), period)
	} else if err := r.SetWindow(kind, size, quota.Seconds(period), maxLog); err != nil {
		panic(err)
	}
	return r
}

func request(limit, ttl int64, holder string, quantity int64) lease.Request {
	r, err := lease.NewRequest(limit, quota.Seconds(ttl), []byte(holder), quantity)
	if err != nil {
		panic(err)
	}
	return r
}

// takeBy is take for any limiter.
func (c *caller) takeBy(rule limit.Rule, key string, quantity int64, mode quota.Mode) quota.Decision {
	c.Helper()
	d, err := c.view.Take(ctx, []byte(key), &rule, quantity, mode)
	require.NoError(c, err)
	return d
}

func (c *caller) acquire(key string, r lease.Request) quota.Decision {
	c.Helper()
	d, err := c.view.Acquire(ctx, []byte(key), r, maxHolders)
	require.NoError(c, err)
	return d
}

func (c *caller) renew(key string, seconds int64, holder string) bool {
	c.Helper()
	renewed, err := c.view.Renew(ctx, []byte(key), time.Duration(seconds)*time.Second, []byte(holder))
	require.NoError(c, err)
	return renewed
}

func (c *caller) release(key, holder string) int64 {
	c.Helper()
	permits, err := c.view.Release(ctx, []byte(key), []byte(holder))
	require.NoError(c, err)
	return permits
}

func (c *caller) holders(key string) []lease.Lease {
	c.Helper()
	list, err := c.view.Holders(ctx, []byte(key))
	require.NoError(c, err)
	return list
}

func (c *caller) inspect(key string) (store.Entry, []store.Field) {
	c.Helper()
	e, fields, err := c.view.Inspect(ctx, []byte(key))
	require.NoError(c, err)
	return e, fields
}

// useUp is the quantity that remains after one use.
const useUp = 7

// use takes two of nine per minute from a limiter of a kind. Each use of a lease is by another
// holder.
func (c *caller) use(kind limit.Kind, key string) quota.Decision {
	c.Helper()
	switch kind {
	case limit.Standing:
		return c.useStanding(key)
	case limit.Lease:
	default:
		return c.takeBy(rule(kind, useUp+2, 60), key, 2, quota.Take)
	}
	return c.acquire(key, request(useUp+2, 60, fmt.Sprint("holder", len(c.holders(key))), 2))
}

// state returns all that a caller can observe of keys in one database.
func (c *caller) state(keys ...string) any {
	c.Helper()
	type seen struct {
		entry  store.Entry
		fields []store.Field
		leases []lease.Lease
	}
	var all []any
	for _, key := range keys {
		var s seen
		if s.entry, s.fields = c.inspect(key); s.entry.Kind == limit.Lease {
			s.leases = c.holders(key)
		}
		all = append(all, s, c.lookup(key))
	}
	return append(all, c.size())
}

// callsOf returns calls on one key that require the key to be of a kind.
func (c *caller) callsOf(kind limit.Kind, key string) (calls []func() error) {
	name := []byte(key)
	if kind == limit.Standing {
		return c.standingCalls(key)
	}
	if kind == limit.Lease {
		for quantity := range int64(2) {
			calls = append(calls, func() error {
				_, err := c.view.Acquire(ctx, name, request(9, 60, "holder", quantity), maxHolders)
				return err
			}, func() error {
				r := leaseRequest(key, request(9, 60, "holder", quantity), maxHolders)
				_, _, err := c.view.TakeAll(ctx, []store.LimitRequest{r}, quota.Mode(quantity))
				return err
			})
		}
		return append(calls,
			func() error { _, err := c.view.Renew(ctx, name, time.Second, []byte("holder")); return err },
			func() error { _, err := c.view.Release(ctx, name, []byte("holder")); return err },
			func() error { _, err := c.view.Holders(ctx, name); return err })
	}
	r := rule(kind, 9, 60)
	for _, quantity := range []int64{1, 0, -1, 10, math.MinInt64} {
		for _, mode := range []quota.Mode{quota.Take, quota.Peek, quota.UpTo, quota.Force} {
			calls = append(calls, func() error { _, err := c.view.Take(ctx, name, &r, quantity, mode); return err })
		}
		for _, mode := range []quota.Mode{quota.Take, quota.Peek} {
			calls = append(calls, func() error {
				_, _, err := c.view.TakeAll(ctx, []store.LimitRequest{{Key: name, Rule: r, Quantity: quantity}}, mode)
				return err
			}, func() error {
				_, _, err := c.view.TakeAll(ctx, []store.LimitRequest{forced(r, key, quantity)}, mode)
				return err
			})
		}
	}
	if kind == limit.Throttle {
		calls = append(calls, func() error { _, err := c.view.Throttle(ctx, name, longLived, 1, quota.Take); return err })
	}
	return calls
}

func kindsApart(r *rig) {
	for _, is := range kinds {
		for _, peeked := range kinds {
			if is == peeked {
				continue
			}
			key := fmt.Sprint(is, " asked for ", peeked)
			r.use(is, key)
			require.Equal(r, is, r.lookup(key).Kind)
			before, h := r.state(key), r.listen()
			for i, call := range r.callsOf(peeked, key) {
				require.ErrorIs(r, call(), store.ErrWrongKind, "%s, call %d", key, i)
				require.Equal(r, before, r.state(key), "%s, call %d", key, i)
			}
			require.Empty(r, h.events(), key)
		}
	}
}

func kindFollowsKind(r *rig) {
	for _, is := range kinds {
		for _, peeked := range kinds {
			key := fmt.Sprint(is, " then ", peeked)
			want := r.use(peeked, "fresh "+key)
			r.use(is, key)
			size := r.size()
			r.clock.Advance(time.Duration(r.lookup(key).Expires - r.clock.Now()))
			r.view.Begin()
			require.Empty(r, r.traces(peeked, key), key)
			require.Equal(r, untimed(peeked, want), untimed(peeked, r.use(peeked, key)), key)
			require.Equal(r, peeked, r.lookup(key).Kind)
			require.LessOrEqual(r, r.size(), size, "the expired record must be replaced or removed") // a concurrent sweep may have removed others
		}
	}
}

// untimed returns a decision without times if it is one of a calendar quota. They depend on how far
// its window has gone.
func untimed(kind limit.Kind, d quota.Decision) quota.Decision {
	if kind == limit.Quota {
		d.ResetAfter, d.RetryAfter = 0, 0
	}
	return d
}

// traces calls methods that never create a key, on a key that should not exist, and returns what
// they found nevertheless.
func (c *caller) traces(kind limit.Kind, key string) (seen string) {
	c.Helper()
	if kind == limit.Standing {
		seen = c.tracesOfStanding(key)
	} else if kind == limit.Lease {
		if list, permits, renewed := c.holders(key), c.release(key, "holder0"),
			c.renew(key, 9, "holder0"); len(list) > 0 || permits > 0 || renewed {
			seen = fmt.Sprint(list, permits, renewed)
		}
	} else if d := c.takeBy(rule(kind, 9, 60), key, 9, quota.Peek); d.Limited {
		seen = fmt.Sprintf("%+v", d)
	}
	if e := c.lookup(key); e != (store.Entry{}) {
		seen += fmt.Sprintf("%+v", e)
	}
	return seen
}

func expiryOfAnyKind(r *rig) {
	for _, kind := range kinds {
		key := kind.String()
		first := r.use(kind, key)
		require.Equal(r, r.clock.Now()+first.ResetAfter, r.lookup(key).Expires, key)
		r.clock.Advance(time.Duration(first.ResetAfter - 1))
		r.view.Begin()
		require.Equal(r, kind, r.lookup(key).Kind)
		_, fields := r.inspect(key)
		require.NotEmpty(r, fields)
		require.Equal(r, 1, r.count(key))
		require.Equal(r, eachOnce([]string{key}), r.scanAll(10))
		drawn, _ := r.random()
		require.Equal(r, key, drawn)

		r.advanceTo(r.clock.Now() + 1)
		_, fields = r.inspect(key)
		require.Empty(r, fields, key)
		require.Empty(r, r.traces(kind, key))
		require.Empty(r, r.scanAll(10), key)
		r.linger()
		require.Zero(r, r.count(key), key)
		_, ok := r.random()
		require.False(r, ok, key)
		require.Zero(r, r.remove(key))
		require.Zero(r, r.size())
		require.Equal(r, untimed(kind, first), untimed(kind, r.use(kind, key)), "an expired key must not keep its state")
		require.Equal(r, 1, r.remove(key))
	}
}

// afresh creates several keys each time, to detect a store that reuses memory without clearing it.
func afresh(r *rig) {
	for _, kind := range kinds {
		for what, forget := range map[string]func(){
			"delete":    func() { require.Equal(r, 3, r.remove("a", "b", "c")) },
			"flush":     func() { require.NoError(r, r.view.Flush(ctx)) },
			"flush all": func() { require.NoError(r, r.view.FlushAll(ctx)) },
		} {
			first := r.use(kind, "a")
			for range 2 {
				r.use(kind, "a")
				r.use(kind, "b")
			}
			r.use(kind, "c")
			forget()
			require.Zero(r, r.size())
			for _, key := range []string{"a", "d", "b", "c"} {
				require.Empty(r, r.traces(kind, key), what)
				require.Equal(r, first, r.use(kind, key), "%s, %s", what, kind)
			}
			require.Equal(r, 4, r.remove("a", "b", "c", "d"))
		}
	}
}

// borrowedWords overwrites all arguments after each call, as the next read from a connection does.
func borrowedWords(r *rig) {
	key, holder := make([]byte, 4), make([]byte, 4)
	scratch := func() { copy(key, "gone"); copy(holder, "gone") }
	for i, name := range []string{"key1", "key2", "key3"} {
		copy(key, name)
		what := rule(limiters[1+i], 9, 60)
		_, err := r.view.Take(ctx, key, &what, 2, quota.Take)
		require.NoError(r, err)
		scratch()
		what = limit.Rule{}
		copy(key, name)
		requests := []store.LimitRequest{{Key: key, Rule: rule(limiters[1+i], 9, 60), Quantity: 2}}
		_, _, err = r.view.TakeAll(ctx, requests, quota.Take)
		require.NoError(r, err)
		scratch()
		requests[0] = store.LimitRequest{}
		require.Equal(r, int64(5), r.takeBy(rule(limiters[1+i], 9, 60), name, 0, quota.Take).Remaining)
	}
	for _, name := range []string{"ann.", "bob."} {
		copy(key, "key4")
		copy(holder, name)
		peeked, err := lease.NewRequest(9, 60, holder, 2)
		require.NoError(r, err)
		if name == "ann." {
			_, err = r.view.Acquire(ctx, key, peeked, maxHolders)
		} else {
			of := &store.LeaseRequest{Request: peeked, MaxHolders: maxHolders}
			all := []store.LimitRequest{{Key: key, Rule: limit.Rule{Kind: limit.Lease}, Lease: of}}
			_, _, err = r.view.TakeAll(ctx, all, quota.Take)
			*of = store.LeaseRequest{}
		}
		require.NoError(r, err)
		scratch()
	}
	require.Equal(r, eachOnce([]string{"key1", "key2", "key3", "key4"}), r.scanAll(10))
	end := r.epoch + int64(time.Minute)
	require.Equal(r, []lease.Lease{{Holder: "ann.", Quantity: 2, End: end}, {Holder: "bob.", Quantity: 2, End: end}},
		r.holders("key4"))
}

func inspect(r *rig) {
	const s = int64(time.Second)
	shows := func(key string, want ...store.Field) {
		r.Helper()
		e, fields := r.inspect(key)
		require.Equal(r, r.lookup(key), e)
		require.Equal(r, want, fields, key)
	}
	shows("nothing")
	r.put("throttle")
	shows("throttle", store.Field{Name: "tat", Value: r.lookup("throttle").Expires, Instant: true})

	r.use(limit.Fixed, "fixed")
	r.use(limit.Sliding, "sliding")
	r.use(limit.SlidingLog, "log")
	r.use(limit.Quota, "quota")
	shows("quota", store.Field{Name: "unit", Text: "1m"}, store.Field{Name: "used", Value: 2},
		store.Field{Name: "end", Value: quotaMinute.End(r.epoch)})
	r.acquire("lease", request(9, 30, "short", 3))
	r.acquire("lease", request(9, 60, "long", 4))
	shows("lease", store.Field{Name: "holders", Value: 2}, store.Field{Name: "held", Value: 7})
	r.editStanding("standing", banFor(time.Hour, "a reason"))
	r.editStanding("standing", exemptFor(time.Minute, "another"))
	shows("standing", store.Field{Name: "exempt_until", Value: r.epoch + 60*s, Instant: true},
		store.Field{Name: "exempt_reason", Text: "another"},
		store.Field{Name: "banned_until", Value: r.epoch + 3600*s, Instant: true},
		store.Field{Name: "banned_reason", Text: "a reason"}, store.Field{Name: "level"}, store.Field{Name: "refusals"})
	r.clock.Advance(30 * time.Second)
	r.view.Begin()
	r.use(limit.SlidingLog, "log")
	shows("fixed", store.Field{Name: "start", Value: r.epoch, Instant: true}, store.Field{Name: "used", Value: 2})
	shows("log", store.Field{Name: "entries", Value: 2}, store.Field{Name: "used", Value: 4},
		store.Field{Name: "oldest", Value: r.epoch, Instant: true},
		store.Field{Name: "newest", Value: r.epoch + 30*s, Instant: true})
	shows("lease", store.Field{Name: "holders", Value: 1}, store.Field{Name: "held", Value: 4})
	r.clock.Advance(30 * time.Second)
	r.view.Begin()
	r.takeBy(rule(limit.Sliding, 9, 60), "sliding", 1, quota.Take)
	shows("sliding", store.Field{Name: "start", Value: r.epoch + 60*s, Instant: true},
		store.Field{Name: "previous", Value: 2}, store.Field{Name: "current", Value: 1})
	shows("fixed")
	shows("lease")
	r.view.Select(1)
	shows("throttle")
}
