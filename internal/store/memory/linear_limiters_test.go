package memory

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"cellserver/internal/lease"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// The histories in this file contain calls of all limiters and on several keys, so they cannot be
// split by key: one order must explain every result.

// wish is a call, for TakeAll on several keys; wished is its result.
type wish struct {
	what     string // take, all, acquire, renew, release, lookup
	keys     []int
	now      int64 // the caller's instant
	rules    []*limit.Rule
	requests []store.LimitRequest // for TakeAll, without their keys
	quantity int64
	mode     quota.Mode
	limit    int64 // for leases
	holder   string
}

type wished struct {
	decisions []quota.Decision
	allowed   bool
	number    int64
	entry     store.Entry
	err       error
}

func (w wished) equal(o wished) bool {
	return slices.Equal(w.decisions, o.decisions) && w.allowed == o.allowed && w.number == o.number &&
		w.entry == o.entry && w.err == o.err
}

// limiterKeys is the number of keys in a history, each in a shard of its own.
const limiterKeys = 4

// table is the state of the model: the state of each key, and the latest instant that its shard has
// seen.
type table [limiterKeys]struct {
	plain
	last int64
}

// advance returns the instant of a step on some keys. It updates the instants of their shards, and
// removes what has expired.
func (t *table) advance(w wish) (now int64) {
	now = w.now
	for _, key := range w.keys {
		now = max(now, t[key].last)
	}
	for _, key := range w.keys {
		t[key].last, t[key].plain = now, t[key].at(now)
	}
	return now
}

// step returns the expected result, and the table after it.
func (t table) step(w wish) (wished, table) {
	before := t
	now := t.advance(w)
	key := &t[w.keys[0]]
	var want wished
	switch w.what {
	case "take":
		want.decisions = make([]quota.Decision, 1)
		want.decisions[0], key.plain, want.err = key.take(now, w.rules[0], w.quantity, w.mode)
	case "all":
		return t.stepAll(w, now, before)
	case "lookup":
		want.entry = key.entry()
	default:
		key.plain, want.err = key.withLeases(func(l *lease.Leases) (changed bool) {
			switch w.what {
			case "acquire":
				want.decisions = make([]quota.Decision, 1)
				want.decisions[0], changed, _ = l.Acquire(now, plainRequest(w.limit, 2, w.holder, w.quantity), 10)
			case "renew":
				changed = l.Renew(now, time.Second, []byte(w.holder))
				want.allowed = changed
			default:
				want.number = l.Release(now, []byte(w.holder))
				changed = want.number > 0
			}
			return changed
		})
	}
	if want.err != nil {
		want.decisions = nil
	}
	return want, t
}

// stepAll is step for TakeAll. If one key is of another kind the later ones are not accessed, so
// their shards do not see the instant of the step.
func (t table) stepAll(w wish, now int64, before table) (want wished, next table) {
	next, want.allowed = t, true
	for i, key := range w.keys {
		var d quota.Decision
		d, next[key].plain, want.err = t[key].request(now, &w.requests[i])
		if want.err != nil {
			for _, unasked := range w.keys[i+1:] {
				t[unasked] = before[unasked]
			}
			return wished{err: want.err}, t
		}
		want.decisions, want.allowed = append(want.decisions, d), want.allowed && allows(&w.requests[i], d)
	}
	for i, key := range w.keys {
		if !want.allowed {
			want.decisions[i] = t[key].untaken(now, &w.requests[i], want.decisions[i])
		}
	}
	if !want.allowed || w.mode == quota.Peek {
		next = t
	}
	return want, next
}

var allLimiters = porcupine.Model{
	Init: func() any { return table{} },
	Step: func(state, input, output any) (bool, any) {
		want, next := state.(table).step(input.(wish))
		return want.equal(output.(wished)), next
	},
	Equal: func(a, b any) bool {
		x, y := a.(table), b.(table)
		for i := range x {
			if x[i].last != y[i].last || !x[i].equal(y[i].plain) {
				return false
			}
		}
		return true
	},
}

