// Package stats counts what a server does: calls and their durations, errors, bytes, slow calls. It
// deals in numbers, and knows neither commands nor the protocol.
package stats

import (
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
)

// Calls counts the calls of one command and their outcomes. It is safe for concurrent use. A call is added
// to Limited, Shadowed or Failed before it is added to Calls. So if Calls is read first, the calls that it has
// counted are in the others too.
type Calls struct {
	Calls, Rejected, Failed atomic.Int64
	Limited                 atomic.Int64 // calls that a limiter refused, with a first integer of 1
	Shadowed                atomic.Int64 // calls that a policy would have refused if it were not in shadow mode
	Timed, totalNs          atomic.Int64 // calls that were timed, and the sum of their durations in nanoseconds
	Tracked                 atomic.Int64 // timed calls that are counted in buckets
	buckets                 [timeBuckets]atomic.Int64
	Untracked               atomic.Int64 // calls made while latency-tracking was off
	untrackedNs             atomic.Int64 // sum of the durations of timed calls that are not counted in buckets
}

// timeBuckets is the number of buckets of the histogram of durations. Bucket i holds durations
// below 2^i microseconds; the last also holds all that are longer, which is about a quarter of an
// hour.
const timeBuckets = 31

// Observe records the duration of one call, in nanoseconds. With track, it also counts it in the
// histogram.
func (r *Calls) Observe(ns int64, track bool) {
	r.Timed.Add(1)
	r.totalNs.Add(ns)
	if !track {
		r.untrackedNs.Add(ns)
		return
	}
	r.Tracked.Add(1)
	r.buckets[min(bits.Len64(uint64(max(ns, 0)/1000)), timeBuckets-1)].Add(1)
}

// Usec returns an estimate of the total duration of all calls, and the mean per call, in
// microseconds. Of fast commands only a sample of the calls is timed; the others are assumed to
// take as long on average.
func (r *Calls) Usec() (total int64, perCall float64) {
	timed := r.Timed.Load()
	if timed == 0 {
		return 0, 0
	}
	perCall = float64(r.totalNs.Load()) / float64(timed) / 1000
	return int64(perCall * float64(r.Calls.Load())), perCall
}

// Percentile returns the duration that a share (between 0 and 1) of the tracked calls did not
// exceed, in microseconds, rounded up to a power of two.
func (r *Calls) Percentile(share float64) int64 {
	wanted, seen := share*float64(r.Tracked.Load()), int64(0)
	for i := range r.buckets {
		if seen += r.buckets[i].Load(); seen > 0 && float64(seen) >= wanted {
			return 1 << i
		}
	}
	return 0
}

func (r *Calls) Reset() {
	for _, n := range []*atomic.Int64{&r.Calls, &r.Rejected, &r.Failed, &r.Limited, &r.Shadowed, &r.Timed, &r.totalNs,
		&r.Tracked, &r.Untracked, &r.untrackedNs} {
		n.Store(0)
	}
	for i := range r.buckets {
		r.buckets[i].Store(0)
	}
}

// trackedCalls returns how many calls were made while latency-tracking was on; on is true if it is
// on now.
func (r *Calls) trackedCalls(on bool) int64 {
	calls := -r.Untracked.Load()
	if on {
		calls += r.Calls.Load()
	}
	return max(calls, r.Tracked.Load())
}

// Codes counts errors by their code, the first word of the message.
type Codes struct {
	mu     sync.Mutex
	counts map[string]int64
}

// maxCodes bounds the number of codes that are counted. All codes are the server's own, and they
// are few.
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

// Each calls show for each code, in alphabetical order. It holds the lock meanwhile.
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

// Histogram returns how many calls were made while latency-tracking was on, and pairs for the
// cumulative histogram: the upper end of each bucket that is not empty, in microseconds, and the
// number of calls that were no longer than that. Timed calls stand for all, so the counts are
// scaled up.
func (r *Calls) Histogram(on bool) (calls int64, pairs []int64) {
	calls = r.trackedCalls(on)
	seen, tracked := int64(0), r.Tracked.Load()
	for i := range r.buckets {
		if n := r.buckets[i].Load(); n > 0 {
			seen = min(seen+n, tracked)
			pairs = append(pairs, 1<<i, int64(float64(calls)*float64(seen)/float64(tracked)))
		}
	}
	return calls, pairs
}

// Durations returns how many of the tracked calls took less than each of the bounds, in seconds, how many
// there were, and the sum of their durations in seconds. The bounds are powers of four from 4 us to about a
// second: half of the buckets, because a monitoring system keeps each of them for every command.
func (r *Calls) Durations() (below map[float64]uint64, count uint64, sum float64) {
	const first, last, step = 2, 20, 2
	below = make(map[float64]uint64, (last-first)/step+1)
	for i := range r.buckets {
		count += uint64(r.buckets[i].Load())
		if i >= first && i <= last && (i-first)%step == 0 {
			below[float64(uint64(1)<<i)/1e6] = count
		}
	}
	return below, count, float64(r.totalNs.Load()-r.untrackedNs.Load()) / 1e9
}
