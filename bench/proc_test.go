//go:build linux

package main

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseStatus(t *testing.T) {
	r, err := parseStatus("Name:\tVmRSS: 1 kB\nUmask:\t0022\nVmPeak:\t  999999 kB\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\nThreads:\t3\n")
	require.NoError(t, err)
	assert.Equal(t, resident{now: 1 << 20, most: 2 << 20}, r)
}

func TestParseStatusRefuses(t *testing.T) {
	for _, status := range []string{
		"", "Name:\tx\nVmRSS:\t1024 kB\n", "Name:\tx\nVmRSS:\t1024 mB\nVmHWM:\t1 kB\n",
		"Name:\tx\nVmRSS:\tx kB\nVmHWM:\t1 kB\n",
	} {
		_, err := parseStatus(status)
		assert.ErrorContains(t, err, "in kB", status)
	}
}

// The CPU clock of a process agrees with getrusage, which counts all its threads.
func TestCPUTime(t *testing.T) {
	start, err := cpuTime(os.Getpid())
	require.NoError(t, err)
	var used time.Duration
	for used < 50*time.Millisecond {
		now, err := cpuTime(os.Getpid())
		require.NoError(t, err)
		used = now - start
	}
	before, err := cpuTime(os.Getpid())
	require.NoError(t, err)
	var usage syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	after, err := cpuTime(os.Getpid())
	require.NoError(t, err)
	const rounding = 20 * time.Millisecond // the kernel rounds when it splits user from system time
	total := time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	assert.Greater(t, total, before-rounding)
	assert.Less(t, total, after+rounding)
}

func TestCPUTimeOfNoProcess(t *testing.T) {
	_, err := cpuTime(1 << 28)
	assert.ErrorContains(t, err, "CPU clock of process")
}

func TestResidentOf(t *testing.T) {
	require.NoError(t, resetPeak(os.Getpid()))
	r, err := residentOf(os.Getpid())
	require.NoError(t, err)
	assert.Greater(t, r.now, int64(1<<20))
	assert.GreaterOrEqual(t, r.most, r.now*9/10)
}

func TestParseStat(t *testing.T) {
	stat := "cpu  1 1 1 1 1 1 1 1 1 1\ncpu0 1 2 4 1000 1000 8 16 32 1000 1000\ncpu10 9 9 9 9 9 9 9 9 9 9\nintr 1\n"
	busy, err := parseStat(stat, 0)
	require.NoError(t, err)
	assert.Equal(t, 63*tick, busy)
	_, err = parseStat(stat, 1)
	assert.EqualError(t, err, "/proc/stat: no core 1")
	_, err = parseStat("cpu\ncpu0 x\n", 0)
	assert.ErrorContains(t, err, "/proc/stat: ")
}

func TestParseRate(t *testing.T) {
	rate, err := parseRate("INCR k: rps=0.0 (overall: nan) avg_msec=nan\rINCR k: 98039.22 requests per second, p50=0.247 msec\n\n")
	require.NoError(t, err)
	assert.Equal(t, 98039.22, rate)
	_, err = parseRate("")
	assert.Error(t, err)
}
