package memory

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/gcra"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

const benchKeys = 1 << 20

// sixteenAMinute refills slowly enough for a key to stay during a benchmark, and limits most calls,
// as on a busy server.
var sixteenAMinute, _ = gcra.NewLimit(15, 16, 60)

// keysOf17 returns keys of 17 bytes, cut from one slice so that the keys themselves cause few cache
// misses.
func keysOf17(n int) [][]byte {
	keys, all := make([][]byte, n), make([]byte, 0, 17*n)
	for i := range keys {
		all = fmt.Appendf(all, "key:%013d", i)
		keys[i] = all[len(all)-17:]
	}
	return keys
}

// jump visits the keys in an order that caches cannot predict: a linear congruential generator with
// full period.
func jump(at uint32) uint32 { return (at*1664525 + 1013904223) % benchKeys }

func BenchmarkThrottle(b *testing.B) {
	m := New(Options{SweepEvery: -1})
	v, keys := m.View(), keysOf17(benchKeys)
	for _, key := range keys {
		v.Throttle(background, key, sixteenAMinute, 1, quota.Take)
	}
	b.ReportAllocs()
	at := uint32(0)
	for b.Loop() {
		at = jump(at)
		v.Throttle(background, keys[at], sixteenAMinute, 1, quota.Take)
	}
}

// BenchmarkGoMap is for comparison: a Go map, read and written with the same keys in the same
// order, without a lock, a clock or a decision.
func BenchmarkGoMap(b *testing.B) {
	keys, tats := make([]string, benchKeys), map[string]int64{}
	for i, key := range keysOf17(benchKeys) {
		keys[i] = string(key) // converted before, because converting would allocate at each call
		tats[keys[i]] = 1
	}
	b.ReportAllocs()
	at := uint32(0)
	for b.Loop() {
		at = jump(at)
		tats[keys[at]]++
	}
}

func BenchmarkThrottleInParallel(b *testing.B) {
	m := New(Options{SweepEvery: -1})
	keys := keysOf17(benchKeys)
	first := m.View()
	for _, key := range keys {
		first.Throttle(background, key, sixteenAMinute, 1, quota.Take)
	}
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(p *testing.PB) {
		v, at := m.View(), uint32(0)
		for p.Next() {
			at = jump(at)
			v.Throttle(background, keys[at], sixteenAMinute, 1, quota.Take)
		}
	})
}

// BenchmarkInsert creates keys, in several stores one after the other, and reports the memory per
// key.
func BenchmarkInsert(b *testing.B) {
	keys := keysOf17(benchKeys)
	b.ReportAllocs()
	m, perKey := (*Store)(nil), 0.0
	var v store.View
	at := len(keys)
	for b.Loop() {
		if at == len(keys) {
			b.StopTimer()
			if m != nil {
				perKey = float64(m.Usage()[0].Bytes) / float64(at)
			}
			m, at = New(Options{SweepEvery: -1}), 0
			v = m.View()
			b.StartTimer()
		}
		v.Throttle(background, keys[at], sixteenAMinute, 1, quota.Take)
		at++
	}
	if perKey == 0 {
		perKey = float64(m.Usage()[0].Bytes) / float64(at)
	}
	b.ReportMetric(perKey, "B/key")
}

func TestKnownKeysAllocateNothing(t *testing.T) {
	m := New(Options{Clock: store.NewStillClock(1e18), SweepEvery: -1})
	v, keys, heard := m.View(), keysOf17(1000), 0
	m.Subscribe(func(int, []byte, store.Event, int64) { heard++ })
	calls := func(key []byte, both [][]byte) {
		v.Begin()
		v.Throttle(background, key, sixteenAMinute, 1, quota.Take)
		v.Throttle(background, key, sixteenAMinute, 1, quota.Peek)
		v.Throttle(background, key, sixteenAMinute, 1, quota.Force)
		v.Throttle(background, key, sixteenAMinute, -1, quota.Take)
		v.Lookup(background, key)
		v.Count(background, both)
	}
	for _, key := range keys {
		calls(key, keys[:2])
	}
	at := 0
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		calls(keys[at%len(keys)], keys[:2])
		at++
	}))
	require.NotZero(t, heard)
}

// BenchmarkPass changes an eighth of many keys, each once, and measures the pass, per changed key.
func BenchmarkPass(b *testing.B) {
	m := New(Options{SweepEvery: -1})
	m.TrackChanges()
	v, keys := m.View(), keysOf17(8*benchKeys)
	write := func([]byte) error { return nil }
	limit, _ := gcra.NewLimit(1_000_000, 1, 60)
	for _, key := range keys {
		v.Throttle(background, key, limit, 1, quota.Take)
	}
	require.NoError(b, m.Pass(write))
	b.ReportAllocs()
	b.ResetTimer()
	at := uint32(0)
	for left := b.N; left > 0; left -= benchKeys {
		b.StopTimer()
		for range min(left, benchKeys) {
			at = (at*1664525 + 1013904223) % (8 * benchKeys)
			v.Throttle(background, keys[at], limit, 1, quota.Take)
		}
		b.StartTimer()
		require.NoError(b, m.Pass(write))
	}
}
