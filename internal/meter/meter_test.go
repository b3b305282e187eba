package meter

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// work uses CPU time, some of it at least.
func work(l *MaxCPUTime, rounds int) {
	began := l.Start()
	sum := 0
	for i := range rounds {
		sum += i * i
	}
	runtime.KeepAlive(sum)
	l.Stop(began)
}

func TestTheLongestIsKept(t *testing.T) {
	if runtime.GOOS != "linux" {
		return // there it measures nothing
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

func TestNobodyMeasures(t *testing.T) {
	var l *MaxCPUTime
	work(l, 1)
	require.Zero(t, testing.AllocsPerRun(100, func() { l.Stop(l.Start()) }))
}

// Time that passes while nothing is done does not count.
func TestWaitingIsNotWork(t *testing.T) {
	var l MaxCPUTime
	began := l.Start()
	<-time.After(20 * time.Millisecond)
	l.Stop(began)
	require.Less(t, l.Value(), 20*time.Millisecond)
}
