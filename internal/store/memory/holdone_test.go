package memory

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/entry"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/racetest"
	"cellserver/internal/store"
)

// HoldOne makes the holds that Once makes, with the same events and the same entries of passes, and leaves to it what
// it does not make.
func TestHoldOne(t *testing.T) {
	racetest.HasOneGoroutine(t)
	for _, rule := range heldRules {
		options := Options{Databases: 1, MaxHolds: 8}
		one, once := newHoldRig(t, options), newHoldRig(t, options)
		random := rand.New(rand.NewPCG(1, uint64(rule.Kind)))
		seenOfOne, seenOfOnce := one.seen(), once.seen()
		made, repeats := 0, 0
		for n := range 4000 {
			advance := time.Duration(random.Int64N(3e9))
			one.clock.Advance(advance)
			once.clock.Advance(advance)
			key, id := fmt.Sprint("key", random.IntN(3)), fmt.Sprint("id", random.IntN(6))
			quantity := 1 + random.Int64N(25)
			var got, want quota.Decision
			var gotErr, wantErr error
			if random.IntN(3) > 0 {
				lasts := time.Duration(1 + random.Int64N(20e9))
				want, _, wantErr = once.holdBy(key, id, rule, quantity, lasts)
				d, repeated, ok := one.holdOne(key, id, rule, quantity, lasts)
				if got = d; ok {
					made++
				} else {
					got, _, gotErr = one.holdBy(key, id, rule, quantity, lasts)
				}
				if repeated {
					repeats++
				}
			} else {
				want, wantErr = once.settle(key, id, rule, quantity)
				got, gotErr = one.settle(key, id, rule, quantity)
			}
			require.Equal(t, wantErr, gotErr, "kind %d, call %d", rule.Kind, n)
			require.Equal(t, want, got, "kind %d, call %d", rule.Kind, n)
			require.Equal(t, once.book(key), one.book(key), "kind %d, call %d", rule.Kind, n)
			require.Equal(t, once.store.Holds(), one.store.Holds(), "kind %d, call %d", rule.Kind, n)
			require.Equal(t, seenOfOnce(), seenOfOne(), "kind %d, call %d", rule.Kind, n)
		}
		require.Greater(t, made, 1000)
		require.Greater(t, repeats, 10)
	}
}

// seen returns a function that returns what listeners and a pass have seen since it was called last. The entries of a
// pass are sorted, because their order depends on the seed of the store.
func (r *holdRig) seen() func() []string {
	var list []string
	r.store.TrackChanges()
	r.store.Subscribe(func(_ int, key []byte, why store.Event, by int64) {
		list = append(list, fmt.Sprintf("%s: event %d of %d", key, why, by))
	})
	r.view.SetCaller(7)
	return func() (seen []string) {
		var entries []string
		require.NoError(r, r.store.Pass(func(chunk []byte) error {
			read := entry.NewReader(chunk)
			for read.Next() {
				entries = append(entries, fmt.Sprintf("%+v", read.Entry))
			}
			return read.Err()
		}))
		slices.Sort(entries)
		seen, list = append(list, entries...), nil
		return seen
	}
}

// holdBy makes a call with HOLD by Once, and holdOne by HoldOne.
func (r *holdRig) holdBy(
	key, id string, rule limit.Rule, quantity int64, lasts time.Duration,
) (d quota.Decision, repeated bool, err error) {
	r.view.Begin()
	requests := []store.LimitRequest{{Key: []byte(key), Rule: rule, Quantity: quantity, Held: true}}
	decisions, repeated, err := r.view.Once(background, &store.Once{
		Keys: [][]byte{[]byte(key)}, HoldTime: lasts, Token: holdToken(id, quantity),
		Decide: func(v store.View) ([]quota.Decision, bool, error) {
			return v.TakeAll(background, requests, quota.Take)
		},
	})
	if err != nil {
		return d, repeated, err
	}
	return decisions[0], repeated, nil
}

func (r *holdRig) holdOne(
	key, id string, rule limit.Rule, quantity int64, lasts time.Duration,
) (d quota.Decision, repeated, made bool) {
	r.view.Begin()
	return r.view.HoldOne(background, []byte(key), &rule, quantity, holdToken(id, quantity), lasts)
}

func holdToken(id string, quantity int64) store.Token {
	return store.Token{ID: []byte(id), Words: [16]byte{byte(quantity % 5)}, TTL: 5 * time.Second}
}

// A hold on one key and its correction allocate nothing, unless a log is edited.
func TestHoldOneDoesNotAllocate(t *testing.T) {
	racetest.HasOneGoroutine(t)
	for _, rule := range heldRules[:3] {
		r := newHoldRig(t, Options{Databases: 1})
		keys := inOneShard(r.view, "key", 2)
		key, ids, n := []byte(keys[1]), [][]byte{}, 0
		for n := range 2000 {
			ids = append(ids, fmt.Appendf(nil, "an-id-of-a-request-%06d", n))
		}
		r.hold(keys[0], string(ids[0]), rule, 3, time.Hour) // so that the shard keeps its pages
		s := store.Settlement{Key: key, Remember: time.Minute, Requests: []store.LimitRequest{{Key: key, Rule: rule}}}
		correct := true
		require.Zero(t, testing.AllocsPerRun(1000, func() {
			r.view.Begin()
			s.ID = ids[n]
			n++
			d, _, made := r.view.HoldOne(background, key, &rule, 3, store.Token{ID: s.ID}, time.Minute)
			decisions, err := r.view.Settle(background, &s)
			correct = correct && made && d.Taken == 3 && err == nil && decisions[0].Taken == -3
		}), rule.Kind)
		require.True(t, correct, rule.Kind)
	}
}