// randomWish returns a call on one of a few keys with few tokens. Each key is usually used with one
// kind, sometimes with another.
func randomWish(random *rand.Rand, all bool) wish {
	w := wish{
		what: "take", keys: random.Perm(limiterKeys)[:1], quantity: 1 + random.Int64N(2), mode: quota.Mode(random.IntN(4)),
		limit: 3, holder: fmt.Sprint("h", random.IntN(3)),
	}
	switch n := random.IntN(10); {
	case n < 4 && all:
		w.what, w.keys = "all", random.Perm(limiterKeys)[:2+random.IntN(3)]
		if n > 0 {
			w.mode = quota.Take
		}
	case n == 4:
		w.what = "lookup"
	case n > 7:
		w.quantity = -w.quantity
	}
	for _, key := range w.keys {
		w.rules = append(w.rules, plainRule(takers[(key+1)%len(takers)], 3, 1))
		w.requests = append(w.requests, randomRequest(random, &w, key))
	}
	if w.what == "take" && (w.keys[0] == 0 && random.IntN(4) > 0 ||
		random.IntN(5) == 0) { // key 0 usually has leases
		w.what, w.keys[0], w.quantity = []string{"acquire", "acquire", "acquire", "renew", "release"}[random.IntN(5)], 0,
			max(w.quantity, 0)
	}
	return w
}

// randomRequest returns a request of a call on several keys. Key 0 usually has leases.
func randomRequest(random *rand.Rand, w *wish, key int) store.LimitRequest {
	if key == 0 && random.IntN(4) > 0 {
		r := plainRequest(w.limit, 2, w.holder, max(w.quantity, 0))
		return store.LimitRequest{Rule: limit.Rule{Kind: limit.Lease},
			Lease: &store.LeaseRequest{Request: r, MaxHolders: 10}}
	}
	t := store.LimitRequest{Rule: *w.rules[len(w.rules)-1], Quantity: w.quantity}
	if random.IntN(4) == 0 {
		t.Mode = quota.Force
	}
	return t
}

func (w wish) on(v store.View, keys [][]byte) (got wished) {
	key := keys[w.keys[0]]
	switch w.what {
	case "take":
		got.decisions = make([]quota.Decision, 1)
		got.decisions[0], got.err = v.Take(background, key, w.rules[0], w.quantity, w.mode)
	case "all":
		requests := slices.Clone(w.requests)
		for i, n := range w.keys {
			requests[i].Key = keys[n]
		}
		got.decisions, got.allowed, got.err = v.TakeAll(background, requests, modeOf(w.mode == quota.Peek))
		got.decisions = slices.Clone(got.decisions) // the view reuses them
	case "acquire":
		got.decisions = make([]quota.Decision, 1)
		got.decisions[0], got.err = v.Acquire(background, key, plainRequest(w.limit, 2, w.holder, w.quantity), 10)
	case "renew":
		got.allowed, got.err = v.Renew(background, key, time.Second, []byte(w.holder))
	case "release":
		got.number, got.err = v.Release(background, key, []byte(w.holder))
	case "lookup":
		got.entry, _ = v.Lookup(background, key)
	}
	if got.err != nil {
		got.decisions = nil
	}
	return got
}

