package storetest

import (
	"runtime"
	"slices"
	"sync"
	gosync "sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

var onceCases = []testCase{
	{"once", "a call that repeats another one with its token takes nothing, and gets the decisions of that call", once},
	{"once expired", "a token is remembered for its TTL, and then its call is decided again", onceExpired},
	{"once taken", "only a call that takes, or gives back, is remembered: any other is decided each time", onceTaken},
	{"once reused", "a token that is remembered for other words is refused, and nothing changes", onceReused},
	{"once by name", "a token belongs to a key of a database by name: it stays if the key is removed or moved, " +
		"and goes when the database is emptied", onceByName},
	{"once of several", "a call on several keys takes from all of them once", onceOfSeveral},
	{"once at once", "of calls with one token at the same time one decides, and all get its decision", onceAtOnce},
	{"once in a step", "within Atomically a call is decided and remembered as others are", onceInAStep},
	{"no growth and once", "without growth a call that would have to be remembered returns ErrFull and changes nothing; " +
		"others are made, and repeated ones get their decisions", onceWithoutGrowth},
}

// onceTTL is how long the tokens of the cases are remembered.
const onceTTL = 10 * time.Second

// callOnce returns a call with a token on one key. Calls with other words differ in by.
func callOnce(key, token string, rule limit.Rule, quantity int64, mode quota.Mode) *store.Once {
	words := [16]byte{byte(quantity), byte(mode), byte(rule.Kind), byte(rule.Size())}
	return &store.Once{
		Keys:  [][]byte{[]byte(key)},
		Token: store.Token{ID: []byte(token), Words: words, TTL: onceTTL},
		Decide: func(v store.View) ([]quota.Decision, bool, error) {
			d, err := v.Take(ctx, []byte(key), &rule, quantity, mode)
			return []quota.Decision{d}, mode != quota.Peek && d.Taken != 0, err
		},
		Takes: func(v store.View) (bool, error) {
			d, err := v.Take(ctx, []byte(key), &rule, quantity, quota.Peek)
			return !d.Limited && quantity != 0, err
		},
	}
}

// once makes a call on one key.
func (c *caller) once(o *store.Once) (d quota.Decision, repeated bool) {
	c.Helper()
	decisions, repeated, err := c.view.Once(ctx, o)
	require.NoError(c, err)
	require.Len(c, decisions, len(o.Keys))
	return decisions[0], repeated
}

// remaining returns what remains of a key by a rule.
func (c *caller) remaining(key string, by limit.Rule) int64 {
	c.Helper()
	return c.takeBy(by, key, 0, quota.Peek).Remaining
}

func once(r *rig) {
	for _, kind := range limiters {
		by, key := rule(kind, 10, 60), kind.String()
		for _, quantity := range []int64{3, -2} {
			call := callOnce(key, "token", by, quantity, quota.Take)
			call.Token.ID = append(call.Token.ID, byte(quantity))
			first, repeated := r.once(call)
			require.False(r, repeated)
			left := r.remaining(key, by)
			require.Equal(r, left, first.Remaining)
			r.clock.Advance(time.Second)
			for _, c := range []*caller{r.another(), r.caller} {
				again, repeated := c.once(call)
				require.True(r, repeated)
				require.Equal(r, first, again)
			}
			r.view.Begin()
			require.GreaterOrEqual(r, r.remaining(key, by), left)
			require.Less(r, r.remaining(key, by), left+3)
		}
	}
}

func onceExpired(r *rig) {
	by := rule(limit.Fixed, 10, 1000)
	call := callOnce("key", "token", by, 1, quota.Take)
	r.once(call)
	began := r.clock.Now()
	r.advanceTo(began + int64(onceTTL) - r.tick(1))
	_, repeated := r.once(call)
	require.True(r, repeated)
	require.Equal(r, int64(9), r.remaining("key", by))
	r.advanceTo(began + int64(onceTTL))
	d, repeated := r.once(call)
	require.False(r, repeated)
	require.Equal(r, int64(8), d.Remaining)
	_, repeated = r.once(call)
	require.True(r, repeated)
}

func onceTaken(r *rig) {
	by := rule(limit.Fixed, 5, 1000)
	r.takeBy(by, "key", 4, quota.Take)
	for _, call := range []*store.Once{
		callOnce("key", "limited", by, 3, quota.Take), callOnce("key", "peek", by, 1, quota.Peek),
		callOnce("key", "zero", by, 0, quota.Take),
	} {
		for range 2 {
			d, repeated := r.once(call)
			require.False(r, repeated)
			require.Equal(r, call.Token.Words[0] == 3, d.Limited)
			require.Equal(r, int64(1), r.remaining("key", by))
		}
	}
	r.takeBy(by, "key", -3, quota.Take)
	d, repeated := r.once(callOnce("key", "limited", by, 3, quota.Take))
	require.False(r, repeated, "it is decided again")
	require.False(r, d.Limited)
	_, repeated = r.once(callOnce("key", "limited", by, 3, quota.Take))
	require.True(r, repeated)
	for _, mode := range []quota.Mode{quota.UpTo, quota.Force} {
		call := callOnce("key", string(rune('a'+mode)), by, 1, mode)
		_, repeated := r.once(call)
		require.False(r, repeated)
		_, repeated = r.once(call)
		require.True(r, repeated)
	}
}

func onceReused(r *rig) {
	five, other := rule(limit.Fixed, 5, 1000), rule(limit.Sliding, 5, 1000)
	r.once(callOnce("key", "token", five, 1, quota.Take))
	h := r.listen()
	for _, call := range []*store.Once{
		callOnce("key", "token", five, 2, quota.Take), callOnce("key", "token", five, 1, quota.UpTo),
		callOnce("key", "token", other, 1, quota.Take), callOnce("key", "token", five, 1, quota.Peek),
	} {
		_, _, err := r.view.Once(ctx, call)
		require.ErrorIs(r, err, store.ErrReused)
	}
	require.Empty(r, h.events())
	require.Equal(r, int64(4), r.remaining("key", five))
	_, _, err := r.view.Once(ctx, callOnce("key", "another", other, 1, quota.Take))
	require.ErrorIs(r, err, store.ErrWrongKind)
	_, repeated := r.once(callOnce("key", "another", five, 1, quota.Take))
	require.False(r, repeated, "a call that failed is not remembered")
}

func onceByName(r *rig) {
	by := rule(limit.Fixed, 10, 1000)
	call := func(key string) bool {
		_, repeated := r.once(callOnce(key, "token", by, 1, quota.Take))
		return repeated
	}
	require.False(r, call("a"))
	require.False(r, call("b"))
	require.False(r, call("atoken"), "a token and a key are not one word")
	r.view.Select(1)
	require.False(r, call("a"))
	r.view.Select(0)
	require.True(r, call("a"))

	r.remove("a")
	require.True(r, call("a"))
	require.Equal(r, int64(10), r.remaining("a", by))
	_, err := r.view.Transfer(ctx, store.KeyRef{Key: []byte("b")}, store.KeyRef{Key: []byte("c")}, store.Transfer{})
	require.NoError(r, err)
	require.False(r, call("c"))
	require.True(r, call("b"))

	r.put("other")
	require.NoError(r, r.view.Flush(ctx))
	require.False(r, call("a"))
	r.view.Select(1)
	require.True(r, call("a"))
}

func onceOfSeveral(r *rig) {
	requests := manyRequests(7, "several")
	o := &store.Once{Token: store.Token{ID: []byte("token"), TTL: onceTTL}}
	for _, t := range requests {
		o.Keys = append(o.Keys, t.Key)
	}
	o.Decide = func(v store.View) ([]quota.Decision, bool, error) {
		d, allowed, err := v.TakeAll(ctx, requests, quota.Take)
		return d, allowed, err
	}
	first, repeated, err := r.view.Once(ctx, o)
	require.NoError(r, err)
	require.False(r, repeated)
	first, state := slices.Clone(first), r.stateOf(requests)
	again, repeated, err := r.another().view.Once(ctx, o)
	require.NoError(r, err)
	require.True(r, repeated)
	require.Equal(r, first, again)
	require.Equal(r, state, r.stateOf(requests))
}

func onceAtOnce(r *rig) {
	const callers, rounds = 8, 20
	by := rule(limit.Fixed, callers*rounds, 1000)
	for round := range rounds {
		var group sync.WaitGroup
		var decided gosync.Int64
		decisions := make([]quota.Decision, callers)
		for i := range callers {
			c := r.another()
			group.Go(func() {
				runtime.Gosched()
				found, repeated, err := c.view.Once(ctx, callOnce("key", string(rune('a'+round)), by, 1, quota.Take))
				if err != nil || len(found) != 1 {
					return
				}
				if decisions[i] = found[0]; !repeated {
					decided.Add(1)
				}
			})
		}
		group.Wait()
		require.Equal(r, int64(1), decided.Load())
		for _, d := range decisions {
			require.Equal(r, int64(callers*rounds-round-1), d.Remaining)
		}
	}
	require.Equal(r, int64((callers-1)*rounds), r.remaining("key", by))
}

func onceInAStep(r *rig) {
	by := rule(limit.Fixed, 10, 1000)
	first, second := callOnce("key", "first", by, 1, quota.Take), callOnce("key", "second", by, 2, quota.Take)
	r.once(first)
	refs := []store.KeyRef{
		{Key: []byte("key"), Token: first.Token.ID}, {Key: []byte("key"), Token: second.Token.ID}, {Key: []byte("other")},
	}
	r.clock.Advance(time.Second)
	var repeats []bool
	require.NoError(r, r.view.Atomically(ctx, refs, false, func() error {
		repeats = nil
		for _, call := range []*store.Once{first, second, second} {
			_, repeated, err := r.view.Once(ctx, call)
			if err != nil {
				return err
			}
			repeats = append(repeats, repeated)
		}
		return nil
	}))
	require.Equal(r, []bool{true, false, true}, repeats)
	_, repeated := r.another().once(second)
	require.True(r, repeated)
	require.Equal(r, int64(7), r.remaining("key", by))
	r.advanceTo(r.clock.Now() + int64(onceTTL))
	_, repeated = r.once(second)
	require.False(r, repeated)
}

func onceWithoutGrowth(r *rig) {
	by, noGrowth := rule(limit.Fixed, 5, 1000), r.withoutGrowth()
	r.takeBy(by, "key", 1, quota.Take)
	remembered := callOnce("key", "remembered", by, 1, quota.Take)
	r.once(remembered)
	for _, quantity := range []int64{1, -1} {
		_, _, err := noGrowth.view.Once(ctx, callOnce("key", "token", by, quantity, quota.Take))
		require.ErrorIs(r, err, store.ErrFull)
	}
	require.Equal(r, int64(3), r.remaining("key", by))
	_, repeated := noGrowth.once(remembered)
	require.True(r, repeated)
	d, repeated := noGrowth.once(callOnce("key", "token", by, 4, quota.Take))
	require.False(r, repeated)
	require.True(r, d.Limited)
	d, _ = noGrowth.once(callOnce("key", "token", by, 0, quota.Take))
	require.Equal(r, int64(3), d.Remaining)
}
