//go:build linux

package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/bench/load"
	"cellserver/bench/report"
)

// patiently repeats a measurement that fails because the machine is so busy that a backend does not
// answer for a second.
func patiently[T any](t *testing.T, measure func() (T, error)) T {
	for tries := 1; ; tries++ {
		result, err := measure()
		if err == nil || tries == 10 || !strings.Contains(err.Error(), "STOREUNSURE") &&
			!strings.Contains(err.Error(), "STOREDOWN") {
			require.NoError(t, err)
			return result
		}
		t.Log(err)
	}
}

func TestSmokeStoreCPU(t *testing.T) {
	b := newTestBench(t, quick(t))
	l := storeLoad{backend: redisBackend, keys: 50, callers: 128, servers: []int{1, 2}, limit: keysLimit,
		share: 1.0 / 3, ownMicros: 12}
	s := patiently(t, func() (report.Scenario, error) { return l.cpu(t.Context(), b) })
	var names []string
	for _, row := range s.CPU {
		names = append(names, row.Server)
		assert.Positive(t, row.Micros.Middle)
		assert.Positive(t, row.Throughput)
		assert.Equal(t, 2, row.Ratio.Rounds)
	}
	assert.Equal(t, []string{report.RedisRate, report.RedisRate + " again", report.RedisRateScript,
		report.Cellservers(1), report.Cellservers(2), report.Pipelined}, names)
	assert.Nil(t, s.CPU[2].Own)
	for _, row := range s.CPU[3:] {
		assert.Positive(t, row.Own.Middle)
	}
	assert.Positive(t, b.used, "the CPU time of the backends is that of the benchmark")
	bars := 0
	for _, f := range s.Figures {
		if f.HasBar() {
			bars++
		}
	}
	assert.Equal(t, 3+2, bars, "the backend's for each, and that of one cellserver alone")
	require.Len(t, s.Inside, 1)
	assert.Equal(t, "redis_version", s.Inside[0].Field)
}

func TestSmokeStoreLatency(t *testing.T) {
	l := storeLoad{backend: redisBackend, keys: 50, callers: 4, servers: []int{1, 2}, limit: keysLimit}
	b := newTestBench(t, quick(t))
	s := patiently(t, func() (report.Scenario, error) { return l.latency(t.Context(), b) })
	require.Len(t, s.Latency, 3)
	for _, row := range s.Latency {
		assert.Positive(t, row.Micros[0].Middle, row.Server)
	}
	require.Len(t, s.Figures, 2)
}

func TestSmokeStoreShare(t *testing.T) {
	b := newTestBench(t, quick(t))
	h := storeShare{backend: redisBackend, groups: []group{{servers: 1}, {2, 2 * time.Millisecond}}, callers: 2,
		timeout: 100 * time.Millisecond, maxTries: 16}
	s, err := h.measure(t.Context(), b)
	require.NoError(t, err)
	require.Len(t, s.Shares, 2)
	assert.Equal(t, "1 cellserver", s.Shares[0].Server)
	assert.Equal(t, "2 cellservers, one behind 2ms", s.Shares[1].Server)
	for _, row := range s.Shares {
		assert.LessOrEqual(t, row.Slowest.Middle, 1.0)
		assert.Positive(t, row.P99)
	}
}

// The first cellserver of a group is as much further away from the backend as the group says.
func TestFurtherAway(t *testing.T) {
	b := newTestBench(t, quick(t))
	s := &subject{name: "far"}
	defer func() { b.leaveSubjects([]*subject{s}, false) }()
	const further = 20 * time.Millisecond
	require.NoError(t, storeShare{backend: redisBackend}.enter(t.Context(), b, group{2, further}, s))
	took := patiently(t, func() (time.Duration, error) {
		start := time.Now()
		_, err := load.Ask(s.servers[0].tcp, "EXISTS", "a")
		return time.Since(start), err
	})
	assert.GreaterOrEqual(t, took, further)
}

// The harness notices refused calls: they write nothing, so a comparison with them would be unfair.
func TestRefusedCallsAreFound(t *testing.T) {
	b := newTestBench(t, quick(t))
	l := storeLoad{backend: redisBackend, keys: 1, callers: 1, servers: []int{1}, limit: admitting{burst: 1, perHour: 1}}
	s := &subject{name: report.Cellservers(1)}
	defer func() { b.leaveSubjects([]*subject{s}, false) }()
	require.NoError(t, l.enterCellservers(1, false)(t.Context(), b, s))
	patiently(t, func() (any, error) { return nil, s.prepare(t.Context()) })
	var refused error
	for tries := 0; refused == nil && tries < 100; tries++ { // a busy machine makes few calls in that time
		patiently(t, func() (any, error) {
			_, _, err := s.decide(t.Context(), 20*time.Millisecond)
			return nil, err
		})
		refused = s.allAdmitted()
	}
	assert.ErrorContains(t, refused, "not all calls were admitted")

	l.library(s)
	_, _, err := s.decide(t.Context(), time.Minute) // the first call that is not admitted ends it
	assert.ErrorContains(t, err, "not all calls were admitted")
}

// A scenario without its backend is left out, and the scenarios after it are run.
func TestLeftOut(t *testing.T) {
	t.Setenv("VALKEY_SERVER", "")
	o := quick(t, "--root", t.TempDir()) // a folder without the script that downloads a backend
	b := newTestBench(t, o)
	_, err := valkeyCommand(t.Context(), b)
	require.Error(t, err)
	assert.True(t, errors.Is(err, errLeftOut), err)
	ran := false
	require.NoError(t, b.measure(t.Context(), []scenario{
		{"a", "first", func(context.Context, *bench) (report.Scenario, error) { return report.Scenario{}, err }},
		{"b", "second", func(context.Context, *bench) (report.Scenario, error) { ran = true; return report.Scenario{}, nil }},
	}, nil))
	assert.True(t, ran)
}

// The script of redis_rate is the one that the library sends.
func TestScriptOfRedisRate(t *testing.T) {
	b := newTestBench(t, quick(t))
	s := &subject{name: report.RedisRateScript}
	require.NoError(t, b.startBackend(t.Context(), redisBackend, s))
	defer func() { b.leaveSubjects([]*subject{s}, false) }()
	l := storeLoad{keys: 1, callers: 1, limit: keysLimit}
	sha, err := l.script(t.Context(), s)
	require.NoError(t, err)
	l.calling(s, s.backend.tcp, nil, l.limit.evalsha(sha), true)
	require.NoError(t, s.prepare(t.Context()))
	keys, err := load.Ask(s.backend.tcp, "EXISTS", "rate:"+l.randomKey())
	require.NoError(t, err)
	assert.Equal(t, "1", keys)
}
