// Package stats counts what a server does: calls and their durations, errors, bytes, slow calls. It
// deals in numbers, and knows neither commands nor the protocol.
package stats

import (
	"maps"
	"math"
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
	Ns                      atomic.Int64 // time of all calls, in nanoseconds
	Timed, timedNs          atomic.Int64 // calls that are counted in buckets, and the sum of their durations
	buckets                 [timeBuckets]atomic.Int64
}

// timeBuckets is the number of buckets of the histogram of durations. Bucket i holds durations
// below 2^i microseconds; the last also holds all that are longer, which is about a quarter of an
// hour.
const timeBuckets = 31

// Observe counts a call in the histogram by its duration in nanoseconds.
func (r *Calls) Observe(ns int64) {
	r.timedNs.Add(ns)
	r.buckets[min(bits.Len64(uint64(max(ns, 0)/1000)), timeBuckets-1)].Add(1)
	r.Timed.Add(1)
}

// Usec returns the time of all calls, and the mean per call, in microseconds.
func (r *Calls) Usec() (total int64, perCall float64) {
	ns := r.Ns.Load()
	return ns / 1000, float64(ns) / 1000 / float64(max(r.Calls.Load(), 1))
}

// leastTimed is the number of timed calls from which on percentiles are known.
const leastTimed = 100

// Percentile returns the duration that a share (between 0 and 1) of the timed calls did not exceed, in
// microseconds, rounded up to a power of two. known is false if fewer than leastTimed calls were timed, or if
// no call is beyond the percentile: of 100 calls, the 99.9th percentile would be the longest.
func (r *Calls) Percentile(share float64) (usec int64, known bool) {
	timed := float64(r.Timed.Load())
	if timed < leastTimed || share < 1 && timed-math.Ceil(share*timed) < 1 {
		return 0, false
	}
	seen := int64(0)
	for i := range r.buckets {
		if seen += r.buckets[i].Load(); seen > 0 && float64(seen) >= share*timed {
			return 1 << i, true
		}
	}
	return 0, false // it was reset meanwhile
}

func (r *Calls) Reset() {
	for _, n := range []*atomic.Int64{&r.Calls, &r.Rejected, &r.Failed, &r.Limited, &r.Shadowed, &r.Ns, &r.Timed,
		&r.timedNs} {
		n.Store(0)
	}
	for i := range r.buckets {
		r.buckets[i].Store(0)
	}
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
	for _, code := range slices.Sorted(maps.Keys(c.counts)) {
		show(code, c.counts[code])
	}
}

// Histogram returns how many calls were timed, and pairs for the cumulative histogram: the upper end of each
// bucket that is not empty, in microseconds, and the number of timed calls that were no longer than that.
func (r *Calls) Histogram() (timed int64, pairs []int64) {
	for i := range r.buckets {
		if n := r.buckets[i].Load(); n > 0 {
			timed += n
			pairs = append(pairs, 1<<i, timed)
		}
	}
	return timed, pairs
}

// Durations returns how many of the timed calls took less than each of the bounds, in seconds, how many
// there were, and the sum of their durations in seconds. The bounds are powers of four from 4 us to 66 ms, and about
// a second: fewer than half of the buckets, because a monitoring system keeps each of them for every command, and they
// are half of a scrape. What is slower than 66 ms is in the slow log, with its time.
func (r *Calls) Durations() (below map[float64]uint64, count uint64, sum float64) {
	const first, last, step, longest = 2, 16, 2, 20
	below = make(map[float64]uint64, (last-first)/step+2)
	for i := range r.buckets {
		count += uint64(r.buckets[i].Load())
		if i >= first && i <= last && (i-first)%step == 0 || i == longest {
			below[float64(uint64(1)<<i)/1e6] = count
		}
	}
	return below, count, float64(r.timedNs.Load()) / 1e9
}
