package memory

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// benchmarkTake is BenchmarkThrottle for any limiter, with as many keys, so that cache misses cost
// the same.
func benchmarkTake(b *testing.B, rule *limit.Rule, keys int, fill int64) {
	m := New(Options{SweepEvery: -1})
	v, names := m.View(), keysOf17(keys)
	for _, key := range names {
		v.Take(background, key, rule, fill, quota.Take)
	}
	b.ReportAllocs()
	at := uint32(0)
	for b.Loop() {
		at = jump(at)
		v.Take(background, names[at%uint32(keys)], rule, 1, quota.Take)
	}
}

func BenchmarkTakeThrottle(b *testing.B) {
	benchmarkTake(b, &limit.Rule{Kind: limit.Throttle, Throttle: sixteenAMinute}, benchKeys, 1)
}
func BenchmarkTakeFixed(b *testing.B) {
	benchmarkTake(b, plainRule(limit.Fixed, 16, 1000), benchKeys, 1)
}
func BenchmarkTakeSliding(b *testing.B) {
	benchmarkTake(b, plainRule(limit.Sliding, 16, 1000), benchKeys, 1)
}

// BenchmarkTakeLog uses logs that are full, with a thousand entries: each call removes as many as
// it adds.
func BenchmarkTakeLog(b *testing.B) {
	const keys, rate = 1000, 1000
	clock := store.NewStillClock(1e18)
	m := New(Options{Clock: clock, SweepEvery: -1})
	v, names, rule := m.View(), keysOf17(keys), plainRule(limit.SlidingLog, rate, 1)
	call := func(n int) bool {
		clock.Advance(time.Second / (keys * rate)) // so that a key is called limit times per period
		v.Begin()
		d, err := v.Take(background, names[n%keys], rule, 1, quota.Take)
		return err == nil && !d.Limited
	}
	n := 0
	for ; n < keys*rate; n++ {
		call(n)
	}
	b.ReportAllocs()
	for b.Loop() {
		if !call(n) {
			b.Fatal("limited")
		}
		n++
	}
	b.ReportMetric(float64(m.Usage()[0].Bytes)/keys, "B/key")
}

// BenchmarkTakeLogRefused measures calls that are limited and only read.
func BenchmarkTakeLogRefused(b *testing.B) {
	const keys, rate = 1000, 1000
	clock := store.NewStillClock(1e18)
	m := New(Options{Clock: clock, SweepEvery: -1})
	v, names, rule := m.View(), keysOf17(keys), plainRule(limit.SlidingLog, rate, 1_000_000)
	for range rate {
		clock.Advance(1)
		v.Begin()
		for _, key := range names {
			v.Take(background, key, rule, 1, quota.Take)
		}
	}
	b.ReportAllocs()
	at := uint32(0)
	for b.Loop() {
		at = jump(at)
		v.Take(background, names[at%keys], rule, 1, quota.Take)
	}
}

func benchmarkLeases(b *testing.B, holders int) {
	m := New(Options{SweepEvery: -1})
	v, keys := m.View(), keysOf17(1<<16)
	for i := range holders {
		for _, key := range keys[:min(len(keys), 1<<20/max(holders, 1))] {
			v.Acquire(background, key, plainRequest(1e6, 1000, fmt.Sprint("holder", i), 1), 10_000)
		}
	}
	r, holder := plainRequest(1e6, 60, "another", 1), []byte("another")
	b.ReportAllocs()
	at, n := uint32(0), uint32(min(len(keys), 1<<20/max(holders, 1)))
	for b.Loop() {
		at = jump(at)
		v.Acquire(background, keys[at%n], r, 20_000)
		v.Release(background, keys[at%n], holder)
	}
}

func BenchmarkAcquireRelease0(b *testing.B)    { benchmarkLeases(b, 0) } // the key is created and removed
func BenchmarkAcquireRelease8(b *testing.B)    { benchmarkLeases(b, 8) }
func BenchmarkAcquireRelease1000(b *testing.B) { benchmarkLeases(b, 1000) }

