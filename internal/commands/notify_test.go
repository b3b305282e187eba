package commands_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/commands/commandstest"
	"cellserver/internal/policy"
	"cellserver/internal/racetest"
	"cellserver/internal/session/sessiontest"
	"cellserver/internal/store"
)

// listener receives the reports of all policies.
type listener struct{ *sessiontest.Client }

func listen(t testing.TB, s *commandstest.Server) listener {
	c := s.Connect()
	require.Equal(t, `["psubscribe", "cell:events:*", 1]`, c.Ask(t, "PSUBSCRIBE cell:events:*"))
	return listener{c}
}

var payload = regexp.MustCompile(`\{.*\}`)

// events returns the reports since the last call of events.
func (l listener) events(t testing.TB) (all []policy.Event) {
	l.Settle()
	for _, text := range payload.FindAllString(l.Output(), -1) {
		var e policy.Event
		require.NoError(t, json.Unmarshal([]byte(text), &e))
		all = append(all, e)
	}
	return all
}

// texts returns the reports in short.
func (l listener) texts(t testing.TB) (all []string) {
	for _, e := range l.events(t) {
		all = append(all, fmt.Sprintf("%s %s %s %d/%d %d%%", e.Policy, e.Subject, e.Limit, e.Used, e.Size, e.Threshold))
	}
	return all
}

func TestReport(t *testing.T) {
	s := commandstest.New(t)
	setPolicies(t, s, "{p: {limits: [{fixed: {limit: 10, period: 60s}}], notify: [80%], shadow: true}}")
	l, c := listen(t, s), s.Connect()
	c.Do(t, "CL.TAKE a p 3")
	require.NoError(t, s.Advance(1500*time.Millisecond))
	c.Do(t, "CL.TAKE a p 5")
	c.Do(t, "CL.TAKE b p 8")
	events := l.events(t)
	require.Len(t, events, 2)
	require.NotEqual(t, events[0].ID, events[1].ID)
	require.Regexp(t, `^[0-9a-f]{16}-1$`, events[0].ID)
	events[0].ID = ""
	now := int64(commandstest.Start/1e6 + 1500)
	require.Equal(t, policy.Event{Time: now, Policy: "p", Subject: "a", Limit: "fixed", Used: 8, Size: 10, Threshold: 80,
		Resets: now + 58_500, Shadow: true}, events[0])
}

// Calls of all kinds are reported, each time that they reach a threshold.
func TestReportsOfAllCalls(t *testing.T) {
	const policies = "{p: {limits: [{fixed: {limit: 10, period: 60s}}], notify: [80%, 100%]}, " +
		"two: {limits: [{quota: {limit: 10, per: day}}, {slidinglog: {limit: 5, period: 1h}}], notify: [100%]}, " +
		"over: {limits: [{fixed: {limit: 1, period: 60s}}], notify: [100%], " +
		"overrides: [{subject: big*, limits: [{fixed: {limit: 4, period: 60s}}]}]}, " +
		"plan: {limits: [{fixed: {limit: 1, period: 60s}}], notify: [100%], " +
		"plans: {pro: {limits: [{fixed: {limit: 4, period: 60s}}]}}}, " +
		"mute: {limits: [{fixed: {limit: 1, period: 60s}}]}}"
	for _, test := range []struct{ calls, want string }{
		{"CL.TAKE a p 7|CL.TAKE a p 8 PEEK|CL.TAKE a p|CL.TAKE a p 0|CL.TAKE a p 3", "p a fixed 8/10 80%"},
		{"CL.TAKE a p 15 UPTO|CL.TAKE a p UPTO", "p a fixed 10/10 80%|p a fixed 10/10 100%"},
		{"CL.TAKE a p 9|CL.TAKE a p 1 FORCE|CL.TAKE a p 1 FORCE|CL.TAKE a p 1 FORCE", "p a fixed 9/10 80%|p a fixed 10/10 100%"},
		{"CL.TAKE a p 9|CL.TAKE a p 3 FORCE|CL.TAKE a p 1 FORCE", "p a fixed 9/10 80%|p a fixed 10/10 100%"},
		{"CL.TAKE a p 12 FORCE", "p a fixed 10/10 80%|p a fixed 10/10 100%"},
		{"CL.TAKE a p 8|CL.TAKE a p -1|CL.TAKE a p", "p a fixed 8/10 80%|p a fixed 8/10 80%"},
		{"CL.TAKE a p 8 VERBOSE|CL.TAKE a p 2 LEAVE 1", "p a fixed 8/10 80%"},
		{"CL.TAKE a p 8 ID x|CL.TAKE a p 8 ID x", "p a fixed 8/10 80%"},
		{"CL.TAKE a p 7 HOLD x 60s|CL.TAKE a p 8 SETTLE x|CL.TAKE a p 8 SETTLE x", "p a fixed 8/10 80%"},
		{"CL.TAKE a p 9 HOLD x 60s|CL.TAKE a p 1 SETTLE x|CL.TAKE a p 8", "p a fixed 9/10 80%|p a fixed 9/10 80%"},
		{"CL.TAKE a two 5|CL.TAKE a two 5", "two a slidinglog 5/5 100%"},
		{"CL.TAKE a over|CL.TAKE big over 3|CL.TAKE big over", "over a fixed 1/1 100%|over big fixed 4/4 100%"},
		{"CL.PLAN a plan pro 0|CL.TAKE a plan|CL.TAKE a plan 3", "plan a fixed 4/4 100%"},
		{"CL.GRANT a p fixed 10|CL.TAKE a p 15|CL.TAKE a p 1", "p a fixed 16/20 80%"},
		{"CL.EXEMPT a p 60|CL.TAKE a p 9|CL.BAN b p 60|CL.TAKE b p 9", ""},
		{"CL.ALL 2 TAKE a p 8 TAKE a two 5", "p a fixed 8/10 80%|two a slidinglog 5/5 100%"},
		{"CL.ALL 2 TAKE a p 8 TAKE a two 6|CL.ALL 2 TAKE a p 8 TAKE a two 5 PEEK", ""},
		{"CL.ALL 2 TAKE a p 8 THROTTLE k 0 1 60 1|CL.ALL 2 TAKE b p 8 THROTTLE k 0 1 60 1", "p a fixed 8/10 80%"},
		{"MULTI|CL.TAKE a p 7|CL.TAKE a p|DISCARD|MULTI|CL.TAKE a p 8|EXEC", "p a fixed 8/10 80%"},
		{"CL.EXPLAIN CL.TAKE a p 8|CL.TAKE a mute", ""},
	} {
		for _, prepare := range []string{"PING", "CL.EXEMPT other p 60"} { // without standings, calls go other ways
			s := commandstest.New(t)
			setPolicies(t, s, policies)
			l, c := listen(t, s), s.Connect()
			c.Do(t, prepare)
			for _, line := range strings.Split(test.calls, "|") {
				c.Do(t, line)
			}
			assert.Equal(t, test.want, strings.Join(l.texts(t), "|"), "%s, %s", prepare, test.calls)
		}
	}
}

