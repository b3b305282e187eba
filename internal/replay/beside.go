package replay

import (
	"fmt"
	"math"

	"cellserver/internal/gcra"
	"cellserver/internal/limit"
	"cellserver/internal/policy"
	"cellserver/internal/quota"
	"cellserver/internal/store"
	"cellserver/internal/window"
)

// factors are the multiples of the limits in the table.
var factors = []float64{0.5, 0.7, 1, 1.4, 2, 4}

// beside decides the same requests with other limits, without bans, and counts the requests that it limits.
type beside struct {
	factor  float64
	limited int64
	take    func(unix int64, subject int32, name []byte, quantity int64) (limited bool, err error)
}

func (b *beside) count(unix int64, subject int32, name []byte, quantity int64) error {
	limited, err := b.take(unix, subject, name, quantity)
	if limited {
		b.limited++
	}
	return err
}

// newBeside returns a beside for the limits of a policy times a factor. If the policy has one throttle, the same for
// all subjects, it keeps a TAT for each subject; otherwise the store decides.
func newBeside(p *policy.Policy, factor float64, data store.Store, maxLog int) *beside {
	b := &beside{factor: factor}
	if isOneThrottle(p) {
		b.take = throttle(multiply(&p.Limits[0], factor, maxLog).Throttle)
		return b
	}
	j := newJudge(p, data)
	j.prefix = fmt.Sprintf("%g:", factor)
	multiplied := map[*policy.Limit]policy.Limit{}
	j.scale = func(l *policy.Limit) policy.Limit {
		m, known := multiplied[l]
		if !known {
			m = multiply(l, factor, maxLog)
			multiplied[l] = m
		}
		return m
	}
	b.take = func(_ int64, _ int32, name []byte, quantity int64) (bool, error) {
		v, _, err := j.take(name, quantity)
		return v.Refused, err
	}
	return b
}

// throttle returns a function that decides by a throttle, with a TAT for each subject.
func throttle(l gcra.Limit) func(unix int64, subject int32, name []byte, quantity int64) (bool, error) {
	var tats list[int64]
	return func(unix int64, subject int32, _ []byte, quantity int64) (bool, error) {
		for int(subject) >= tats.count {
			tats.add()
		}
		if l.Blocks(quantity, quota.Take) {
			return true, nil
		}
		tat := tats.at(subject)
		o, next, err := l.Outcome(unix, *tat, quantity, quota.Take)
		*tat = next
		return o.Limited, err
	}
}

// multiply returns a limit times a factor. Of a throttle, it multiplies the burst and the rate. A number that would
// become too large is not multiplied.
func multiply(l *policy.Limit, factor float64, maxLog int) policy.Limit {
	m := *l
	size := l.Size()
	if n := math.Round(float64(size) * factor); n < math.MaxInt64/2 {
		size = int64(n)
	}
	if l.Size() > 0 {
		size = max(size, 1)
	}
	switch l.Kind {
	case limit.Throttle:
		emission := max(int64(math.Round(float64(l.Throttle.EmissionInterval())/factor)), 1)
		if t, err := gcra.NewLimitOf(size-1, 1, emission/1e9, emission%1e9); err == nil {
			m.Throttle = t
		}
	case limit.Quota:
		if t, err := window.NewCalendarLimit(size); err == nil {
			m.Window = t
		}
	default:
		if l.Kind == limit.SlidingLog {
			size = min(size, int64(maxLog))
		}
		if rule := l.Rule; rule.SetWindow(l.Kind, size, periodOf(l.Period(0)), maxLog) == nil {
			m.Rule = rule
		}
	}
	return m
}

// periodOf returns a period, given in nanoseconds that are whole microseconds.
func periodOf(ns int64) quota.Period {
	if ns%1e9 == 0 {
		return quota.Seconds(ns / 1e9)
	}
	return quota.Period(-ns / 1e3)
}
