// Package stats counts what a server does: calls and how long they took, errors, bytes, slow calls.
// It knows numbers, and neither commands nor the protocol.
package stats

import (
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
)

// Calls is what became of a row's calls.
type Calls struct {
	Calls, Rejected, Failed atomic.Int64
	Limited                 atomic.Int64 // of a limiter: answered with 1
	Timed, ns               atomic.Int64 // calls whose time was taken, and the sum of those times
	Tracked                 atomic.Int64 // of those, what times holds
	times                   [timeBuckets]atomic.Int64
	Untracked               atomic.Int64 // calls while latency-tracking was off: see trackLatency
}

// timeBuckets: the i-th holds the times under 2^i microseconds, the last all that are longer, a
// quarter of an hour.
const timeBuckets = 31

// Observe adds the time of one call, in nanoseconds.
func (r *Calls) Observe(ns int64, track bool) {
	r.Timed.Add(1)
	r.ns.Add(ns)
	if !track {
		return
	}
	r.Tracked.Add(1)
	r.times[min(bits.Len64(uint64(max(ns, 0)/1000)), timeBuckets-1)].Add(1)
}

// Usec is about how long all calls took together. Of quick commands the time of few is taken: the
// others are as those.
func (r *Calls) Usec() (all int64, perCall float64) {
	timed := r.Timed.Load()
	if timed == 0 {
		return 0, 0
	}
	perCall = float64(r.ns.Load()) / float64(timed) / 1000
	return int64(perCall * float64(r.Calls.Load())), perCall
}

// Percentile is the time that so many of the calls (of 1) did not exceed, in microseconds, rounded
// up to a power of two.
func (r *Calls) Percentile(share float64) int64 {
	wanted, seen := share*float64(r.Tracked.Load()), int64(0)
	for i := range r.times {
		if seen += r.times[i].Load(); seen > 0 && float64(seen) >= wanted {
			return 1 << i
		}
	}
	return 0
}

func (r *Calls) Reset() {
	for _, n := range []*atomic.Int64{&r.Calls, &r.Rejected, &r.Failed, &r.Limited, &r.Timed, &r.ns, &r.Tracked,
		&r.Untracked} {
		n.Store(0)
	}
	for i := range r.times {
		r.times[i].Store(0)
	}
}

// trackedCalls are those of a row that were made while it was on.
func (r *Calls) trackedCalls(on bool) int64 {
	calls := -r.Untracked.Load()
	if on {
		calls += r.Calls.Load()
	}
	return max(calls, r.Tracked.Load())
}

// Codes counts errors by their first word.
type Codes struct {
	mu     sync.Mutex
	counts map[string]int64
}

// maxCodes bounds the words that are counted. They are ours, and few.
const maxCodes = 128

func (c *Codes) Add(code string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = make(map[string]int64)
	}
	if _, known := c.counts[code]; known || len(c.counts) < maxCodes {
		c.counts[code]++
	}
}

func (c *Codes) Reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.counts)
}

// Each shows the counts, by name.
func (c *Codes) Each(show func(code string, count int64)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := make([]string, 0, len(c.counts))
	for code := range c.counts {
		names = append(names, code)
	}
	slices.Sort(names)
	for _, code := range names {
		show(code, c.counts[code])
	}
}

// Histogram is how many calls there were while they were tracked, and of each bucket in which there
// are some its end in microseconds and the calls that were no longer.
func (r *Calls) Histogram(on bool) (calls int64, pairs []int64) {
	calls = r.trackedCalls(on)
	seen, tracked := int64(0), r.Tracked.Load()
	for i := range r.times {
		if n := r.times[i].Load(); n > 0 {
			seen = min(seen+n, tracked)
			pairs = append(pairs, 1<<i, int64(float64(calls)*float64(seen)/float64(tracked)))
		}
	}
	return calls, pairs
}
