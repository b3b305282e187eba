package commands_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/command"
	"cellserver/internal/commands/commandstest"
	policies "cellserver/internal/policy"
	"cellserver/internal/store"
)

// setPolicies gives a server other policies.
func setPolicies(t testing.TB, s *commandstest.Server, text string) {
	t.Helper()
	s.Policies.Read = func() ([]policies.File, error) {
		return []policies.File{{Name: "p.yaml", Text: []byte("policies: " + text)}}, nil
	}
	_, err := s.Policies.Reload()
	require.NoError(t, err)
}

// CL.TAKE of a policy with one limit gives the same replies as the limiter's command, and so does a policy
// with a second limit that is never exhausted.
func TestTakeDecidesAsTheLimiter(t *testing.T) {
	s := commandstest.New(t)
	setPolicies(t, s, "{one: {limits: [{sliding: {limit: 9, period: 60s}}]}, "+
		"two: {limits: [{sliding: {limit: 9, period: 60s}}, {fixed: {limit: 1000000, period: 1h}}]}}")
	c, random := s.Connect(), rand.New(rand.NewPCG(1, 2))
	options := []string{"", " PEEK", " UPTO", " FORCE", " LEAVE 3", " PEEK LEAVE 2", " UPTO LEAVE 4", " UPTO MS",
		" LEAVE 0"}
	for range 2000 {
		rest := fmt.Sprintf(" %d%s", random.IntN(13)-2, options[random.IntN(len(options))])
		want := c.Do(t, "CL.SLIDING k 9 60"+rest)
		require.Equal(t, want, c.Do(t, "CL.TAKE k one"+rest), rest)
		if got := c.Do(t, "CL.TAKE k two"+rest); !strings.Contains(want, ":9\r\n:9\r\n") { // else the other decides
			require.Equal(t, want, got, rest)
		}
		require.NoError(t, s.Advance(time.Duration(random.IntN(9_000))*time.Millisecond))
	}
}

// The calls of a transaction use the policies that were in force when its keys were found.
func TestTransactionKeepsItsPolicies(t *testing.T) {
	s := commandstest.New(t)
	c := s.Connect()
	s.Instance.Table.ByName["cl.policy|reload"].Flags &^= command.NoMulti // to reload between two of its calls
	setPolicies(t, s, "{p: {limits: [{fixed: {limit: 3, period: 60s}}]}}")
	s.Policies.Read = func() ([]policies.File, error) {
		return []policies.File{{Name: "p.yaml",
			Text: []byte("policies: {p: {limits: [{fixed: {limit: 5, period: 60s}}, {sliding: {limit: 1, period: 60s}}]}}")}}, nil
	}
	c.Do(t, "MULTI\r\nCL.TAKE k p\r\nCL.POLICY RELOAD\r\nCL.TAKE k p")
	got := c.Do(t, "EXEC")
	require.Contains(t, got, "p: sliding: new")
	require.Contains(t, got, integers(0, 3, 2, -1, 60))
	require.Contains(t, got, integers(0, 3, 1, -1, 60))
	require.Equal(t, integers(0, 1, 0, -1, 120), c.Do(t, "CL.TAKE k p"))
}

// A call with an ID counts as repeated even if its policy has other limits by now.
func TestRepeatedTakeAfterReload(t *testing.T) {
	s := commandstest.New(t)
	c := s.Connect()
	setPolicies(t, s, "{p: {limits: [{fixed: {limit: 3, period: 60s}}, {sliding: {limit: 2, period: 60s}}]}}")
	want := c.Do(t, "CL.TAKE k p 1 ID a")
	c.Do(t, "CL.TAKE k p 1 VERBOSE ID b")
	setPolicies(t, s, "{p: {limits: [{quota: {limit: 3, per: day}}]}}")
	require.Equal(t, want, c.Do(t, "CL.TAKE k p 1 ID a"))
	require.Contains(t, c.Do(t, "CL.TAKE k p 1 VERBOSE ID b"), "$10\r\ndecided_by\r\n$5\r\nlimit\r\n")
	require.Equal(t, ":0\r\n", c.Do(t, "EXISTS p:{k}:quota-day@UTC"))
	c.Do(t, "CL.ALL 1 TAKE l p 1 ID a")
	setPolicies(t, s, "{p: {limits: [{fixed: {limit: 3, period: 60s}}, {sliding: {limit: 2, period: 60s}}]}}")
	require.Equal(t, "-ERR ID was used for another call\r\n", c.Do(t, "CL.ALL 1 TAKE l p 1 ID a"))
}

