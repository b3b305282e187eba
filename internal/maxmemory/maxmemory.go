// Package maxmemory measures how much memory the process uses, and reports whether that exceeds a
// bound.
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

// Bound compares the memory in use with a bound. Check measures it ten times a second; calls of
// clients never do. So the bound can be exceeded by what clients write in a tenth of a second: tens
// of megabytes of keys, or as many bytes of values as the network carries.
type Bound struct {
	// Startup is the memory that the process used at its start, and Available the memory of the
	// machine or the container, in bytes.
	Startup, Available int64
	// OffHeap and Heap return the bytes in use outside of Go's heap, and in the heap including its
	// garbage. Collect runs the garbage collector. Tests replace them.
	OffHeap, Heap func() int64
	Collect       func()

	limit atomic.Int64 // bytes; 0 for no bound
	peak  atomic.Int64
	next  int64 // instant, nanoseconds, before which Check does not collect garbage again
}

// offHeapStore is a store that keeps keys outside of Go's heap.
type offHeapStore interface{ OffHeapBytes() int64 }

// Begin sets the functions that measure the process and its stores, and measures Startup.
func (b *Bound) Begin(stores ...any) {
	var outside []offHeapStore
	for _, s := range stores {
		if s, ok := s.(offHeapStore); ok {
			outside = append(outside, s)
		}
	}
	b.OffHeap = func() (bytes int64) {
		for _, s := range outside {
			bytes += s.OffHeapBytes()
		}
		return bytes
	}
	b.Heap, b.Collect = heapBytes, runtime.GC
	b.Startup, b.Available = b.Used(), client.AvailableMemory()
}

// Set changes the bound, in bytes; 0 means none.
func (b *Bound) Set(bytes int64) { b.limit.Store(bytes) }

// Limit returns the bound in bytes; 0 if there is none.
func (b *Bound) Limit() int64 { return b.limit.Load() }

// Used returns the memory in use, in bytes: keys and everything else, with garbage that is not
// collected yet.
func (b *Bound) Used() int64 {
	used := b.OffHeap() + b.Heap()
	for peak := b.peak.Load(); used > peak && !b.peak.CompareAndSwap(peak, used); peak = b.peak.Load() {
	}
	return used
}

// Peak returns the maximum that Used has returned.
func (b *Bound) Peak() int64 { return b.peak.Load() }

// Exceeded reports whether more memory is in use than the bound.
func (b *Bound) Exceeded() bool {
	limit := b.Limit()
	return limit > 0 && b.Used() > limit
}

// By default, Go collects garbage only when there is as much of it as of live data. So if the bound
// is exceeded only together with garbage, Check collects that to find out. It does so at most once
// per collectEvery, in nanoseconds, and for at most a collectShare'th of the time.
const (
	collectEvery = int64(time.Second)
	collectShare = 20
)

// Check is like Exceeded, but collects garbage first where that may change the answer. One
// goroutine calls it; clock returns nanoseconds.
func (b *Bound) Check(clock func() int64) bool {
	if !b.Exceeded() {
		return false
	}
	now := clock()
	if b.OffHeap() > b.Limit() || now < b.next {
		return true
	}
	b.Collect()
	done := clock()
	b.next = done + max(collectEvery, collectShare*(done-now))
	return b.Exceeded()
}

// heapBytes returns the size of the objects in Go's heap, in bytes.
func heapBytes() int64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}

// Resident returns the process's resident set size in bytes; 0 where the system does not provide
// it.
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