// limiterHistory records a short history of several callers and a clock.
func limiterHistory(seed uint64, all bool, fault faulty) [][]porcupine.Operation {
	const callers, calls = 4, 10
	clock := store.NewStillClock(1_700_000_000e9)
	m := New(Options{Databases: 1, Clock: clock, SweepEvery: -1})
	keys := apart(m.View(), limiterKeys)
	// A database that was never written to has no shards, and so none that have seen an instant.
	m.View().Throttle(background, []byte("elsewhere"), nanosecond, 1, quota.Peek)
	var r recording
	var done sync.WaitGroup
	begin := make(chan struct{})
	for client := range callers {
		random := rand.New(rand.NewPCG(seed, uint64(client)))
		done.Go(func() {
			v := fault(m.View())
			<-begin
			for range calls {
				if random.IntN(3) > 0 {
					v.Begin() // otherwise the batch keeps its instant
				}
				w := randomWish(random, all)
				w.now = v.Now()
				r.record(client, w, func() any { return w.on(v, keys) })
				if random.IntN(2) == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	done.Go(func() {
		<-begin
		random := rand.New(rand.NewPCG(seed, callers))
		for range calls {
			clock.Advance(time.Duration(random.Int64N(300)) * time.Millisecond)
			runtime.Gosched()
		}
	})
	close(begin)
	done.Wait()
	return [][]porcupine.Operation{r.calls}
}

func TestAllLimitersAreLinearizable(t *testing.T) {
	for _, all := range []bool{false, true} {
		require.Zero(t, illegal(allLimiters, histories/2, func(seed uint64) [][]porcupine.Operation {
			return limiterHistory(seed, all, sound)
		}))
	}
}

// halves is a view whose TakeAll takes from one key after the other until one refuses.
type halves struct{ store.View }

func (v halves) TakeAll(
	ctx context.Context, requests []store.LimitRequest, mode quota.Mode,
) ([]quota.Decision, bool, error) {
	said, allowed, err := v.View.TakeAll(ctx, requests, quota.Peek)
	said = slices.Clone(said)
	if err != nil || mode == quota.Peek || allowed {
		if allowed && mode == quota.Take {
			return v.View.TakeAll(ctx, requests, quota.Take)
		}
		return said, allowed, err
	}
	for i := range requests {
		if _, allowed, _ := v.View.TakeAll(ctx, requests[i:i+1], quota.Take); !allowed {
			break
		}
	}
	return said, allowed, nil
}

// noLocks is a view whose TakeAll peeks at each key and then takes from each, without holding the
// locks of all.
type noLocks struct{ store.View }

func (v noLocks) TakeAll(ctx context.Context, requests []store.LimitRequest,
	mode quota.Mode) (said []quota.Decision, allowed bool, err error) {
	allowed = true
	for _, each := range []quota.Mode{quota.Peek, quota.Take} {
		if each == quota.Take && (mode == quota.Peek || !allowed) {
			break
		}
		said = said[:0]
		for i := range requests {
			d, fits, err := v.View.TakeAll(ctx, requests[i:i+1], each)
			if err != nil {
				return nil, false, err
			}
			said, allowed = append(said, d[0]), allowed && fits
			runtime.Gosched()
		}
	}
	if allowed {
		return said, true, nil
	}
	d, _, err := v.View.TakeAll(ctx, requests, quota.Peek) // says what remains, unless all are allowed by now
	return slices.Clone(d), false, err
}

// anyway is a view whose TakeAll makes some requests although others are limited.
type anyway struct {
	store.View
	makes func(t *store.LimitRequest) bool
}

func (v anyway) TakeAll(
	ctx context.Context, requests []store.LimitRequest, mode quota.Mode,
) ([]quota.Decision, bool, error) {
	said, allowed, err := v.View.TakeAll(ctx, requests, mode)
	said = slices.Clone(said)
	for i := range requests {
		if err == nil && !allowed && mode == quota.Take && v.makes(&requests[i]) {
			v.View.TakeAll(ctx, requests[i:i+1], quota.Take)
		}
	}
	return said, allowed, err
}

// twice is a view that counts a lease twice when its holder acquires again.
type twice struct{ store.View }

func (v twice) Acquire(ctx context.Context, key []byte, r lease.Request, maxHolders int) (quota.Decision, error) {
	before, _ := v.Holders(ctx, key)
	d, err := v.View.Acquire(ctx, key, r, maxHolders)
	if after, _ := v.Holders(ctx, key); !d.Limited && d.Taken > 0 && len(before) > 0 && len(after) == len(before) {
		v.View.Acquire(ctx, key, plainRequest(9, 2, "again", d.Taken), maxHolders)
	}
	return d, err
}

// lostRelease is a view that reports permits as released, and keeps them.
type lostRelease struct{ store.View }

func (v lostRelease) Release(ctx context.Context, key []byte, holder []byte) (permits int64, err error) {
	list, err := v.Holders(ctx, key)
	for _, l := range list {
		if l.Holder == string(holder) {
			permits = l.Quantity
		}
	}
	return permits, err
}

// apartTake is a view whose Take peeks first and takes by force afterwards, in two steps.
type apartTake struct{ store.View }

func (v apartTake) Take(ctx context.Context, key []byte, rule *limit.Rule, quantity int64,
	mode quota.Mode) (quota.Decision, error) {
	if mode != quota.Take || quantity <= 0 {
		return v.View.Take(ctx, key, rule, quantity, mode)
	}
	d, err := v.View.Take(ctx, key, rule, quantity, quota.Peek)
	runtime.Gosched()
	if err == nil && !d.Limited {
		v.View.Take(ctx, key, rule, quantity, quota.Force)
	}
	return d, err
}

func TestTheCheckerFindsBugsOfAllLimiters(t *testing.T) {
	for name, fault := range map[string]faulty{
		"half is taken":                func(v store.View) store.View { return halves{v} },
		"not all shards are locked":    func(v store.View) store.View { return noLocks{v} },
		"a lease is counted twice":     func(v store.View) store.View { return twice{v} },
		"a release is lost":            func(v store.View) store.View { return lostRelease{v} },
		"peeking and taking are apart": func(v store.View) store.View { return apartTake{v} },
		"what is forced is taken anyway": func(v store.View) store.View {
			return anyway{v, func(t *store.LimitRequest) bool { return t.Mode == quota.Force }}
		},
		"a lease is granted anyway": func(v store.View) store.View {
			return anyway{v, func(t *store.LimitRequest) bool { return t.Lease != nil }}
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.True(t, finds(allLimiters,
				func(seed uint64) [][]porcupine.Operation { return limiterHistory(seed, true, fault) }))
		})
	}
}
