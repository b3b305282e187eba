package memory

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/window"
)

// An open hold takes no more memory than docs/limiters.md says.
func TestMemoryOfHolds(t *testing.T) {
	const n = 20_000
	windowed, _ := window.NewLimit(1e6, quota.Seconds(100))
	rule := limit.Rule{Kind: limit.Fixed, Window: windowed}
	for perKey, most := range map[int]int64{1: 400, 1000: 170} {
		r := newHoldRig(t, Options{Databases: 1})
		before := heapBytes()
		for i := range n {
			r.hold(fmt.Sprintf("key:%08d", i/perKey), fmt.Sprintf("request-%016d", i), rule, 1, time.Hour)
		}
		bytes := (heapBytes() - before) / n
		t.Logf("%d holds a key: %d bytes a hold", perKey, bytes)
		require.True(t, raceEnabled || bytes <= most, "%d holds a key: %d bytes a hold", perKey, bytes)
		runtime.KeepAlive(r)
	}
}

// BenchmarkOpenHolds measures how much memory an open hold takes, and how long the longest steps on many holds keep
// their locks: FLUSHALL, and DEL of a key with 1,000 holds.
func BenchmarkOpenHolds(b *testing.B) {
	const n = 200_000
	windowed, _ := window.NewLimit(1e6, quota.Seconds(100))
	rule := limit.Rule{Kind: limit.Fixed, Window: windowed}
	for _, perKey := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint(perKey, "-a-key"), func(b *testing.B) {
			for b.Loop() {
				r := newHoldRig(&testing.T{}, Options{Databases: 1})
				before := heapBytes()
				for i := range n {
					r.hold(fmt.Sprintf("key:%08d", i/perKey), fmt.Sprintf("request-%016d", i), rule, 1, time.Hour)
				}
				b.ReportMetric(float64(heapBytes()-before)/n, "bytes/hold")
				began := time.Now()
				_, _ = r.view.Delete(background, [][]byte{[]byte("key:00000001")})
				b.ReportMetric(float64(time.Since(began).Microseconds()), "us/DEL")
				began = time.Now()
				_ = r.view.Flush(background)
				b.ReportMetric(float64(time.Since(began).Microseconds()), "us/FLUSHDB")
				runtime.KeepAlive(r)
			}
		})
	}
}
