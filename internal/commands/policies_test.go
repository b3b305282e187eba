package commands_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/command"
	"cellserver/internal/commands/commandstest"
	policies "cellserver/internal/policy"
)

// Users have rights to policies, and to some subjects of a policy, by the names of their keys.
func TestRightsToPolicies(t *testing.T) {
	s := commandstest.New(t)
	for _, test := range []struct {
		rules, call string
		allowed     bool
	}{
		{"+@ratelimit ~api:*", "CL.TAKE alice api", true},
		{"+@ratelimit ~api:*", "CL.TAKE alice login", false},
		{"+@ratelimit ~api:*", "CL.TAKE api: login", false},
		{"+@ratelimit ~api:*", "CL.POLICY LIST", false},
		{"+@ratelimit ~api:{shop-*", "CL.TAKE shop-1 api", true},
		{"+@ratelimit ~api:{shop-*", "CL.TAKE alice api", false},
		{"+@ratelimit ~api:{shop-1}:", "CL.TAKE shop-1 api", true},
		{"+@ratelimit ~api:{shop-1}:", "CL.TAKE shop-12 api", false},
		{"+@ratelimit ~api:{10.0.0.1}:", "CL.TAKE ::ffff:10.0.0.1 api", true},
		{"+@all ~alice", "CL.TAKE alice api", false},
		{"+@ratelimit %R~api:*", "CL.TAKE alice api 1", false},
		{"+@ratelimit %R~api:*", "CL.TAKE alice api 1 PEEK MS VERBOSE LEAVE 1 ID a", true},
		{"+@ratelimit ~api:* ~k", "CL.ALL 2 TAKE alice api 1 FIXED k 9 60 1", true},
		{"+@ratelimit ~api:* ~k", "CL.ALL 2 FIXED k 9 60 1 TAKE alice login 1", false},
		{"+@ratelimit ~api:* ~k", "CL.ALL 2 FIXED l 9 60 1 TAKE alice api 1", false},
		{"+@all ~alice", "CL.ALL 1 TAKE alice api 1", false},
		{"+@ratelimit %R~api:*", "CL.ALL 1 TAKE alice api 1 PEEK", true},
	} {
		got := s.ConnectAs(t, test.rules).Do(t, test.call)
		if test.allowed {
			require.NotContains(t, got, "NOPERM", "%s: %s", test.rules, test.call)
		} else {
			require.Contains(t, got, "NOPERM", "%s: %s", test.rules, test.call)
		}
	}
}

// A reload applies all policies at once, keeps the counts of keys that stay, and applies nothing of an
// invalid file.
func TestReloadOfPolicies(t *testing.T) {
	s := commandstest.New(t)
	file := t.TempDir() + "/policies.yaml"
	s.Policies.Read = func() ([]policies.File, error) {
		text, err := os.ReadFile(file)
		return []policies.File{{Name: "p.yaml", Text: text}}, err
	}
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	d := s.Connect()
	write("policies: {p: {limits: [{fixed: {limit: 2, period: 60s}}, {quota: {limit: 9, per: day}}]}}")
	require.Contains(t, d.Do(t, "CL.POLICY RELOAD"), "p: new")
	require.Equal(t, "*5\r\n:0\r\n:2\r\n:1\r\n:-1\r\n:60\r\n", d.Do(t, "CL.TAKE alice p"))
	write("policies: {p: {limits: [{fixed: {limit: 4, period: 60s}}, {quota: {limit: 9, per: month}}]}}")
	changes := d.Do(t, "CL.POLICY RELOAD")
	require.Contains(t, changes, "p: fixed: limit 2, period 1m -> limit 4, period 1m")
	require.Contains(t, changes, "p: quota day -> month: begins anew")
	require.Equal(t, "*5\r\n:0\r\n:4\r\n:2\r\n:-1\r\n:60\r\n", d.Do(t, "CL.TAKE alice p"))
	write("policies: {p: {limits: [{fixed: {limit: 4")
	require.Contains(t, d.Do(t, "CL.POLICY RELOAD"), "-ERR p.yaml:1: not YAML")
	write("policies: {q: {limits: []}}")
	require.Contains(t, d.Do(t, "CL.POLICY RELOAD"), "-ERR p.yaml:1: limits must be a list")
	require.Equal(t, "*5\r\n:0\r\n:4\r\n:1\r\n:-1\r\n:60\r\n", d.Do(t, "CL.TAKE alice p"))
}

