//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/bench/load"
	"cellserver/bench/report"
	"cellserver/test/peer"
)

func TestMain(m *testing.M) {
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0") // otherwise a server with the race detector exits a second late
	peer.Main(m)
}

// quick returns the options of a run that does every step, but measures for too short a time.
func quick(t *testing.T, args ...string) *options {
	o, err := parseOptions(append([]string{"--server", peer.Command().Path, "--rounds", "2", "--round", "1ms", "--for",
		"50ms"}, args...))
	require.NoError(t, err)
	return o
}

// bothCores must be called before the first test restricts this program to one of them.
var bothCores = sync.OnceValues(twoCores)

func newTestBench(t *testing.T, o *options) *bench {
	c, err := bothCores()
	require.NoError(t, err)
	b, err := newBench(o, c)
	require.NoError(t, err)
	t.Cleanup(b.close)
	return b
}

func TestSmokeCPU(t *testing.T) {
	o := quick(t, "--other", "redis-server --save '' --port {port} --unixsocket {socket}", "--other-call", "SET {key} 1",
		"--newer", "redis-server")
	l := cpuLoad{pipeline: 4, connections: 3, keys: 100, limit: limitUsual, unix: true}
	overTCP := o.throttle().named("over TCP")
	overTCP.tcp = true
	s, err := l.cpu(o.field(lua, overTCP))(t.Context(), newTestBench(t, o))
	require.NoError(t, err)
	var names []string
	for _, row := range s.CPU {
		names = append(names, row.Server)
		assert.Positive(t, row.Micros.Middle)
		assert.Positive(t, row.Ratio.Middle)
		assert.Positive(t, row.Throughput)
		assert.Equal(t, 2, row.Ratio.Rounds)
	}
	assert.Equal(t, []string{report.Incr, "redis-server INCR again", report.Throttle, report.Lua, "over TCP",
		o.newer.name + ": INCR", o.newer.name + ": GCRA in Lua", "redis-server"}, names)
	assert.Regexp(t, `^redis-server \d+\.\d+\.\d+$`, o.newer.name)
	_, err = parseOptions([]string{"--newer", "redis-benchmark"})
	assert.ErrorContains(t, err, "neither a redis-server nor a valkey-server")
}

func TestSmokeLatency(t *testing.T) {
	o := quick(t)
	s, err := latencyLoad{share: 0.1, connections: 3, keys: 100}.latency(o.field())(t.Context(), newTestBench(t, o))
	require.NoError(t, err)
	require.Len(t, s.Latency, 3)
	for _, row := range s.Latency {
		assert.Equal(t, s.Latency[0].Rate, row.Rate)
		require.Len(t, row.Micros, len(report.Percentiles))
		assert.Positive(t, row.Micros[0].Middle)
		assert.GreaterOrEqual(t, row.Worst[2], row.Micros[0].Middle)
	}
}

func TestSmokeMemory(t *testing.T) {
	o := quick(t)
	s, err := alone([]contender{o.throttle()}, limitLasting, mixed(50_000))(t.Context(), newTestBench(t, o))
	require.NoError(t, err)
	require.Len(t, s.Memory, 1)
	assert.Equal(t, 50_000, s.Memory[0].Keys)
	assert.Greater(t, s.Memory[0].PerKey(), 104.0, "104 bytes is the mean length of a key")
	assert.GreaterOrEqual(t, s.Memory[0].PeakPerKey(), s.Memory[0].PerKey())
}

func TestSmokeConnections(t *testing.T) {
	o := quick(t)
	kinds := idlings[1:3] // with TLS, and over HTTP
	s, err := idleConnections(200, kinds)(t.Context(), newTestBench(t, o))
	require.NoError(t, err)
	require.Len(t, s.Figures, len(kinds))
	for _, f := range s.Figures {
		assert.Greater(t, f.Value, 1.0, "KiB of a connection, %s", f.What)
	}
}

// The script gives the same replies as CL.THROTTLE. A script that does less would be cheaper, and
// the comparison unfair.
func TestScriptLimitsAsThrottleDoes(t *testing.T) {
	o := quick(t)
	b := newTestBench(t, o)
	entrants, err := b.enter(t.Context(), []contender{lua, o.throttle()}, "3 1 60 1")
	defer func() { b.leave(entrants) }()
	require.NoError(t, err)
	for range 7 {
		var replies []string
		for _, e := range entrants {
			words := strings.Fields(strings.ReplaceAll(e.call, load.Key, "k"))
			_, port, _ := strings.Cut(e.process.tcp.Address, ":")
			out, err := exec.Command("redis-cli", append([]string{"-p", port}, words...)...).Output()
			require.NoError(t, err)
			replies = append(replies, string(out))
		}
		assert.Equal(t, replies[1], replies[0])
	}
}

func TestNothingIsLeftRunning(t *testing.T) {
	o := quick(t)
	b := newTestBench(t, o)
	entrants, err := b.enter(t.Context(), []contender{incr, o.throttle(), {name: "none", start: []string{"false"}}},
		limitUsual)
	assert.ErrorContains(t, err, "none: ")
	assert.ErrorContains(t, err, "ended at once")
	require.Len(t, entrants, 2, "the servers that had started are returned, to be stopped")
	b.leave(entrants)
	for _, e := range entrants {
		assert.NotNil(t, e.process.cmd.ProcessState, "the server has not ended")
	}
}

func TestParseInside(t *testing.T) {
	info := "# Stats\r\ntotal_commands_processed:7\r\nlongest_loop_callback_usec:900\r\n\r\n# CPU\r\ngc_cpu_percent:1.5\r\n"
	want := []report.Inside{
		{Server: "s", Field: "longest_loop_callback_usec", Value: "900"},
		{Server: "s", Field: "gc_cpu_percent", Value: "1.5"},
	}
	assert.Equal(t, want, parseInside("s", info))
	assert.Empty(t, parseInside("s", "redis_version:7.0.15\r\n"))
}