// takeReplies are the replies of --store-fails allow and deny.
var takeReplies = []struct{ call, allow, deny string }{
	{"CL.TAKE k login", integers(0, 2, 0, -1, 0), integers(1, 2, 0, 1, 1)},
	{"CL.TAKE k login 2 UPTO", integers(0, 2, 0, -1, 0, 2), integers(1, 2, 0, 1, 1, 0)},
	{"CL.TAKE k login 9 FORCE", integers(0, 2, 0, -1, 0), integers(1, 2, 0, 1, 1)},
	{"CL.TAKE k login 1 LEAVE 1", integers(0, 2, 0, -1, 0), integers(1, 2, 0, 1, 1)},
	{"CL.TAKE k login 1 WAIT 1000", integers(0, 2, 0, -1, 0), integers(1, 2, 0, 1, 1)},
	{"CL.TAKE k login 1 ID a", integers(0, 2, 0, -1, 0), integers(1, 2, 0, 1, 1)},
	{"CL.TAKE k pair", integers(0, 10, 0, -1, 0), integers(1, 10, 0, 1, 1)},
	{"CL.TAKE k pair 3 UPTO LEAVE 1 MS", integers(0, 10, 0, -1, 0, 3), integers(1, 10, 0, 1000, 1000, 0)},
	{"CL.TAKE k pair 3 FORCE", integers(0, 10, 0, -1, 0), integers(1, 10, 0, 1, 1)},
	{"CL.TAKE k pair 1 ID a", integers(0, 10, 0, -1, 0), integers(1, 10, 0, 1, 1)},
	{"CL.TAKE k new-plan", integers(0, 1, 0, -1, 0), integers(0, 1, 0, -1, 1)},
	{"CL.ALL 2 TAKE k login 1 TAKE k pair 1",
		"*4\r\n:0\r\n:-1\r\n" + integers(0, 2, 0, -1, 0) + integers(0, 10, 0, -1, 0),
		"*4\r\n:1\r\n:1\r\n" + integers(1, 2, 0, 1, 1) + integers(1, 10, 0, 1, 1)},
	{"CL.ALL 1 TAKE k new-plan 1 ID a", "*3\r\n:0\r\n:-1\r\n" + integers(0, 1, 0, -1, 0),
		"*3\r\n:0\r\n:-1\r\n" + integers(0, 1, 0, -1, 1)},
}

// While the store fails, CL.TAKE is answered as --store-fails says, and decisions that need no limit are
// made as always.
func TestTakeWhileTheStoreFails(t *testing.T) {
	const unlimited = 1<<63 - 1
	for _, policy := range []string{"error", "allow", "deny"} {
		s := newFailingServer(t, policy)
		s.Policies.Read = commandstest.ExamplePolicies
		_, err := s.Policies.Reload()
		require.NoError(t, err)
		c := s.Connect()
		*s.fails = store.ErrDown
		for _, of := range takeReplies {
			want := map[string]string{"error": storeDown, "allow": of.allow, "deny": of.deny}[policy]
			require.Equal(t, want, c.Do(t, of.call), "%s: %s", policy, of.call)
		}
		require.Equal(t, integers(0, unlimited, unlimited, -1, 0), c.Do(t, "CL.TAKE 10.0.0.1 api"))
		field := map[string]string{"error": "errors", "allow": "allowed", "deny": "limited"}[policy]
		require.Contains(t, c.Do(t, "INFO store"), fmt.Sprintf("store_decisions_%s:%d\r\n", field, len(takeReplies)))
	}
}

// With --store-fails local, CL.TAKE is decided in memory, and forgotten there when the store decides again.
func TestTakeLocally(t *testing.T) {
	s := newFailingServer(t, "local")
	s.Policies.Read = commandstest.ExamplePolicies
	_, err := s.Policies.Reload()
	require.NoError(t, err)
	c := s.Connect()
	*s.fails = store.ErrUnavailable
	require.Equal(t, integers(0, 5, 3, -1, 120), c.Do(t, "CL.TAKE k pair 2"))
	require.Equal(t, integers(0, 5, 1, -1, 120, 2), c.Do(t, "CL.TAKE k pair 9 UPTO LEAVE 1"))
	require.Equal(t, integers(1, 5, 1, 75, 120), c.Do(t, "CL.TAKE k pair 2 ID a"))
	require.Equal(t, integers(0, 2, 1, -1, 60), c.Do(t, "CL.TAKE k login"))
	require.Equal(t, integers(0, 2, 0, -1, 60), c.Do(t, "CL.TAKE k login 1 ID a"))
	require.Equal(t, integers(0, 2, 0, -1, 60), c.Do(t, "CL.TAKE k login 1 ID a"))
	require.Equal(t, "*4\r\n:1\r\n:60\r\n"+integers(1, 2, 0, 60, 60)+integers(0, 1, 1, -1, 0),
		c.Do(t, "CL.ALL 2 TAKE k login 1 TAKE k new-plan 1"))
	*s.fails = nil
	require.Equal(t, integers(0, 5, 4, -1, 120), c.Do(t, "CL.TAKE k pair"))
	*s.fails = store.ErrUnavailable
	require.Equal(t, integers(0, 5, 4, -1, 120), c.Do(t, "CL.TAKE k pair"), "forgotten")
	require.Equal(t, integers(1, 2, 0, 60, 60), c.Do(t, "CL.TAKE k login"), "the store has not decided about it")
}

