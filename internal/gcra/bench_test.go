package gcra

import (
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/quota"
)

// The clock advances, so that branch prediction cannot learn the outcome: half of the calls find
// the bucket full.
func benchmarkStep(b *testing.B, quantity int64, mode quota.Mode) {
	l, err := NewLimit(15, 30, 60)
	require.NoError(b, err)
	now, tat := int64(epoch), int64(0)
	b.ReportAllocs()
	for b.Loop() {
		now += l.emission / 2
		_, tat, _ = l.Step(now, tat, quantity, mode)
	}
}

func BenchmarkTake(b *testing.B)     { benchmarkStep(b, 1, quota.Take) }
func BenchmarkPeek(b *testing.B)     { benchmarkStep(b, 1, quota.Peek) }
func BenchmarkUpTo(b *testing.B)     { benchmarkStep(b, 3, quota.UpTo) }
func BenchmarkForce(b *testing.B)    { benchmarkStep(b, 1, quota.Force) }
func BenchmarkGiveBack(b *testing.B) { benchmarkStep(b, -1, quota.Take) }

// BenchmarkNewLimitAndTake measures a call whose limit is not cached.
func BenchmarkNewLimitAndTake(b *testing.B) {
	now, tat, period := int64(epoch), int64(0), int64(60)
	b.ReportAllocs()
	for b.Loop() {
		l, _ := NewLimit(15, 30, quota.Seconds(period))
		now += l.emission / 2
		_, tat, _ = l.Step(now, tat, 1, quota.Take)
	}
}

func TestAllocatesNothing(t *testing.T) {
	now, tat := int64(epoch), int64(0)
	allocs := testing.AllocsPerRun(100, func() {
		l, _ := NewLimit(15, 30, 60)
		for mode := quota.Take; mode <= quota.Force; mode++ {
			for quantity := int64(-2); quantity <= 17; quantity++ {
				now += 1e9
				_, tat, _ = l.Step(now, tat, quantity, mode)
			}
		}
		_, _ = NewLimit(0, 1e18, 1)
		_, _, _ = l.Step(now, tat, 1<<62, quota.Force)
	})
	require.Zero(t, allocs)
}
