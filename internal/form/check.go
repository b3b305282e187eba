package form

import (
	"errors"
	"math"

	"cellserver/internal/lease"
	"cellserver/internal/limit"
)

// Check returns an error if the state is not one that the algorithm of its kind can produce.
func (s *State) Check() error {
	switch s.Kind {
	case limit.Throttle:
		return ensure(s.TAT > 0, "the TAT must be above 0")
	case limit.SlidingLog:
		return s.checkLog()
	case limit.Quota:
		return s.checkQuota()
	case limit.Lease:
		return s.checkLeases()
	case limit.Standing:
		return ensure(s.Standing.Check(), "a standing must have an exemption, a ban, a level or refusals")
	}
	if p := s.Kind.Plain(); p != nil {
		flaw := p.Flaw(s.Plain)
		return ensure(flaw == "", flaw)
	}
	return errors.New("unknown kind of limiter")
}

func ensure(condition bool, rule string) error {
	if condition {
		return nil
	}
	return errors.New("invalid state: " + rule)
}

// checkQuota checks a calendar quota. A window of a period begins at a multiple of the period, so
// its end is one. The windows of a zone are not checked: the program that wrote the state may have
// had another database.
func (s *State) checkQuota() error {
	period, end := s.Cycle.Period(), s.Quota.End
	return ensure(s.Cycle != 0 && s.Quota.Used > 0 && end > 0 && (period == 0 || end%int64(period) == 0),
		"a calendar quota must have a count above 0, and end at a multiple of its period")
}

func (s *State) checkLog() error {
	n := len(s.Entries)
	if n == 0 || s.Log.Until < 0 {
		return ensure(false, "a log must have entries")
	}
	total, at, sum := s.Log.Base, int64(-1), uint64(0)
	for _, e := range s.Entries {
		quantity := e.Total - total
		if e.At <= at || quantity == 0 || quantity > math.MaxInt64-sum {
			return ensure(false, "the entries of a log must be in order, with quantities above 0 and a sum below 2^63")
		}
		total, at, sum = e.Total, e.At, sum+quantity
	}
	return ensure(s.Log.End > at, "a log must end after its newest entry")
}

func (s *State) checkLeases() error {
	if len(s.Leases) == 0 {
		return ensure(false, "there must be leases")
	}
	seen := make(map[string]struct{}, len(s.Leases))
	before, sum := lease.Lease{}, int64(0)
	for _, l := range s.Leases {
		if err := lease.CheckHolder([]byte(l.Holder)); err != nil {
			return err
		}
		if l.End < before.End || l.End == before.End && l.Holder <= before.Holder || l.End <= 0 {
			return ensure(false, "leases must be in order")
		}
		if _, twice := seen[l.Holder]; twice || l.Quantity <= 0 || l.Quantity > math.MaxInt64-sum {
			return ensure(false, "a holder must have one lease, with permits above 0 and a sum below 2^63")
		}
		seen[l.Holder] = struct{}{}
		before, sum = l, sum+l.Quantity
	}
	return nil
}
