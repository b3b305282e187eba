// Package maxmemory measures how much memory the process uses, and says whether that is more than
// the bound that it was given.
package maxmemory

import (
	"fmt"
	"os"
	"runtime"
	"runtime/metrics"
	"sync/atomic"
	"time"

	"cellserver/internal/client"
)

// Bound compares the memory in use with a bound. What is used is measured by Look, which one
// goroutine calls ten times a second, and never by a call of a client: so the bound can be exceeded
// by what clients write in a tenth of a second, which is tens of megabytes of keys, or of values
// what the network carries.
type Bound struct {
	// Startup is what the process used when it began, and There what the machine, or the container,
	// has; both in bytes.
	Startup, There int64
	// Outside and Heap are the bytes in use outside of Go's heap, and in it with its garbage; Collect
	// collects that. Tests replace them.
	Outside, Heap func() int64
	Collect       func()

	most atomic.Int64 // bytes; 0 for no bound
	peak atomic.Int64
	next int64 // instant, nanoseconds, before which garbage is not collected again; Look's own
}

// outsider is a store that keeps keys outside of Go's heap.
type outsider interface{ OffHeapBytes() int64 }

// Begin measures the process, and from now on what the store keeps outside of Go's heap with it.
func (b *Bound) Begin(store any) {
	b.Outside, b.Heap, b.Collect = func() int64 { return 0 }, heapBytes, runtime.GC
	if s, ok := store.(outsider); ok {
		b.Outside = s.OffHeapBytes
	}
	b.Startup, b.There = b.Used(), client.AvailableMemory()
}

// Set changes the bound, in bytes; 0 for none.
func (b *Bound) Set(bytes int64) { b.most.Store(bytes) }

// Most is the bound, 0 if there is none.
func (b *Bound) Most() int64 { return b.most.Load() }

// Used is the memory of the process, of keys and of all else, in bytes. Garbage counts until it is
// collected.
func (b *Bound) Used() int64 {
	used := b.Outside() + b.Heap()
	for peak := b.peak.Load(); used > peak && !b.peak.CompareAndSwap(peak, used); peak = b.peak.Load() {
	}
	return used
}

// Peak is the most that Used has returned.
func (b *Bound) Peak() int64 { return b.peak.Load() }

// Exceeded reports whether more is used than the bound.
func (b *Bound) Exceeded() bool {
	most := b.Most()
	return most > 0 && b.Used() > most
}

// Go may put off collecting garbage until there is as much of it as of all else. So where garbage
// may be what exceeds the bound, Look collects it to find out, which takes a twentieth of its time
// at most.
const (
	collectEvery = int64(time.Second)
	collectShare = 20
)

// Look is Exceeded after garbage was collected, if that may change the answer and it was not
// collected a moment ago. One goroutine calls it, with a clock in nanoseconds.
func (b *Bound) Look(clock func() int64) bool {
	if !b.Exceeded() {
		return false
	}
	now := clock()
	if b.Outside() > b.Most() || now < b.next {
		return true
	}
	b.Collect()
	done := clock()
	b.next = done + max(collectEvery, collectShare*(done-now))
	return b.Exceeded()
}

// heapBytes is what Go's heap holds.
func heapBytes() int64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}

// Resident is the process's resident set in bytes, 0 where the system does not tell.
func Resident() int64 {
	var size, resident int64
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	if _, err := fmt.Sscan(string(statm), &size, &resident); err != nil {
		return 0
	}
	return resident * int64(os.Getpagesize())
}
