package monitor_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/client"
	"cellserver/internal/commands"
	"cellserver/internal/meter"
	"cellserver/internal/monitor"
	"cellserver/internal/session"
	"cellserver/internal/stats"
	"cellserver/internal/store"
	"cellserver/internal/store/memory"
)

func newInstance(t *testing.T) *session.Instance {
	t.Helper()
	keys := memory.New(memory.Options{Clock: store.NewStillClock(1), SweepEvery: -1})
	t.Cleanup(func() { keys.Close() })
	in, err := commands.New(commands.Config{Store: keys, Version: "1.2.3", Turns: new(meter.MaxCPUTime)})
	require.NoError(t, err)
	return in
}

// call makes calls, each a line, and returns the replies.
func call(t testing.TB, in *session.Instance, lines ...string) string {
	t.Helper()
	s := in.Open(client.Peer{Wake: func() {}, Cut: func() {}})
	defer s.Close()
	s.Feed([]byte(strings.Join(lines, "\r\n") + "\r\n"))
	var replies strings.Builder
	for {
		for out := s.Output(); len(out) > 0; out = s.Output() {
			replies.Write(out)
			s.Sent()
		}
		if !s.HasUnanswered() {
			return replies.String()
		}
		s.Resume()
	}
}

// handler returns the handler of the port of an instance.
func handler(in *session.Instance) http.Handler {
	health := &monitor.Health{IsLoading: in.Persistence.IsLoading}
	return monitor.New(monitor.Config{Metrics: in.Metrics, Health: health, Log: slog.New(slog.DiscardHandler)})
}

func get(h http.Handler, path string) (status int, body string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	text, _ := io.ReadAll(w.Body)
	return w.Code, string(text)
}

// scrape returns the lines of cellserver's own metrics.
func scrape(t *testing.T, h http.Handler) (own map[string]string) {
	t.Helper()
	status, body := get(h, "/metrics")
	require.Equal(t, http.StatusOK, status, body)
	own = map[string]string{}
	for line := range strings.Lines(body) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name, is := strings.CutPrefix(series, "cellserver_"); is {
			own[name] = value
		}
	}
	return own
}

func TestDecisions(t *testing.T) {
	in := newInstance(t)
	call(t, in, "CL.THROTTLE a 0 1 60", "CL.THROTTLE a 0 1 60", "CL.THROTTLE a 0 1 60", "CL.THROTTLE b 5 1 60",
		"SET text x", "CL.THROTTLE text 5 1 60", "CL.THROTTLE too few", "CL.FIXED c 1 60", "CL.FIXED c 1 60 PEEK",
		"MULTI", "CL.FIXED c 1 60", "CL.FIXED text 1 60", "EXEC", "SUBSCRIBE x", "CL.FIXED d 1 60")
	got := scrape(t, handler(in))
	for series, want := range map[string]string{
		`decisions_total{command="cl.throttle",result="allowed"}`: "2",
		`decisions_total{command="cl.throttle",result="limited"}`: "2",
		`decisions_total{command="cl.throttle",result="error"}`:   "1",
		`commands_total{command="cl.throttle"}`:                   "5",
		`commands_rejected_total{command="cl.throttle"}`:          "1",
		`decisions_total{command="cl.fixed",result="allowed"}`:    "1",
		`decisions_total{command="cl.fixed",result="limited"}`:    "2",
		`decisions_total{command="cl.fixed",result="error"}`:      "1",
		`commands_total{command="cl.fixed"}`:                      "4",
		`commands_rejected_total{command="cl.fixed"}`:             "1",
		`errors_total{code="WRONGTYPE"}`:                          "2",
		`command_duration_seconds_count{command="set"}`:           "1",
		`keys`:                             "4",
		`keys_by_kind{kind="cl.throttle"}`: "2",
		`keys_by_kind{kind="cl.fixed"}`:    "1",
		`keys_by_kind{kind="string"}`:      "1",
		`keys_by_kind{kind="cl.lease"}`:    "0",
		`build_info{goversion="` + goVersion(got) + `",version="1.2.3"}`: "1",
		`loading`: "0",
	} {
		assert.Equal(t, want, got[series], series)
	}
}

func goVersion(series map[string]string) string {
	for name := range series {
		if rest, is := strings.CutPrefix(name, `build_info{goversion="`); is {
			version, _, _ := strings.Cut(rest, `"`)
			return version
		}
	}
	return ""
}

// TestNames checks all names, types and sentences as promtool does.
func TestNames(t *testing.T) {
	in := newInstance(t)
	call(t, in, "CL.THROTTLE a 0 1 60", "nosuch")
	_, body := get(handler(in), "/metrics")
	problems, err := promlint.New(strings.NewReader(body)).Lint()
	require.NoError(t, err)
	assert.Empty(t, problems)
	problems, err = promlint.New(strings.NewReader("# TYPE planted counter\nplanted 1\n")).Lint()
	require.NoError(t, err)
	assert.NotEmpty(t, problems, "no HELP, and a counter whose name does not end with total")
}

func TestHistogram(t *testing.T) {
	var calls stats.Calls
	calls.Observe(1_000)
	calls.Observe(3_999)
	calls.Observe(4_000)
	calls.Observe(2e9)
	below, count, sum := calls.Durations()
	assert.Equal(t, uint64(4), count)
	assert.InDelta(t, 2.000008999, sum, 1e-12)
	assert.Equal(t, uint64(2), below[4e-6])
	assert.Equal(t, uint64(3), below[16e-6])
	assert.Equal(t, uint64(3), below[1.048576])
	assert.Len(t, below, 9)
}

func TestHealth(t *testing.T) {
	var loading atomic.Bool
	var down error
	needed := false
	health := &monitor.Health{
		IsLoading: loading.Load, CheckStore: func(context.Context) error { return down },
		NeedsStore: func() bool { return needed },
	}
	h := monitor.New(monitor.Config{Health: health, Log: slog.New(slog.DiscardHandler)})
	check := func(status int, body string) {
		t.Helper()
		gotStatus, gotBody := get(h, "/readyz")
		assert.Equal(t, []any{status, body}, []any{gotStatus, gotBody})
		gotStatus, _ = get(h, "/healthz")
		assert.Equal(t, http.StatusOK, gotStatus, "it is alive all the time")
	}
	loading.Store(true)
	check(503, "loading keys\nstore: answers\n")
	loading.Store(false)
	check(200, "ready\nstore: answers\n")
	down = errors.New("planted")
	check(200, "ready\nstore: does not answer\n")
	needed = true
	check(503, "the store does not answer\nstore: does not answer\n")
	down = nil
	check(200, "ready\nstore: answers\n")
	health.Drain()
	check(503, "shutting down\nstore: answers\n")
}

// TestRarely: many requests make one check a second.
func TestRarely(t *testing.T) {
	now, asked := int64(0), 0
	check := monitor.Rarely(func() int64 { return now }, func(ctx context.Context) error {
		asked++
		return errors.Join(ctx.Err(), errors.New("planted"))
	})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for range 10 {
		assert.EqualError(t, check(ctx), "planted", "a peer that has gone does not spoil the result")
	}
	assert.Equal(t, 1, asked)
	now = 1e9
	assert.Error(t, check(ctx))
	assert.Equal(t, 2, asked)
}

func TestOtherPaths(t *testing.T) {
	h := handler(newInstance(t))
	for _, path := range []string{"/", "/debug/pprof/", "/metrics/", "/readyz/x"} {
		status, _ := get(h, path)
		assert.Equal(t, http.StatusNotFound, status, path)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/metrics", nil))
	assert.Equal(t, http.StatusMethodNotAllowed, w.Code)
}
