package form

import (
	"errors"
	"math"

	"cellserver/internal/lease"
)

// Check returns an error if no algorithm can produce the state.
func (s *State) Check() error {
	switch s.Kind {
	case Throttle:
		return holds(s.TAT > 0, "a TAT is above 0")
	case Fixed:
		f := s.Fixed
		return holds(f.Start >= 0 && f.Used > 0 && f.End > f.Start, "a fixed window lasts and holds something")
	case Sliding:
		return s.checkSliding()
	case SlidingLog:
		return s.checkLog()
	case Lease:
		return s.checkLeases()
	}
	return errors.New("it is of no kind")
}

func holds(condition bool, rule string) error {
	if condition {
		return nil
	}
	return errors.New("it breaks a rule: " + rule)
}

// checkSliding checks a sliding window: it ends one period after the start of the current window,
// or two periods if that window is not empty.
func (s *State) checkSliding() error {
	w := s.Sliding
	if w.Start < 0 || w.Previous < 0 || w.Current < 0 || w.Until < 0 {
		return holds(false, "the numbers of a sliding window are not negative")
	}
	whole := w.Current == 0 || (w.End-w.Start)%2 == 0
	return holds((w.Previous > 0 || w.Current > 0) && w.End > w.Start && whole,
		"a sliding window lasts for one period or two, and holds something")
}

func (s *State) checkLog() error {
	n := len(s.Entries)
	if n == 0 || s.Log.Until < 0 {
		return holds(false, "a log has entries")
	}
	total, at, sum := s.Log.Base, int64(-1), uint64(0)
	for _, e := range s.Entries {
		quantity := e.Total - total
		if e.At <= at || quantity == 0 || quantity > math.MaxInt64-sum {
			return holds(false, "the entries of a log are in order, hold something, and not too much")
		}
		total, at, sum = e.Total, e.At, sum+quantity
	}
	return holds(s.Log.End > at, "a log ends after its newest entry")
}

func (s *State) checkLeases() error {
	if len(s.Leases) == 0 {
		return holds(false, "there are leases")
	}
	seen := make(map[string]struct{}, len(s.Leases))
	before, sum := lease.Lease{}, int64(0)
	for _, l := range s.Leases {
		if err := lease.CheckHolder([]byte(l.Holder)); err != nil {
			return err
		}
		if l.End < before.End || l.End == before.End && l.Holder <= before.Holder || l.End <= 0 {
			return holds(false, "leases are in order")
		}
		if _, twice := seen[l.Holder]; twice || l.Quantity <= 0 || l.Quantity > math.MaxInt64-sum {
			return holds(false, "a holder has one lease, of something, and not too much")
		}
		seen[l.Holder] = struct{}{}
		before, sum = l, sum+l.Quantity
	}
	return nil
}
