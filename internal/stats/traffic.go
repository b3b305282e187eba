package stats

import (
	"sync"
	"sync/atomic"
)

// Rates holds the instantaneous rates of INFO: means over the last 16 samples, as in Redis.
type Rates struct {
	mu             sync.Mutex
	calls, in, out rate
}

// rate is the growth of a counter over the last samples. A counter that was reset to 0 counts as
// not having grown.
type rate struct {
	lastAt, lastTotal int64 // the instant of the last sample in nanoseconds, 0 if there was none, and the counter then
	samples           [16]int64
	next              int
}

func (r *rate) add(now, total int64) {
	if grown, passed := total-r.lastTotal, now-r.lastAt; r.lastAt != 0 && passed > 0 {
		r.samples[r.next] = int64(float64(max(grown, 0)) / float64(passed) * 1e9)
		r.next = (r.next + 1) % len(r.samples)
	}
	r.lastAt, r.lastTotal = now, total
}

func (r *rate) perSecond() (mean int64) {
	for _, sample := range r.samples {
		mean += sample
	}
	return mean / int64(len(r.samples))
}

// Traffic counts the bytes that one event loop or goroutine has read from clients and written to
// them, and the number of reads and writes. Only its owner adds to it, so that adding needs no
// cache line of another.
type Traffic struct {
	In, Out, Reads, Writes atomic.Int64

	_ [32]byte // so that it has its cache lines to itself
}

// IO holds the counts of a Traffic as plain numbers.
type IO struct{ In, Out, Reads, Writes int64 }

// Add adds the counts of m, and resets m to zero.
func (t *Traffic) Add(m *IO) {
	if m.Reads|m.Writes == 0 {
		return
	}
	t.In.Add(m.In)
	t.Out.Add(m.Out)
	t.Reads.Add(m.Reads)
	t.Writes.Add(m.Writes)
	*m = IO{}
}

// AllTraffic is the list of all counters of traffic.
type AllTraffic struct {
	mu       sync.Mutex
	counters []*Traffic
}

// Sum returns the sum of all counters.
func (t *AllTraffic) Sum() (m IO) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, one := range t.counters {
		m.In += one.In.Load()
		m.Out += one.Out.Load()
		m.Reads += one.Reads.Load()
		m.Writes += one.Writes.Load()
	}
	return m
}

// Reset sets all counters to zero.
func (t *AllTraffic) Reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, one := range t.counters {
		for _, n := range []*atomic.Int64{&one.In, &one.Out, &one.Reads, &one.Writes} {
			n.Store(0)
		}
	}
}

// Add takes a sample of the counters at an instant in nanoseconds.
func (r *Rates) Add(now, calls int64, moved IO) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls.add(now, calls)
	r.in.add(now, moved.In)
	r.out.add(now, moved.Out)
}

// PerSecond returns the recent rates of calls, bytes read and bytes written.
func (r *Rates) PerSecond() (calls, in, out int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls.perSecond(), r.in.perSecond(), r.out.perSecond()
}

// Register adds a new counter to the list and returns it.
func (t *AllTraffic) Register() *Traffic {
	one := new(Traffic)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counters = append(t.counters, one)
	return one
}
