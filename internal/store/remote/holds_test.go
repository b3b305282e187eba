package remote_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/calendar"
	"cellserver/internal/gcra"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
	"cellserver/internal/store/memory"
	"cellserver/internal/store/remote"
	"cellserver/internal/store/remote/remotetest"
	"cellserver/internal/window"
)

// The stores of a sameHolds.
const (
	inMemory = iota
	overStore
	otherServer
)

// sameHolds makes random calls with holds in memory and over a store with two servers, at the same instants.
type sameHolds struct {
	*testing.T
	*rand.Rand
	clock *store.StillClock
	views [3]store.View
	rules [2]limit.Rule // the limits of a kind; calls name either
	given int64
	wrong string // the first difference
	epoch int    // ids begin here: once its time is over, a hold of a deleted key counts as lapsed over a store
}

func newSameHolds(t *testing.T, seed uint64) *sameHolds {
	s := &sameHolds{T: t, Rand: rand.New(rand.NewPCG(seed, 4)), clock: store.NewStillClock(1e18)}
	m := memory.New(memory.Options{Clock: s.clock, SweepEvery: -1})
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	backend := remotetest.New(s.clock, 16)
	backend.Mistakes = seed%2 == 1
	s.views[inMemory] = m.View()
	for i := overStore; i <= otherServer; i++ {
		s.views[i] = onTable(t, backend, remote.Options{}).View()
	}
	kind, size, cycle := limit.OfPolicies[s.IntN(len(limit.OfPolicies))], 5+s.Int64N(20), calendar.Every(20*time.Second)
	for i := range s.rules {
		period := quota.Seconds(10 * (1 + s.Int64N(2)))
		r := limit.Rule{Kind: kind, Cycle: cycle}
		if kind == limit.Throttle {
			r.Throttle, _ = gcra.NewLimit(size-1, 10, period)
		}
		r.Window, _ = window.NewLimit(size, period)
		r.Log, _ = window.NewLogLimit(size, period, 1000)
		s.rules[i] = r
	}
	return s
}

// same makes a call in memory and on one of the servers, and compares the outcomes.
func (s *sameHolds) same(name string, call func(v store.View) (any, error)) any {
	var outcomes [2]any
	var errs [2]error
	for i, at := range []int{inMemory, overStore + s.IntN(otherServer)} {
		s.views[at].Begin()
		outcomes[i], errs[i] = call(s.views[at])
	}
	if s.wrong == "" && (fmt.Sprint(errs[0]) != fmt.Sprint(errs[1]) || !reflect.DeepEqual(outcomes[0], outcomes[1])) {
		s.wrong = fmt.Sprintf("%s: %+v %v in memory, %+v %v over a store", name, outcomes[0], errs[0], outcomes[1], errs[1])
	}
	return outcomes[0]
}

// keys returns the one or two keys of the calls with an ID.
func (*sameHolds) keys(id int) [][]byte {
	keys := [][]byte{[]byte("a"), []byte("b")}
	if id%2 == 1 {
		slices.Reverse(keys)
	}
	return keys[:1+id/2%2]
}

func (s *sameHolds) requests(keys [][]byte, most int64, held bool) (requests []store.LimitRequest) {
	for _, key := range keys {
		requests = append(requests, store.LimitRequest{
			Key: key, Rule: s.rules[s.IntN(len(s.rules))], Quantity: s.Int64N(most), Held: held})
	}
	return requests
}

// outcome is the outcome of a call with HOLD or SETTLE.
type outcome struct {
	decisions []quota.Decision
	repeated  bool
	charged   []int64
}

func (s *sameHolds) hold(number int) {
	id, keys, ttl := fmt.Sprint("id", number), s.keys(number), time.Duration(1+s.IntN(20))*time.Second
	requests, words := s.requests(keys, 6, true), [16]byte{byte(s.IntN(2))}
	copy(words[1:], bytes.Join(keys, nil)) // calls on other keys have other words
	for i := range requests {
		requests[i].Quantity++
	}
	mode := []quota.Mode{quota.Take, quota.UpTo}[s.IntN(2)]
	s.same("HOLD "+id, func(v store.View) (any, error) {
		decisions, repeated, err := v.Once(context.Background(), &store.Once{
			Keys: keys, HoldTime: ttl, Token: store.Token{ID: []byte(id), Words: words, TTL: 5 * time.Second},
			Decide: func(v store.View) ([]quota.Decision, bool, error) {
				return v.TakeAll(context.Background(), requests, mode)
			},
			Takes: func(store.View) (bool, error) { return true, nil },
		})
		return outcome{append([]quota.Decision(nil), decisions...), repeated, nil}, err
	})
}

func (s *sameHolds) settle(number int) {
	id, requests := fmt.Sprint("id", number), s.requests(s.keys(number), 8, false)
	of := store.Settlement{Key: requests[0].Key, ID: []byte(id), Quantity: requests[0].Quantity, Requests: requests,
		Skip: s.IntN(2) == 0, Force: s.IntN(8) == 0, Remember: 5 * time.Second}
	made := s.same("SETTLE "+id, func(v store.View) (any, error) {
		own := of
		decisions, err := v.(store.HoldKeeper).Settle(context.Background(), &own)
		if err != nil || own.Repeated { // an earlier run of the step may have set it
			own.Charged = nil
		}
		return outcome{append([]quota.Decision(nil), decisions...), own.Repeated, own.Charged}, err
	}).(outcome)
	for i := range made.decisions {
		s.given -= min(made.decisions[i].Taken, 0)
	}
}