// While memory is full, limits whose keys exist still work, and --oom-decision decides about other
// keys.
func TestTakeWhileMemoryIsFull(t *testing.T) {
	c := commandstest.New(t).Connect()
	c.Do(t, "CL.TAKE old login")
	c.Do(t, "CL.TAKE old pair")
	c.Do(t, "CONFIG SET maxmemory 1")
	require.Equal(t, integers(0, 2, 0, -1, 60), c.Do(t, "CL.TAKE old login"))
	require.Equal(t, integers(0, 5, 3, -1, 120), c.Do(t, "CL.TAKE old pair"))
	calls := []string{"CL.TAKE new login", "CL.TAKE new login 1 LEAVE 1", "CL.TAKE new login 2 UPTO MS",
		"CL.TAKE new pair", "CL.TAKE new pair 3 FORCE", "CL.TAKE new pair 1 ID a"}
	const all = "CL.ALL 2 TAKE old login -1 TAKE new pair 1"
	require.Contains(t, c.Do(t, all), "-OOM ")
	for _, call := range calls {
		require.Contains(t, c.Do(t, call), "-OOM ", call)
	}
	c.Do(t, "CONFIG SET oom-decision limit")
	for _, call := range calls {
		require.Regexp(t, `^\*[56]\r\n:1\r\n`, c.Do(t, call), call)
	}
	require.Regexp(t, `^\*4\r\n:1\r\n:1\r\n`, c.Do(t, all))
}

// BenchmarkTake is BenchmarkSession for CL.TAKE, with a policy that has the limit of
// BenchmarkSession's calls.
func BenchmarkTake(b *testing.B) {
	for _, depth := range []int{1, 64} {
		b.Run(fmt.Sprintf("P=%d", depth), func(b *testing.B) {
			b.ReportAllocs()
			repeat(commandstest.New(b).Connect(), b.N, depth, "*3\r\n$7\r\nCL.TAKE\r\n$14\r\nk:000000000000\r\n$5\r\nbench\r\n")
		})
	}
}

// With VERBOSE, CL.ALL says about a policy what CL.TAKE would say immediately afterwards. About a call that
// it refuses, it says how much the policy has left, and if the policy itself refuses, also why.
func TestAllIsVerboseAsTake(t *testing.T) {
	s := commandstest.New(t)
	setPolicies(t, s, "{one: {limits: [{fixed: {limit: 2, period: 60s}}, {throttle: {burst: 3, rate: 1/10s}}]}, "+
		"two: {limits: [{sliding: {limit: 3, period: 60s}}], ban: {after: 9, within: 1h, for: 2h}}}")
	c := s.Connect()
	peek := func(policy string, quantity int) string {
		return c.Do(t, fmt.Sprintf("CL.TAKE u %s %d PEEK VERBOSE", policy, quantity))
	}
	for range 3 {
		got := c.Do(t, "CL.ALL 2 TAKE u one 1 TAKE u two 1 VERBOSE")
		one, two := 0, 0
		if strings.HasPrefix(got, "*4\r\n:1\r\n") {
			one = 1 // refuses
		}
		want := peek("one", one) + peek("two", two)
		require.True(t, strings.HasSuffix(got, want), "%s\n%s", got, want)
	}
	c.Do(t, "CL.BAN u two 60")
	got := c.Do(t, "CL.ALL 2 TAKE u one 0 TAKE u two 1 VERBOSE")
	require.True(t, strings.HasSuffix(got, peek("one", 0)+peek("two", 1)), got)
	require.Contains(t, got, "$3\r\nban\r\n")
}

// A ban refuses a call that repeats the ID of an allowed call, even if only one of its policies bans the
// subject. When the ban has ended, the ID gets the first call's reply again.
func TestBansRefuseRepeatedCalls(t *testing.T) {
	s := commandstest.New(t)
	setPolicies(t, s, "{one: {limits: [{fixed: {limit: 9, period: 60s}}]}, two: {limits: [{fixed: {limit: 9, period: 60s}}]}}")
	c := s.Connect()
	for _, call := range []string{"CL.TAKE u two 1 ID x", "CL.ALL 2 TAKE u one 1 TAKE u two 1 ID x"} {
		first := c.Do(t, call)
		require.NotContains(t, first, "-ERR")
		c.Do(t, "CL.BAN u two 30")
		require.Regexp(t, `^\*[45]\r\n:1\r\n`, c.Do(t, call), call)
		c.Do(t, "CL.PARDON u two")
		require.Equal(t, first, c.Do(t, call), call)
	}
}
