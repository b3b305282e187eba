package commands

import (
	"sync"
	"sync/atomic"
	"time"
)

// What INFO shows of the last moments, and what is looked at now and then.

// SampleEvery is how often Sample is to be called.
const SampleEvery = 100 * time.Millisecond

// Sample looks at how fast things go, and how much memory is used. One goroutine calls it every SampleEvery.
func (in *Instance) Sample() {
	now, t := in.Now(), in.traffic.sum()
	in.rates.mu.Lock()
	in.rates.calls.add(now, in.calls())
	in.rates.in.add(now, t.In)
	in.rates.out.add(now, t.Out)
	in.rates.mu.Unlock()
	in.countClients(now)
	in.holdings.vain.Store(false)
	in.boundHoldings(in.holdings.bytes.Load())
	in.weigh()
	in.clear()
}

// rates are what INFO calls instantaneous: over the last sixteen samples, as in Redis.
type rates struct {
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

// Traffic counts what somebody, such as an event loop, has read from clients and written to them: bytes, and how often. He alone adds to
// it, so that to add takes nothing from others.
type Traffic struct {
	In, Out, Reads, Writes atomic.Int64

	_ [32]byte // to be alone in its cache line
}

// Moved is the same as numbers: bytes, and how often.
type Moved struct{ In, Out, Reads, Writes int64 }

// Add adds what was moved, which is none then.
func (t *Traffic) Add(m *Moved) {
	if m.Reads|m.Writes == 0 {
		return
	}
	t.In.Add(m.In)
	t.Out.Add(m.Out)
	t.Reads.Add(m.Reads)
	t.Writes.Add(m.Writes)
	*m = Moved{}
}

// traffic is what all have counted.
type traffic struct {
	mu  sync.Mutex
	all []*Traffic
}

// CountTraffic is for one more who counts.
func (in *Instance) CountTraffic() *Traffic {
	t := new(Traffic)
	in.traffic.mu.Lock()
	defer in.traffic.mu.Unlock()
	in.traffic.all = append(in.traffic.all, t)
	return t
}

func (t *traffic) sum() (m Moved) {
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

func (t *traffic) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, one := range t.all {
		for _, n := range []*atomic.Int64{&one.In, &one.Out, &one.Reads, &one.Writes} {
			n.Store(0)
		}
	}
}
