package replay

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/commands/commandstest"
	"cellserver/internal/policy"
	"cellserver/internal/quota"
	"cellserver/internal/racetest"
	"cellserver/internal/store"
	"cellserver/internal/store/memory"
	"cellserver/internal/weblog"
)

// judged are policies with which a server decides the requests of a log too.
const judged = `
policies:
  one: {limits: [{throttle: {burst: 20, rate: 60/1m}}]}
  windows: {limits: [{fixed: {limit: 50, period: 1m}}, {sliding: {limit: 200, period: 5m}}, {slidinglog: {limit: 9, period: 3s}}]}
  quota: {limits: [{quota: {limit: 300, per: hour@Europe/Berlin}}, {throttle: {burst: 9, rate: 2/1s}}]}
  shadow: {shadow: true, limits: [{throttle: {burst: 5, rate: 10/1m}}]}
  ban:
    limits: [{throttle: {burst: 30, rate: 60/1m}}]
    ban: {after: 10, within: 1m, for: 2m, factor: 2, max: 1h}
    overrides:
      - {cidr: [10.0.0.1/32, 10.0.0.8/29], limits: [{throttle: {burst: 90, rate: 3/1s}}]}
      - {subject: 10.0.0.2, unlimited: true}
      - {subject: 10.0.0.3, blocked: true}
`

// testEnvironment is an environment whose output a test reads.
func testEnvironment(out, stderr *strings.Builder) Environment {
	return Environment{
		ReadPolicies: func(path string) ([]policy.File, error) {
			text, err := os.ReadFile(path)
			return []policy.File{{Name: path, Text: text}}, err
		},
		NewStore: func(clock store.Clock) store.Store {
			return memory.New(memory.Options{Databases: 1, Clock: clock})
		},
		Clock: store.NewStillClock(0), Memory: 1 << 30, MaxLogLimit: 1000,
		Stdin: strings.NewReader(""), Stdout: out, Stderr: stderr,
	}
}

