package meter

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// work uses some CPU time, depending on rounds.
func work(l *MaxCPUTime, rounds int) {
	began := l.Start()
	sum := 0
	for i := range rounds {
		sum += i * i
	}
	runtime.KeepAlive(sum)
	l.Stop(began)
}

func TestMaximumIsKept(t *testing.T) {
	if runtime.GOOS != "linux" {
		return // threadTime is not implemented there
	}
	var l MaxCPUTime
	require.Zero(t, l.Value())
	work(&l, 1_000_000)
	longest := l.Value()
	require.Positive(t, longest)
	for range 100 {
		work(&l, 10)
	}
	require.Less(t, l.Value(), longest+time.Second)
	require.GreaterOrEqual(t, l.Value(), longest)
}

func TestNilMeasuresNothing(t *testing.T) {
	var l *MaxCPUTime
	work(l, 1)
	require.Zero(t, testing.AllocsPerRun(100, func() { l.Stop(l.Start()) }))
}

// Time spent waiting is not CPU time, and does not count.
func TestWaitingIsNotCounted(t *testing.T) {
	var l MaxCPUTime
	began := l.Start()
	<-time.After(20 * time.Millisecond)
	l.Stop(began)
	require.Less(t, l.Value(), 20*time.Millisecond)
}