func TestStopped(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o := quick(t)
	_, err := cpuLoad{pipeline: 1, connections: 1, keys: 1, limit: limitUsual}.cpu(o.field())(ctx, newTestBench(t, o))
	assert.ErrorIs(t, err, context.Canceled)
}

func TestOptions(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"", shortOnly + " 10s"}, {"--publish", " 1m0s"}, {"--publish --only cpu --for 1s", "cpu 1s"},
		{"--only memory", "memory 10s"},
	} {
		o, err := parseOptions(strings.Fields(c.args))
		require.NoError(t, err)
		assert.Equal(t, c.want, fmt.Sprint(o.only, " ", o.openFor), c.args)
	}
	for _, args := range []string{"now", "--rounds -1", "--round 0s", "--most-keys 1", "--only (", "--nonsense"} {
		_, err := parseOptions(strings.Fields(args))
		assert.Error(t, err, args)
	}
	assert.ErrorContains(t, run(t.Context(), []string{"--only", "nonsense"}), "no scenario matches")
}

func TestScenarioNames(t *testing.T) {
	o := quick(t)
	var names []string
	for _, s := range scenarios(o) {
		assert.NotContains(t, names, s.name)
		names = append(names, s.name)
	}
	for _, name := range report.Featured() {
		assert.Contains(t, names, name, "the figures and the plots name it")
	}
	assert.True(t, slices.ContainsFunc(names, o.only.MatchString), "the default of --only matches nothing")
}

func TestPublished(t *testing.T) {
	assert.Equal(t, `make bench ARGS="--publish --only 'cpu|memory' --module redis_cell.so --server=cellserver '--other=server --port {port}'"`,
		published([]string{"--publish", "--only", "cpu|memory", "--module", "/opt/x/redis_cell.so",
			"--server=/opt/cellserver",
			"--other=/opt/bin/server --port {port}"}))
}

func TestCPUModel(t *testing.T) {
	assert.Equal(t, "AMD EPYC", cpuModel("processor\t: 0\nmodel name\t: AMD EPYC\nstepping\t: 1\n"))
	assert.NotEmpty(t, cpuModel("processor\t: 0\nBogoMIPS\t: 50\n"))
	assert.Equal(t, "7.0.15", redisVersion("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64"))
}

// repository returns a git repository with the documents that have figures.
func repository(t *testing.T) (root string) {
	root = t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "docs"), 0o755))
	for _, name := range report.Documents {
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte("<!-- bench:few -->\n<!-- bench:end -->\n"),
			0o644))
	}
	for _, args := range []string{"init -q", "add .", "-c user.name=a -c user.email=a commit -q -m a"} {
		out, err := exec.Command("git", append([]string{"-C", root}, strings.Fields(args)...)...).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	return root
}

func TestPublish(t *testing.T) {
	root := repository(t)
	o := quick(t, "--publish", "--root", root)
	some := []scenario{{"a", "first", nothing}, {"b", "second", nothing}}
	for _, chosen := range [][]scenario{some[1:], some[:1]} { // the second accepts the files that the first wrote
		p, err := newPublication(o, some)
		require.NoError(t, err)
		require.NoError(t, newTestBench(t, o).measure(t.Context(), chosen, p))
	}
	r, err := report.Load(root)
	require.NoError(t, err)
	require.Len(t, r.Scenarios, 2)
	assert.Equal(t, "a", r.Scenarios[0].Name)
	assert.Equal(t, "second", r.Scenarios[1].About)
	assert.Regexp(t, "^[0-9a-f]{12}$", r.Scenarios[1].Commit)
	assert.Equal(t, time.Now().UTC().Year(), dated(t, r.Scenarios[1].Date).Year())
	assert.FileExists(t, filepath.Join(root, "bench/RESULTS.md"))
}

func nothing(context.Context, *bench) (report.Scenario, error) { return report.Scenario{}, nil }

func dated(t *testing.T, date string) time.Time {
	d, err := time.Parse(time.DateOnly, date)
	require.NoError(t, err)
	return d
}

func TestPublishRefusesChanges(t *testing.T) {
	root := repository(t)
	require.NoError(t, os.WriteFile(filepath.Join(root, "main.go"), []byte("package main\n"), 0o644))
	_, err := newPublication(quick(t, "--publish", "--root", root), nil)
	assert.ErrorContains(t, err, "--allow-dirty")
	p, err := newPublication(quick(t, "--publish", "--root", root, "--allow-dirty"), nil)
	require.NoError(t, err)
	assert.Regexp(t, `^[0-9a-f]{12}\+dirty$`, p.commit)
}

func TestPublishNeedsAPlace(t *testing.T) {
	root := repository(t)
	require.NoError(t, os.WriteFile(filepath.Join(root, report.Documents[0]), []byte("# Project\n"), 0o644))
	_, err := newPublication(quick(t, "--publish", "--root", root), nil)
	assert.ErrorIs(t, err, report.ErrNoFigures)
}

func TestSmokeDurability(t *testing.T) {
	o := quick(t)
	b := newTestBench(t, o)
	s, err := duringSnapshots{share: 0.1, connections: 3, keys: 1000}.latency(o.durable())(t.Context(), b)
	require.NoError(t, err)
	require.Len(t, s.Latency, 2)
	var files report.Scenario
	require.NoError(t, durability{many: 2000}.large(t.Context(), b, o.durable(), &files))
	require.Len(t, files.Figures, 8)
	for _, f := range files.Figures[4:] {
		assert.Positive(t, f.Value, f.What)
	}
}