// The rights to a call are checked with the policies that decide it, even if other policies come into force in
// between, with which the subject would have another key, to which the user has no rights. The same is true of
// each call that EXEC makes, and of a call that waits. The next call uses the new policies.
func TestRightsAreThoseOfTheDecision(t *testing.T) {
	const subject = "::ffff:10.0.0.1"
	networks := "{api: {limits: [{throttle: {burst: 9, rate: 1/1h}}], " +
		"overrides: [{cidr: [11.0.0.0/8], blocked: true}]}}"
	plain := "{api: {limits: [{throttle: {burst: 9, rate: 1/1h}}]}}"
	leases := numbered(" ACQUIRE api:{10.0.0.1}:%d 9 9 h 1", 63) // enough to be made outside the event loop
	for _, test := range []struct{ row, call string }{
		{"cl.take", "CL.TAKE " + subject + " api"},
		{"cl.take", "CL.TAKE " + subject + " api 1 WAIT 1"},
		{"cl.all", "CL.ALL 1 TAKE " + subject + " api 1"},
		{"cl.all", "CL.ALL 64 TAKE " + subject + " api 1" + leases},
		{"cl.exempt", "CL.EXEMPT " + subject + " api 9"},
	} {
		for _, transaction := range []bool{false, true} {
			s := commandstest.New(t)
			setPolicies(t, s, networks)
			root, c := s.Connect(), s.ConnectAs(t, "+@all ~api:{10.0.0.1}:*")
			row := s.Instance.Table.ByName[test.row]
			run := row.Run
			row.Run = func(c *command.Call) error {
				setPolicies(t, s, plain)
				return run(c)
			}
			calls := [][]string{strings.Fields(test.call)}
			if transaction {
				calls = [][]string{{"MULTI"}, calls[0], {"EXEC"}}
			}
			for _, words := range calls {
				require.NoError(t, c.Send(commandstest.Encode(words)))
				require.NotRegexp(t, "^-", c.Output(), test.call)
			}
			require.Equal(t, ":0\r\n", root.Do(t, "EXISTS api:{"+subject+"}:throttle api:{"+subject+"}:standing"), test.call)
			require.Equal(t, ":1\r\n", root.Do(t, "EXISTS api:{10.0.0.1}:throttle api:{10.0.0.1}:standing"), test.call)
			require.Contains(t, c.Do(t, "CL.TAKE "+subject+" api"), "-NOPERM", test.call)
			require.Contains(t, c.Do(t, "CL.TAKE 10.0.0.1 api"), "*5\r\n", test.call)
			root.Do(t, "ACL SETUSER u allkeys")
			require.Contains(t, c.Do(t, "CL.TAKE "+subject+" api"), "*5\r\n", test.call)
			require.Equal(t, ":1\r\n", root.Do(t, "EXISTS api:{"+subject+"}:throttle"), "the new policies")
		}
	}
}

// Calls on subjects that are long to compare with the patterns of their policies are made outside the event loop,
// and may wait.
func TestLongComparisonsLeaveTheLoop(t *testing.T) {
	s := commandstest.New(t)
	subject := strings.Repeat("k", 50)
	setPolicies(t, s, "{long: {limits: [{throttle: {burst: 1, rate: 1/10s}}], overrides: ["+
		strings.Repeat("{subject: '*"+strings.Repeat("k", 250)+"', blocked: true}", 1)+
		numbered(", {subject: '*"+strings.Repeat("k", 240)+"%d', blocked: true}", 99)+"]}}")
	c := s.Connect()
	allowed := "*5\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:10\r\n"
	c.Session.Feed([]byte("CL.TAKE " + subject + " long\r\n"))
	require.True(t, c.Session.HasUnanswered(), "the loop serves others meanwhile")
	c.Settle()
	require.Equal(t, allowed, c.Output())
	for call, want := range map[string]string{
		"CL.TAKE " + subject + " long 1 WAIT 20000":       allowed,
		"CL.ALL 1 TAKE " + subject + " long 1 WAIT 20000": "*3\r\n:0\r\n:-1\r\n" + allowed,
	} {
		require.NoError(t, c.Send([]byte(call+"\r\n")))
		require.True(t, c.Session.HasUnanswered())
		require.NoError(t, s.Advance(10*time.Second))
		c.Settle()
		require.Equal(t, want, c.Output())
	}
	require.Equal(t, "*5\r\n:1\r\n:1\r\n:0\r\n:10\r\n:10\r\n", c.Do(t, "CL.TAKE "+subject+" long"))
}

// The headers of a CL.POLICY TEST are bounded, and it may be in a transaction.
func TestHeadersOfPolicyTest(t *testing.T) {
	c := commandstest.New(t).Connect()
	long := strings.Repeat("x", 4096)
	call := "CL.POLICY TEST 192.0.2.7 by-plan HEADER X-Plan "
	require.Contains(t, c.Do(t, call+long), "override")
	require.Equal(t, "-ERR the value of a header is longer than 4096 bytes\r\n", c.Do(t, call+long+"x"))
	require.Equal(t, "-ERR wrong number of arguments for 'cl.policy|test' command\r\n",
		c.Do(t, "CL.POLICY TEST 192.0.2.7 by-plan"+strings.Repeat(" HEADER X-Plan x", 43)))
	c.Do(t, "MULTI")
	for _, of := range []string{call + "gold", "CL.POLICY TEST x none HEADER a b", "CL.POLICY TEST x by-plan HEADER a"} {
		require.Equal(t, "+QUEUED\r\n", c.Do(t, of))
	}
	reply := c.Do(t, "EXEC")
	require.Contains(t, reply, "$4\r\ngold\r\n")
	require.Contains(t, reply, "-ERR no such policy 'none'\r\n-ERR syntax error at 'HEADER'\r\n")
}
