package memory

import (
	"testing"

	"cellserver/internal/quota"
)

// BenchmarkThrottleAhead prefetches the keys of 16 calls at a time, as a session does with
// pipelined calls.
func BenchmarkThrottleAhead(b *testing.B) {
	m := New(Options{SweepEvery: -1})
	v, keys := m.View(), keysOf17(benchKeys)
	for _, key := range keys {
		v.Throttle(background, key, sixteenAMinute, 1, quota.Take)
	}
	b.ReportAllocs()
	at, next := uint32(0), make([][]byte, 16)
	for left := 0; b.Loop(); left-- {
		if left == 0 {
			for left = range next {
				at = jump(at)
				next[left] = keys[at]
			}
			left = len(next)
			v.Prefetch(next)
		}
		v.Throttle(background, next[len(next)-left], sixteenAMinute, 1, quota.Take)
	}
}
