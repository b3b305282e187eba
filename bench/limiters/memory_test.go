//go:build linux && !race

package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/gcra"
	"cellserver/internal/lease"
	"cellserver/internal/quota"
	"cellserver/internal/store"
	"cellserver/internal/store/memory"
	"cellserver/internal/window"
)

// weighedKeys of 17 bytes.
const weighedKeys = 100_000

// weighed is a row of the page, and what is done to each key before it is weighed.
type weighed struct {
	row   string
	touch func(t *testing.T, v store.View, key []byte)
}

var weighedRows = []weighed{
	{"`CL.THROTTLE`", func(t *testing.T, v store.View, key []byte) {
		_, err := v.Throttle(t.Context(), key, must(gcra.NewLimit(999, 1000, 3600)), 1, quota.Take)
		require.NoError(t, err)
	}},
	{"`CL.FIXED`", take(store.Rule{Kind: store.Fixed, Window: must(window.NewLimit(1000, 3600))}, 1)},
	{"`CL.SLIDING`", take(store.Rule{Kind: store.Sliding, Window: must(window.NewLimit(1000, 3600))}, 1)},
	{"`CL.SLIDINGLOG`, 1 entry", log(1)},
	{"`CL.SLIDINGLOG`, 10 entries", log(10)},
	{"`CL.ACQUIRE`, 1 holder", hold(1)},
	{"`CL.ACQUIRE`, 10 holders", hold(10)},
}

func take(rule store.Rule, times int) func(t *testing.T, v store.View, key []byte) {
	return func(t *testing.T, v store.View, key []byte) {
		for range times {
			d, err := v.Take(t.Context(), key, &rule, 1, quota.Take)
			require.NoError(t, err)
			require.False(t, d.Limited)
			v.Begin() // the clock has moved on: equal instants are one entry
		}
	}
}

func log(times int) func(t *testing.T, v store.View, key []byte) {
	return take(store.Rule{Kind: store.SlidingLog, Log: must(window.NewLogLimit(1000, 3600, 1000))}, times)
}

func hold(holders int) func(t *testing.T, v store.View, key []byte) {
	return func(t *testing.T, v store.View, key []byte) {
		for i := range holders {
			request := must(lease.NewRequest(1000, 3600, fmt.Appendf(nil, "worker-%d", i), 1))
			_, err := v.Acquire(t.Context(), key, request, 1000)
			require.NoError(t, err)
		}
	}
}

// ticking is a clock that is a ms later whenever it is looked at.
type ticking struct{ *store.StillClock }

func (c ticking) Now() int64 {
	c.Advance(time.Millisecond)
	return c.StillClock.Now()
}

// TestMemoryAKey prints what docs/limiters.md quotes; go test -v shows it. The page may be wrong by
// a tenth.
func TestMemoryAKey(t *testing.T) {
	text, err := os.ReadFile("../../docs/limiters.md")
	require.NoError(t, err)
	_, costs, found := strings.Cut(string(text), "\n## Memory and CPU time\n")
	require.True(t, found)
	for _, row := range weighedRows {
		used, resident := row.weigh(t)
		t.Logf("| %s | %d | %d |", row.row, used, resident)
		_, rest, found := strings.Cut(costs, "| "+row.row+" | ")
		require.True(t, found, "the page has no row %s", row.row)
		var quoted float64
		_, err := fmt.Sscan(rest, &quoted)
		require.NoError(t, err, row.row)
		assert.InEpsilon(t, quoted, used, 0.1, "%s: write what go test -v prints into the page", row.row)
	}
}

// weigh fills a store: bytes a key by the store's own count, and as the system counts them.
func (w weighed) weigh(t *testing.T) (used, resident int64) {
	before := residentBytes(t)
	m := memory.New(memory.Options{Clock: ticking{store.NewStillClock(start)}, SweepEvery: -1})
	defer m.Close()
	v := m.View()
	for i := range weighedKeys {
		v.Begin()
		w.touch(t, v, fmt.Appendf(nil, "user:%012d", i))
	}
	usage := m.Usage()[0]
	require.Equal(t, weighedKeys, usage.Keys)
	return usage.Bytes / weighedKeys, (residentBytes(t) - before) / weighedKeys
}

func residentBytes(t *testing.T) int64 {
	debug.FreeOSMemory()
	text, err := os.ReadFile("/proc/self/statm")
	require.NoError(t, err)
	var size, resident int64
	_, err = fmt.Sscan(string(text), &size, &resident)
	require.NoError(t, err)
	return resident * int64(os.Getpagesize())
}
