package replay

import (
	"cellserver/internal/limit"
	"cellserver/internal/policy"
)

// The memory of a subject besides its name, which package weblog counts: its counts, the steps of the table, and its
// keys in the store. A sliding log keeps each call in its window.
const (
	countedBytes = 24 + 56
	stepsBytes   = 8 * 7
	keyBytes     = 160
	callBytes    = 16
)

// perSubject bounds the memory for a subject.
func (o *options) perSubject() (bytes int64) {
	bytes = countedBytes + stepsBytes
	if o.policy == nil { // suggest keeps requests, and decides by one throttle
		return bytes + keyBytes
	}
	if bytes += keysOf(o.policy, 1); o.table && !isOneThrottle(o.policy) {
		for _, factor := range factors {
			bytes += keysOf(o.policy, factor)
		}
	}
	if o.old != nil {
		bytes += keysOf(o.old, 1)
	}
	return bytes
}

// keysOf bounds the memory for the keys of a subject, with each limit multiplied by a factor.
func keysOf(p *policy.Policy, factor float64) (most int64) {
	sum := func(limits []policy.Limit) (bytes int64) {
		for i := range limits {
			if bytes += keyBytes; limits[i].Kind == limit.SlidingLog {
				bytes += int64(callBytes * float64(limits[i].Size()) * factor)
			}
		}
		return bytes
	}
	most = sum(p.Limits)
	for i := range p.Overrides {
		most = max(most, sum(p.Overrides[i].Limits))
	}
	if p.Ban != nil {
		most += keyBytes
	}
	return most
}
