package replay

import (
	"fmt"

	"cellserver/internal/gcra"
	"cellserver/internal/policy"
	"cellserver/internal/quota"
	"cellserver/internal/store"
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
		b.take = throttle(p.Limits[0].Times(factor, maxLog).Throttle)
		return b
	}
	j := newJudge(p, data)
	j.prefix = fmt.Sprintf("%g:", factor)
	multiplied := map[*policy.Limit]policy.Limit{}
	j.scale = func(l *policy.Limit) policy.Limit {
		m, known := multiplied[l]
		if !known {
			m = *l
			m.Rule = l.Times(factor, maxLog)
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
