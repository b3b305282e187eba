package storetest

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/quota"
	"cellserver/internal/store"
	"cellserver/internal/store/memory"
)

// holdFaults are the faults that the cases of RunHolds detect. Each does one thing wrong that the store in memory does
// right.
var holdFaults = []struct {
	name   string
	found  []string // cases that must fail
	once   func(v *faultyHolds, o *store.Once) ([]quota.Decision, bool, error)
	settle func(v *faultyHolds, s *store.Settlement) ([]quota.Decision, error)
	holds  func(v *faultyHolds, list []store.Hold) []store.Hold
}{
	{name: "holds are decided each time", found: []string{"hold", "settle late"},
		once: func(v *faultyHolds, o *store.Once) ([]quota.Decision, bool, error) {
			if d, repeated, err := v.fullView.Once(ctx, o); !repeated && !errors.Is(err, store.ErrIsOpen) {
				return d, repeated, err
			}
			d, _, err := o.Decide(v.fullView)
			return d, false, err
		}},
	{name: "calls that make holds make none", found: []string{"settle", "hold of several", "holds listed", "holds of keys",
		"hold in a step"},
		once: func(v *faultyHolds, o *store.Once) ([]quota.Decision, bool, error) {
			d, _, err := o.Decide(v.fullView)
			return d, false, err
		}},
	{name: "refused calls make holds", found: []string{"hold refused"},
		once: func(v *faultyHolds, o *store.Once) ([]quota.Decision, bool, error) {
			call := *o
			call.Decide = func(on store.View) ([]quota.Decision, bool, error) {
				d, _, err := o.Decide(on)
				return d, true, err
			}
			return v.fullView.Once(ctx, &call)
		}},
	{name: "a settlement is a refund", found: []string{"settle the past", "settle a refund"},
		settle: func(v *faultyHolds, s *store.Settlement) ([]quota.Decision, error) {
			d, err := v.fullView.Settle(ctx, s)
			if err == nil && !s.Repeated {
				given := s.Quantity - v.taken
				for _, r := range s.Requests {
					_, err = v.Take(ctx, r.Key, &r.Rule, given-d[0].Taken, quota.Force)
				}
				d[0].Taken = given
			}
			return d, err
		}},
	{name: "an excess is not taken", found: []string{"settle more"},
		settle: func(v *faultyHolds, s *store.Settlement) ([]quota.Decision, error) {
			s.Requests[0].Quantity = min(s.Quantity, v.taken)
			return v.fullView.Settle(ctx, s)
		}},
	{name: "what is not known is charged", found: []string{"settle nothing"},
		settle: func(v *faultyHolds, s *store.Settlement) ([]quota.Decision, error) {
			s.Force = true
			return v.fullView.Settle(ctx, s)
		}},
	{name: "settlements are made again", found: []string{"settle", "settle at once"},
		settle: func(v *faultyHolds, s *store.Settlement) ([]quota.Decision, error) {
			d, err := v.fullView.Settle(ctx, s)
			if s.Repeated || err != nil {
				for _, r := range s.Requests {
					_, _ = v.Take(ctx, r.Key, &r.Rule, -1, quota.Take)
				}
			}
			return d, err
		}},
	{name: "holds are listed as they were made", found: []string{"holds listed"},
		holds: func(_ *faultyHolds, list []store.Hold) []store.Hold {
			if len(list) == 2 {
				list[0], list[1] = list[1], list[0]
			}
			return list
		}},
}

// faultyHolds is a view with one of the faults.
type faultyHolds struct {
	fullView
	fault int
	taken int64 // by the last hold
}

func (v *faultyHolds) Once(ctx context.Context, o *store.Once) ([]quota.Decision, bool, error) {
	if once := holdFaults[v.fault].once; once != nil {
		return once(v, o)
	}
	d, repeated, err := v.fullView.Once(ctx, o)
	if err == nil {
		v.taken = d[0].Taken
	}
	return d, repeated, err
}

func (v *faultyHolds) Settle(ctx context.Context, s *store.Settlement) ([]quota.Decision, error) {
	if settle := holdFaults[v.fault].settle; settle != nil {
		return settle(v, s)
	}
	return v.fullView.Settle(ctx, s)
}

func (v *faultyHolds) Holds(ctx context.Context, key []byte, count int) ([]store.Hold, error) {
	list, err := v.fullView.Holds(ctx, key, count)
	if holds := holdFaults[v.fault].holds; holds != nil {
		list = holds(v, list)
	}
	return list, err
}

type storeWithFaultyHolds struct {
	fullStore
	fault int
}

func (s storeWithFaultyHolds) View() store.View {
	return &faultyHolds{fullView: s.fullStore.View().(fullView), fault: s.fault}
}

func TestFaultsOfHoldsAreFound(t *testing.T) {
	needed := map[string]bool{}
	for _, c := range holdCases {
		clock := store.NewStillClock(epoch)
		require.Empty(t, failures(c, clock, memory.New(memory.Options{Clock: clock, SweepEvery: -1})), c.name)
	}
	for f := range holdFaults {
		for _, c := range holdCases {
			clock := store.NewStillClock(epoch)
			all := failures(c, clock, storeWithFaultyHolds{memory.New(memory.Options{Clock: clock, SweepEvery: -1}), f})
			needed[c.name] = needed[c.name] || len(all) > 0
		}
		for _, name := range holdFaults[f].found {
			i := 0
			for holdCases[i].name != name {
				i++
			}
			clock := store.NewStillClock(epoch)
			s := storeWithFaultyHolds{memory.New(memory.Options{Clock: clock, SweepEvery: -1}), f}
			require.NotEmpty(t, failures(holdCases[i], clock, s), "%s: %s", holdFaults[f].name, name)
		}
	}
	require.Len(t, needed, len(holdCases))
	for name, fails := range needed {
		require.True(t, fails, name)
	}
}