func BenchmarkTakeAll4(b *testing.B) {
	m := New(Options{SweepEvery: -1})
	v, keys := m.View(), keysOf17(benchKeys)
	requests := make([]store.LimitRequest, 4)
	b.ReportAllocs()
	at := uint32(0)
	for b.Loop() {
		for i := range requests {
			at = jump(at)
			requests[i] = store.LimitRequest{Key: keys[at], Rule: *plainRule(takers[i%3], 16, 1000), Quantity: 1}
		}
		v.TakeAll(background, requests, quota.Take)
	}
}

// bytesPerKey bounds the memory of a key.
type bytesPerKey struct {
	name string
	keys int
	fill fillKey
	most float64 // bytes per key
	off  float64 // the largest fraction of the memory that the store may fail to count
}

// fillKey creates the state of a key.
type fillKey func(v store.View, clock *store.StillClock, key []byte)

func fillWindow(kind limit.Kind, entries int) fillKey {
	rule := plainRule(kind, 1000, 1000)
	return func(v store.View, clock *store.StillClock, key []byte) {
		for range entries {
			clock.Advance(1)
			v.Begin()
			v.Take(background, key, rule, 1, quota.Take)
		}
	}
}

// fillLeases names each holder in size bytes.
func fillLeases(holders, size int) fillKey {
	return func(v store.View, _ *store.StillClock, key []byte) {
		for i := range holders {
			v.Acquire(background, key, plainRequest(1000, 1000, fmt.Sprintf("%0*d", size, i), 1), 1000)
		}
	}
}

// TestBytesPerKey measures the memory of a key of each kind: as the store counts it, and by the
// growth of pages and heap. A memory limit depends on the store's count, so it must not be far too
// small.
func TestBytesPerKey(t *testing.T) {
	if raceEnabled {
		return // it takes additional memory for each allocation
	}
	const keys = 100_000
	names := keysOf17(keys)
	for _, c := range []bytesPerKey{
		{"throttle", keys, fillWindow(limit.Throttle, 1), 60, 0.1},
		{"fixed", keys, fillWindow(limit.Fixed, 1), 80, 0.1},
		{"sliding", keys, fillWindow(limit.Sliding, 1), 90, 0.1},
		{"log of 1", keys / 2, fillWindow(limit.SlidingLog, 1), 120, 0.1},
		{"log of 10", keys / 5, fillWindow(limit.SlidingLog, 10), 350, 0.1},
		{"log of 1000", keys / 500, fillWindow(limit.SlidingLog, 1000), 30_000, 0.1},
		{"1 lease", keys / 2, fillLeases(1, 16), 130, 0.1},
		{"10 leases", keys / 5, fillLeases(10, 16), 600, 0.1},
		{"100 leases", keys / 100, fillLeases(100, 16), 20_000, 0.4},
		{"100 leases of long names", keys / 500, fillLeases(100, 1000), 200_000, 0.2},
	} {
		t.Run(c.name, func(t *testing.T) { c.check(t, names[:c.keys]) })
	}
}

// check fills the keys of a new store, and compares the memory with the bounds.
func (c bytesPerKey) check(t *testing.T, names [][]byte) {
	clock := store.NewStillClock(1e18)
	m := New(Options{Clock: clock, SweepEvery: -1})
	v := m.View()
	v.Throttle(background, names[0], sixteenAMinute, 1, quota.Peek) // creates the shards
	before := heapBytes()
	for _, key := range names {
		c.fill(v, clock, key)
	}
	counted := m.Usage()[0].Bytes
	truth := float64(heapBytes()-before+pagedBytes(m)) / float64(c.keys)
	t.Logf("%-24s %8.1f B/key counted, %8.1f B/key true", c.name, float64(counted)/float64(c.keys), truth)
	require.Less(t, truth, c.most)
	require.Less(t, truth-float64(counted)/float64(c.keys), c.off*truth)
	runtime.KeepAlive(m)
}

// pagedBytes returns the memory of the first database that is not on Go's heap.
func pagedBytes(m *Store) (paged int64) {
	if !offHeap() {
		return 0
	}
	for i := range m.database(0).shards {
		s := &m.database(0).shards[i]
		paged += s.index.bytes() + s.pages.bytes
	}
	return paged
}

// heapBytes returns the size of Go's heap after garbage collection.
func heapBytes() int64 {
	var s runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}
