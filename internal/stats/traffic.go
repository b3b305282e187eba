package stats

import (
	"sync"
	"sync/atomic"
)

// Rates are what INFO calls instantaneous: over the last sixteen samples, as in Redis.
type Rates struct {
	mu             sync.Mutex
	calls, in, out rate
}

// rate is of a number that only grows, or begins anew.
type rate struct {
	at, total int64 // when it was looked at last, in nanoseconds, and what it was; 0: never
	samples   [16]int64
	next      int
}

func (r *rate) add(now, total int64) {
	if grown, passed := total-r.total, now-r.at; r.at != 0 && passed > 0 {
		r.samples[r.next] = int64(float64(max(grown, 0)) / float64(passed) * 1e9)
		r.next = (r.next + 1) % len(r.samples)
	}
	r.at, r.total = now, total
}

func (r *rate) perSecond() (mean int64) {
	for _, sample := range r.samples {
		mean += sample
	}
	return mean / int64(len(r.samples))
}

// Traffic counts what somebody, such as an event loop, has read from clients and written to them:
// bytes, and how often. He alone adds to it, so that to add takes nothing from others.
type Traffic struct {
	In, Out, Reads, Writes atomic.Int64

	_ [32]byte // to be alone in its cache line
}

// IO is the same as numbers: bytes, and how often.
type IO struct{ In, Out, Reads, Writes int64 }

// Add adds what was moved, which is none then.
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

// AllTraffic is what all have counted.
type AllTraffic struct {
	mu  sync.Mutex
	all []*Traffic
}

func (t *AllTraffic) Sum() (m IO) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, one := range t.all {
		m.In += one.In.Load()
		m.Out += one.Out.Load()
		m.Reads += one.Reads.Load()
		m.Writes += one.Writes.Load()
	}
	return m
}

func (t *AllTraffic) Reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, one := range t.all {
		for _, n := range []*atomic.Int64{&one.In, &one.Out, &one.Reads, &one.Writes} {
			n.Store(0)
		}
	}
}

// Add looks at how much there is of each, at an instant in nanoseconds.
func (r *Rates) Add(now, calls int64, moved IO) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls.add(now, calls)
	r.in.add(now, moved.In)
	r.out.add(now, moved.Out)
}

// PerSecond are the calls, and the bytes that were read and written, of a second of late.
func (r *Rates) PerSecond() (calls, in, out int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls.perSecond(), r.in.perSecond(), r.out.perSecond()
}

// Register is for one more that counts.
func (t *AllTraffic) Register() *Traffic {
	one := new(Traffic)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, one)
	return one
}