// call makes a random call.
func (s *sameHolds) call() {
	if s.IntN(3) > 0 {
		s.clock.Advance(time.Duration(s.IntN(2000)) * time.Millisecond)
	}
	id := s.epoch + s.IntN(8)
	switch s.IntN(9) {
	case 0, 1, 2:
		s.hold(id)
	case 3, 4, 5:
		s.settle(id)
	case 6:
		requests := s.requests(s.keys(id), 4, false)
		for i := range requests {
			requests[i].Quantity -= 2
		}
		s.same("take", func(v store.View) (any, error) {
			decisions, allowed, err := v.TakeAll(context.Background(), requests, quota.Take)
			return outcome{append([]quota.Decision(nil), decisions...), allowed, nil}, err
		})
	case 7:
		if key := s.keys(id)[:1]; s.IntN(4) == 0 {
			s.epoch += 8
			s.same("DEL", func(v store.View) (any, error) {
				_, err := v.Delete(context.Background(), key) // a store may keep keys for some time after their end
				return nil, err
			})
		}
	}
	for _, key := range []string{"a", "b"} {
		s.same("CL.HOLDS "+key, func(v store.View) (any, error) {
			list, err := v.(store.HoldKeeper).Holds(context.Background(), []byte(key), 100)
			return append([]store.Hold{}, list...), err
		})
	}
}

// Holds over a store behave as in memory, whichever of two servers is asked, and although steps run
// again.
func TestHoldsAreAsInMemory(t *testing.T) {
	t.Parallel()
	given := map[limit.Kind]int64{}
	for seed := range uint64(200) {
		s := newSameHolds(t, seed)
		for range 60 {
			s.call()
			require.Empty(t, s.wrong, "seed %d", seed)
		}
		given[s.rules[0].Kind] += s.given
	}
	for _, kind := range limit.OfPolicies {
		require.Positive(t, given[kind], kind)
	}
}

// refunding is a view whose settlements give back the whole difference.
type refunding struct {
	store.View
	store.HoldKeeper
}

func (v refunding) Settle(ctx context.Context, o *store.Settlement) ([]quota.Decision, error) {
	decisions, err := v.HoldKeeper.Settle(ctx, o)
	for i := range decisions {
		if left := o.Requests[i].Quantity - o.Charged[i] - decisions[i].Taken; !o.Repeated && left < 0 && o.Charged[i] > 0 {
			d, _ := v.Take(ctx, o.Requests[i].Key, &o.Requests[i].Rule, left, quota.Take)
			decisions[i].Remaining, decisions[i].Taken = d.Remaining, decisions[i].Taken+d.Taken
		}
	}
	return decisions, err
}

// The comparison finds servers that give back too much.
func TestHoldsThatDifferAreFound(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		s := newSameHolds(t, seed)
		for i := overStore; i <= otherServer; i++ {
			s.views[i] = refunding{s.views[i], s.views[i].(store.HoldKeeper)}
		}
		for range 60 {
			if s.call(); s.wrong != "" {
				return
			}
		}
	}
	require.Fail(t, "no difference was found")
}

// A hold gives nothing back to a key that another client of the backend has deleted, and that was made again since,
// whether by other calls or by another hold.
func TestHoldsOfDeletedKeys(t *testing.T) {
	t.Parallel()
	for _, held := range []bool{false, true} {
		for _, kind := range []limit.Kind{limit.Throttle, limit.Fixed, limit.Sliding, limit.SlidingLog} {
			s := newSameHolds(t, 0)
			backend := remotetest.New(s.clock, 16)
			v := onTable(t, backend, remote.Options{}).View()
			r := limit.Rule{Kind: kind}
			r.Throttle, _ = gcra.NewLimit(99, 100, quota.Seconds(1000))
			r.Window, _ = window.NewLimit(100, quota.Seconds(1000))
			r.Log, _ = window.NewLogLimit(100, quota.Seconds(1000), 1000)
			take := func(id string, quantity int64) {
				v.Begin()
				requests := []store.LimitRequest{{Key: []byte("key"), Rule: r, Quantity: quantity, Held: id != ""}}
				decide := func(v store.View) ([]quota.Decision, bool, error) {
					return v.TakeAll(context.Background(), requests, quota.Take)
				}
				if id == "" {
					_, _, err := decide(v)
					require.NoError(t, err)
					return
				}
				_, _, err := v.Once(context.Background(), &store.Once{
					Keys: [][]byte{[]byte("key")}, HoldTime: time.Hour, Token: store.Token{ID: []byte(id), TTL: time.Hour},
					Decide: decide, Takes: func(store.View) (bool, error) { return true, nil },
				})
				require.NoError(t, err)
			}
			take("first", 30)
			require.NotNil(t, backend.Get(0, "key"))
			backend.Put(0, "key", nil)
			s.clock.Advance(time.Second)
			take(map[bool]string{true: "second"}[held], 20)
			v.Begin()
			of := store.Settlement{Key: []byte("key"), ID: []byte("first"), Remember: time.Hour,
				Requests: []store.LimitRequest{{Key: []byte("key"), Rule: r}}}
			decisions, err := v.(store.HoldKeeper).Settle(context.Background(), &of)
			require.NoError(t, err)
			require.Zero(t, decisions[0].Taken, "%s, then a hold: %v", kind, held)
		}
	}
}
