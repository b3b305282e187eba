// Package maxmemory measures how much memory the process uses, and reports whether that exceeds a
// bound.
package maxmemory

import (
	"fmt"
	"os"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"

	"cellserver/internal/client"
)

// Bound compares the memory in use with a bound. Check measures it ten times a second, and a hundred
// times while it is exceeded; calls of clients that bring as many bytes as they need never do. So the
// bound can be exceeded by what clients write in a tenth of a second: tens of megabytes of keys, or as
// many bytes of values as the network carries. A call that needs more memory than it brings, because
// it decompresses or copies, calls Reserve.
type Bound struct {
	// Startup is the memory that the process used at its start, and Available the memory of the
	// machine or the container, in bytes.
	Startup, Available int64
	// OffHeap and Heap return the bytes in use outside of Go's heap, and in the heap including its
	// garbage. Freed returns how many bytes of keys have become garbage since the start. Collect runs
	// the garbage collector. Now returns nanoseconds. Tests replace them.
	OffHeap, Heap, Freed func() int64
	Collect              func()
	Now                  func() int64

	limit atomic.Int64 // bytes; 0 for no bound
	peak  atomic.Int64

	mu       sync.Mutex // held for microseconds
	reserved int64      // bytes that calls in progress have reserved
	released int64      // bytes of garbage that calls which had reserved have left since the start
	left     int64      // bytes that may be reserved before memory is measured again
	leftOf   int64      // the bound to which left applies
	missing  int64      // the most that was missing for a call since the last Check

	collectMu sync.Mutex // held while garbage is collected, for milliseconds: no event loop takes it
	collected collection
}

// collection is the last collection of garbage.
type collection struct {
	freed    int64 // what freed returned
	end      int64 // instant
	duration int64 // ns
}

// keyStore is a store that keeps keys outside of Go's heap, and some of their values in it.
type keyStore interface {
	OffHeapBytes() int64
	FreedBytes() int64
}

// Begin sets the functions that measure the process and its stores, and measures Startup.
func (b *Bound) Begin(now func() int64, stores ...any) {
	var all []keyStore
	for _, s := range stores {
		if s, ok := s.(keyStore); ok {
			all = append(all, s)
		}
	}
	sum := func(of func(keyStore) int64) func() int64 {
		return func() (bytes int64) {
			for _, s := range all {
				bytes += of(s)
			}
			return bytes
		}
	}
	b.OffHeap, b.Freed = sum(keyStore.OffHeapBytes), sum(keyStore.FreedBytes)
	b.Heap, b.Collect, b.Now = heapBytes, runtime.GC, now
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
// is exceeded only together with garbage, that is collected: at most once per collectEvery, in
// nanoseconds, and for at most a collectShare'th of the time. But if keys or calls have freed as many
// bytes as are missing, it is certain that a collection helps. Then it need not wait if a part of
// the bound, freedShare, was freed since the last one, so that the effort is in proportion to what
// clients do; nor if collections take at most a certainShare'th of the time.
const (
	collectEvery = int64(time.Second)
	collectShare = 20
	certainShare = 4
	freedShare   = 16
)

// Check is like Exceeded, but collects garbage first where that may change the answer, also for calls
// whose Reserve has failed. One goroutine calls it.
func (b *Bound) Check() bool {
	b.mu.Lock()
	over := max(b.Used()+b.reserved-b.Limit(), b.missing)
	b.left, b.missing = 0, 0
	b.mu.Unlock()
	if b.Limit() > 0 && over > 0 {
		b.collect(over)
	}
	return b.Exceeded()
}

// Reserve counts bytes that a call is about to allocate, or refuses them: it returns false if they
// and what is in use and reserved exceed the bound. If mayCollect is set, it collects garbage before
// it refuses, which takes milliseconds; otherwise, Check does. After true, Release must follow when the
// call has ended, or has allocated everything.
func (b *Bound) Reserve(bytes int64, mayCollect bool) bool {
	missing := b.take(bytes)
	if missing > 0 && mayCollect && b.collect(missing) {
		missing = b.take(bytes)
	}
	if missing <= 0 {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.missing = max(b.missing, missing)
	return false
}

// take reserves bytes, or returns how many are missing.
func (b *Bound) take(bytes int64) (missing int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if limit := b.Limit(); limit > 0 {
		if bytes > b.left || b.leftOf != limit {
			b.left, b.leftOf = limit-b.Used()-b.reserved, limit
		}
		if missing = bytes - b.left; missing > 0 {
			return missing
		}
		b.left -= bytes
	}
	b.reserved += bytes
	return 0
}

// Release ends what Reserve began: what the call still uses is measured from then on. About a half is
// garbage: what is kept was made in memory of the call, and copied into the store.
func (b *Bound) Release(bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reserved -= bytes
	b.released += bytes / 2
}

// garbage returns how many bytes of keys and calls have become garbage since the start.
func (b *Bound) garbage() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Freed() + b.released
}

// collect collects garbage if so many bytes are missing, unless that cannot help, or was done too
// recently.
func (b *Bound) collect(missing int64) bool {
	b.collectMu.Lock()
	defer b.collectMu.Unlock()
	began, last, total := b.Now(), &b.collected, b.garbage()
	since, freed := began-last.end, total-last.freed
	switch {
	case b.Heap() < missing:
		return false
	case freed >= missing && (freed >= b.Limit()/freedShare || since >= certainShare*last.duration):
	case last.end > 0 && since < max(collectEvery, collectShare*last.duration):
		return false
	}
	b.Collect()
	last.end = b.Now()
	last.duration, last.freed = last.end-began, total
	return true
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