// write writes a file in a new folder.
func write(t *testing.T, name, text string) string {
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// lines returns how many lines the logs of these tests have.
func lines(t *testing.T) int {
	text := os.Getenv("CELLSERVER_TEST_LINES")
	if text == "" {
		return 20_000
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

// writeLog writes a log in which some clients send most requests, in bursts.
func writeLog(t *testing.T, count int) string {
	path := filepath.Join(t.TempDir(), "access.log")
	f, err := os.Create(path)
	require.NoError(t, err)
	out, random, now := bufio.NewWriter(f), rand.New(rand.NewPCG(1, 2)), time.Unix(1_790_000_000, 0).UTC()
	for range count {
		if random.IntN(3) == 0 {
			now = now.Add(time.Duration(random.IntN(1000)) * time.Millisecond)
		}
		client := random.IntN(1 + random.IntN(40))
		fmt.Fprintf(out, "10.0.0.%d - - [%s] \"GET / HTTP/1.1\" 200 %d \"-\" \"curl/8\"\n", client,
			now.Add(-time.Duration(random.IntN(3))*time.Second).Format("02/Jan/2006:15:04:05 -0700"), random.IntN(4))
	}
	require.NoError(t, out.Flush())
	require.NoError(t, f.Close())
	return path
}

// asReply returns a decision in the form of a server's reply, in milliseconds.
func asReply(v policy.Verdict) string {
	ms := func(ns int64) int64 {
		if ns == quota.Never {
			return -1
		}
		return ns/1e6 + min(ns%1e6, 1)
	}
	limited := 0
	if v.Limited {
		limited = 1
	}
	reset := v.ResetAfter
	if v.By == policy.ByOverride && !v.Limited {
		return fmt.Sprintf("*5\r\n:0\r\n:%d\r\n:%d\r\n:-1\r\n:0\r\n", v.Decision.Limit, v.Remaining)
	}
	return fmt.Sprintf("*5\r\n:%d\r\n:%d\r\n:%d\r\n:%d\r\n:%d\r\n", limited, v.Decision.Limit, v.Remaining, ms(v.RetryAfter), ms(reset))
}

// A server whose clock stands at the time of each line makes the same decisions.
func TestServerDecidesTheSame(t *testing.T) {
	racetest.HasOneGoroutine(t)
	log := writeLog(t, lines(t))
	for _, name := range []string{"one", "windows", "quota", "shadow", "ban"} {
		t.Run(name, func(t *testing.T) {
			compared, differs := compareWithServer(t, log, name, 0)
			require.Empty(t, differs)
			require.EqualValues(t, lines(t), compared)
		})
	}
	_, differs := compareWithServer(t, log, "one", time.Second)
	require.NotEmpty(t, differs, "a server whose clock is wrong decides otherwise")
}

// compareWithServer sends the requests of a log to a server, whose clock is set to their times and perhaps
// more, until a decision differs.
func compareWithServer(t *testing.T, log, name string, wrong time.Duration) (compared int, differs string) {
	var out, stderr strings.Builder
	e := testEnvironment(&out, &stderr)
	o := &options{maxLog: 1000, clients: "give-up"}
	require.NoError(t, o.complete([]string{write(t, "p.yaml", judged), log}, withPolicy(o, name, &e)))
	l, err := o.openLog(&e)
	require.NoError(t, err)
	defer l.Close()
	r := &replay{o: o, e: &e, log: l}
	var s *commandstest.Server
	var clock *store.StillClock
	var ask func(string) string
	limited := int64(0)
	require.NoError(t, l.Each(context.Background(), 10, func(q *weblog.Request) error {
		if differs != "" {
			return nil
		}
		if r.clock == nil {
			r.begin(q.Time)
			clock = store.NewStillClock(r.clock.Now())
			clock.SetOffset(time.Duration(r.clock.offset))
			s = commandstest.NewOn(t, clock)
			s.Policies.Read = func() ([]policy.File, error) { return []policy.File{{Name: "p.yaml", Text: []byte(judged)}}, nil }
			_, err := s.Policies.Reload()
			require.NoError(t, err)
			c := s.Connect()
			ask = func(line string) string { return c.Do(t, line) }
		}
		r.clock.set(q.Time)
		v, _, err := r.judge.take(l.Subject(q.Subject), q.Quantity)
		require.NoError(t, err)
		if compared++; wrong != 0 && compared == 1000 {
			clock.Advance(wrong)
		}
		clock.Advance(time.Duration(r.clock.Now() - clock.Now() + int64(min(compared/1000, 1))*int64(wrong)))
		if got := ask(fmt.Sprintf("CL.TAKE %s %s %d MS", l.Subject(q.Subject), name, q.Quantity)); got != asReply(v) {
			differs = fmt.Sprintf("request %d: the server replies %q, not %q", compared, got, asReply(v))
		}
		if v.Refused {
			limited++
		}
		return nil
	}))
	r.close()
	if differs == "" {
		require.True(t, 0 < limited && limited < int64(compared), "both happen: %d of %d", limited, compared)
		require.Equal(t, limited, limitedBy(t, log, name), "the report has the same number")
	}
	return compared, differs
}

// withPolicy sets the options that the command line would set.
func withPolicy(o *options, name string, e *Environment) *Environment {
	o.name, o.reading.Subject, o.reading.Zone, o.memory, o.disorder = name, "{client_ip}", time.UTC, 1<<30, 10*time.Second
	o.reading.Quantity = "{body_bytes_sent}"
	return e
}

// limitedBy returns how many requests are limited according to the report.
func limitedBy(t *testing.T, log, name string) int64 {
	var out, stderr strings.Builder
	e := testEnvironment(&out, &stderr)
	o := &options{maxLog: 1000, clients: "give-up"}
	require.NoError(t, o.complete([]string{write(t, "p.yaml", judged), log}, withPolicy(o, name, &e)))
	l, err := o.openLog(&e)
	require.NoError(t, err)
	defer l.Close()
	r := &replay{o: o, e: &e, log: l}
	_, err = r.read()
	require.NoError(t, err)
	return r.report().Limited
}