// A limit whose used part shrinks with time is reported again only after it was more than 10 points below.
func TestReportsWithHysteresis(t *testing.T) {
	for _, l := range []string{"throttle: {burst: 100, rate: 100/100s}", "slidinglog: {limit: 100, period: 100s}"} {
		s := commandstest.New(t)
		setPolicies(t, s, "{p: {limits: [{"+l+"}], notify: [80%]}}")
		l, c := listen(t, s), s.Connect()
		take := func(n int) int {
			c.Do(t, fmt.Sprintf("CL.TAKE a p %d", n))
			return len(l.events(t))
		}
		require.Equal(t, 0, take(1))
		for range 7 { // one after the other, so that the log loses them so too
			require.NoError(t, s.Advance(time.Millisecond))
			require.Equal(t, 0, take(11))
		}
		require.Equal(t, 1, take(5))
		require.NoError(t, s.Advance(99900*time.Millisecond)) // all or nearly all of it has come back
		require.NoError(t, s.Advance(200*time.Millisecond))
		require.Equal(t, 0, take(75))
		require.Equal(t, 1, take(10))
		c.Do(t, "CL.TAKE a p -10") // 75: not far enough
		require.Equal(t, 0, take(10))
		c.Do(t, "CL.TAKE a p -16") // 69
		require.Equal(t, 0, take(2))
		require.Equal(t, 1, take(10))
	}
}

// While the store fails, nothing is known about what was used, and so nothing is reported.
func TestNoReportsWhileTheStoreFails(t *testing.T) {
	for _, fails := range []string{"allow", "deny", "local"} {
		s := newFailingServer(t, fails)
		setPolicies(t, s.Server, "{p: {limits: [{fixed: {limit: 10, period: 60s}}], notify: [10%]}}")
		reports := 0
		s.Instance.ClientLog = slog.New(slog.DiscardHandler)
		c := s.Connect()
		*s.fails = store.ErrDown
		c.Do(t, "CL.TAKE a p 9")
		*s.fails = nil
		s.Instance.Stats.Policies.EachReports(func(_ string, n int64) { reports += int(n) })
		require.Zero(t, reports, fails)
		c.Do(t, "CL.TAKE b p 9")
		s.Instance.Stats.Policies.EachReports(func(_ string, n int64) { reports += int(n) })
		require.Equal(t, 1, reports, fails)
	}
}

// The log has a line for each report.
func TestReportsAreLogged(t *testing.T) {
	s := newFailingServer(t, "error")
	setPolicies(t, s.Server, "{p: {limits: [{fixed: {limit: 10, period: 60s}}], notify: [80%, 100%]}}")
	c := s.Connect()
	c.Do(t, "CL.TAKE a p 7")
	require.NotContains(t, s.log.String(), "threshold")
	c.Do(t, "CL.TAKE a p 2")
	c.Do(t, "CL.TAKE a p 1")
	lines := regexp.MustCompile(`level=.*threshold.*`).FindAllString(s.log.String(), -1)
	require.Equal(t, []string{
		`level=INFO msg="a subject has reached a threshold" policy=p subject=a limit=fixed threshold=80% used=9 size=10`,
		`level=INFO msg="a subject has reached a threshold" policy=p subject=a limit=fixed threshold=100% used=10 size=10`,
	}, lines)
}

// Each server of a store reports the steps that it has made itself. The step that reaches a threshold of a window is
// one step on one server. Of the other kinds, each server remembers for itself what was reported, so several may report
// the same, and a server knows only by its own calls that the use was below.
func TestReportsOfServersOfOneStore(t *testing.T) {
	servers := serversOfOneStore(t, "{w: {limits: [{fixed: {limit: 10, period: 1h}}], notify: [80%]}, "+
		"b: {limits: [{throttle: {burst: 9, rate: 10/1h}}], notify: [80%]}}")
	reports := func() (n [2]int64) {
		for i, s := range servers {
			s.Instance.Stats.Policies.EachReports(func(_ string, of int64) { n[i] += of })
		}
		return n
	}
	one, other := servers[0].Connect(), servers[1].Connect()
	one.Do(t, "CL.TAKE a w 7")
	other.Do(t, "CL.TAKE a w 2")
	one.Do(t, "CL.TAKE a w 1")
	require.Equal(t, [2]int64{0, 1}, reports(), "the second server has made the step")
	one.Do(t, "CL.TAKE a b 9")
	require.Equal(t, [2]int64{1, 1}, reports())
	one.Do(t, "CL.TAKE a b -1")
	one.Do(t, "CL.TAKE a b -1") // 70 %: not below 70 %
	one.Do(t, "CL.TAKE a b 2")
	require.Equal(t, [2]int64{1, 1}, reports(), "it was reported")
	one.Do(t, "CL.TAKE a b -2")
	other.Do(t, "CL.TAKE a b 2")
	require.Equal(t, [2]int64{1, 2}, reports(), "the second server does not know that it was reported")
	other.Do(t, "CL.TAKE a b -4")
	other.Do(t, "CL.TAKE a b 2") // 70 %: the second server knows that it was below, and the first does not
	one.Do(t, "CL.TAKE a b 1")
	require.Equal(t, [2]int64{1, 2}, reports(), "it is reported by none, as docs/policies.md says")
}

// Many subscribers do not delay the call: a goroutine publishes the message to them.
func TestReportsToManySubscribers(t *testing.T) {
	s := commandstest.New(t)
	setPolicies(t, s, "{p: {limits: [{fixed: {limit: 1, period: 60s}}], notify: [100%]}}")
	var all []listener
	for range 200 {
		all = append(all, listen(t, s))
	}
	c := s.Connect()
	for i := range 20 {
		c.Do(t, fmt.Sprintf("CL.TAKE %d p", i))
	}
	for _, l := range all {
		var got []string
		for len(got) < 20 {
			<-l.Woken
			got = append(got, l.texts(t)...)
		}
		for i := range got {
			require.Equal(t, fmt.Sprintf("p %d fixed 1/1 100%%", i), got[i])
		}
	}
}

// Policies with notify take no memory of their own for calls that reach nothing, and one limit allocates nothing.
func TestCallsOfPoliciesWithNotifyAllocateNothing(t *testing.T) {
	s := commandstest.New(t)
	setPolicies(t, s, "{p: {limits: [{throttle: {burst: 1000000, rate: 1000000/1s}}], notify: [80%, 95%, 100%]}}")
	c := s.Connect()
	call := commandstest.Encode([]string{"CL.TAKE", "subject", "p"})
	c.Do(t, "CL.TAKE subject p")
	allocations := testing.AllocsPerRun(1000, func() {
		c.Session.Feed(call)
		c.Session.Sent()
	})
	if !racetest.Enabled { // the race detector allocates
		require.Zero(t, allocations)
	}
}

// BenchmarkNotify measures CL.TAKE of a policy without notify, and with it, for a subject that has used little, and for
// one that has used more than its second threshold; and with it and the history of policies, which is sampled so often
// as if a second had 32,000 calls. bench/instructions.sh --notify counts the instructions.
func BenchmarkNotify(b *testing.B) {
	const key = "k:000000000000"
	const thresholds, second = ", notify: [80%, 95%, 100%]", 32_000
	for _, test := range []struct {
		name, notify, used string
		history            bool
	}{
		{"without", "", "1", false}, {"low", thresholds, "1", false}, {"high", thresholds, "960000000000000", false},
		{"history", thresholds, "960000000000000", true},
	} {
		b.Run(test.name+"/P=64", func(b *testing.B) {
			s := commandstest.New(b)
			setPolicies(b, s, "{bench: {limits: [{fixed: {limit: 1000000000000000, period: 1h}}]"+test.notify+"}}")
			c := s.Connect()
			c.Do(b, "CL.TAKE "+key+" bench "+test.used)
			b.ResetTimer()
			for now, left := int64(1), b.N; left > 0; now, left = now+1, left-second {
				repeatSame(c, min(left, second), 64, "*3\r\n$7\r\nCL.TAKE\r\n$14\r\nk:000000000000\r\n$5\r\nbench\r\n")
				if test.history {
					s.Instance.Stats.Policies.Sample(now)
				}
			}
		})
	}
}
