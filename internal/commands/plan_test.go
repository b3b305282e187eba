package commands_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/commands"
	"cellserver/internal/commands/commandstest"
	"cellserver/internal/store"
	"cellserver/internal/store/remote"
	"cellserver/internal/store/remote/remotetest"
)

const tiers = "{p: {limits: [{fixed: {limit: 2, period: 60s}}], plans: {pro: {limits: [{fixed: {limit: 5, period: 60s}}]}}}}"

// serversOfOneStore returns two servers with the same policies.
func serversOfOneStore(t *testing.T, policies string) (servers [2]*commandstest.Server) {
	clock := store.NewStillClock(commandstest.Start)
	backend := remotetest.New(clock, 16)
	for i := range servers {
		s, err := commandstest.NewOver(t, remote.New(remote.Options{Executor: backend, Keyspace: backend, Clock: backend}),
			func(*commands.Settings) {})
		require.NoError(t, err)
		setPolicies(t, s, policies)
		servers[i] = s
	}
	return servers
}

// A plan holds at once on every server of a store.
func TestPlanOnServersOfOneStore(t *testing.T) {
	servers := serversOfOneStore(t, tiers)
	one, other := servers[0].Connect(), servers[1].Connect()
	require.Equal(t, integers(0, 2, 0, -1, 60), other.Do(t, "CL.TAKE alice p 2"))
	require.Equal(t, "+OK\r\n", one.Do(t, "CL.PLAN alice p pro 60"))
	require.Equal(t, integers(0, 5, 1, -1, 60), other.Do(t, "CL.TAKE alice p 2"))
	require.Equal(t, "+OK\r\n", other.Do(t, "CL.PLAN alice p -"))
	require.Equal(t, integers(1, 2, 0, 60, 60), one.Do(t, "CL.TAKE alice p 1"))
}

// A plan that a reload removes has no effect any more, and the reload says so. It decides again if a later
// reload brings it back.
func TestRemovedPlanFallsBack(t *testing.T) {
	s := commandstest.New(t)
	setPolicies(t, s, tiers)
	c := s.Connect()
	c.Do(t, "CL.PLAN alice p pro 0 paid")
	require.Equal(t, integers(0, 5, 4, -1, 60), c.Do(t, "CL.TAKE alice p"))
	s.Policies.Read = commandstest.ExamplePolicies
	setPolicies(t, s, "{p: {limits: [{fixed: {limit: 2, period: 60s}}]}}")
	require.Equal(t, integers(0, 2, 0, -1, 60), c.Do(t, "CL.TAKE alice p"))
	require.Equal(t, `["plan", "", "given", "pro", "seconds", 3153600000, "reason", "paid"]`, c.Ask(t, "CL.PLAN alice p"))
	require.Contains(t, c.Ask(t, "CL.EXPLAIN CL.TAKE alice p"), "the subject was given plan pro, which does not matter")
	setPolicies(t, s, tiers)
	require.Equal(t, integers(0, 5, 2, -1, 60), c.Do(t, "CL.TAKE alice p"))
}

// DUMP and RESTORE keep a plan, as a restart does.
func TestPlanIsDumped(t *testing.T) {
	one, other := commandstest.New(t), commandstest.New(t)
	setPolicies(t, one, tiers)
	setPolicies(t, other, tiers)
	one.Connect().Do(t, "CL.PLAN alice p pro 2h")
	require.NoError(t, other.Advance(time.Hour))
	dump := strings.SplitN(one.Connect().Do(t, "DUMP p:{alice}:standing"), "\r\n", 2)[1]
	dump = strings.TrimSuffix(dump, "\r\n")
	c := other.Connect()
	require.NoError(t, c.Send(commandstest.Encode([]string{"RESTORE", "p:{alice}:standing", "0", dump})))
	c.Settle()
	require.Equal(t, "+OK\r\n", c.Output())
	require.Equal(t, integers(0, 5, 4, -1, 60), c.Do(t, "CL.TAKE alice p"))
}

// While the store fails, a subject with a plan has the same limits as subjects without one.
func TestPlanWhileTheStoreFails(t *testing.T) {
	s := newFailingServer(t, "local")
	setPolicies(t, s.Server, tiers)
	c := s.Connect()
	c.Do(t, "CL.PLAN alice p pro 2h")
	*s.fails = store.ErrDown
	require.Equal(t, integers(0, 2, 1, -1, 60), c.Do(t, "CL.TAKE alice p"))
	*s.fails = nil
	require.Equal(t, integers(0, 5, 4, -1, 60), c.Do(t, "CL.TAKE alice p"))
}

// BenchmarkTakeStanding measures CL.TAKE of a subject that was refused, and of one with a plan; and of a subject
// without a standing, while no subject has one, and while another has. bench/instructions.sh --plan counts the
// instructions.
func BenchmarkTakeStanding(b *testing.B) {
	const key = "k:000000000000"
	for name, give := range map[string]string{
		"refused": "CL.TAKE " + key + " p 1", "plan": "CL.PLAN " + key + " p pro 0",
		"none": "PING", "other": "CL.PLAN bob p pro 0",
	} {
		b.Run(fmt.Sprintf("%s/P=64", name), func(b *testing.B) {
			s := commandstest.New(b)
			setPolicies(b, s, "{p: {limits: [{fixed: {limit: 2, period: 1s}}], "+
				"plans: {pro: {limits: [{fixed: {limit: 3, period: 1s}}]}}, ban: {after: 9, within: 1h, for: 1h}}}")
			c := s.Connect()
			c.Do(b, "CL.TAKE "+key+" p 2")
			c.Do(b, give)
			has := map[bool]string{true: "1", false: "0"}[name == "refused" || name == "plan"]
			require.Equal(b, has, c.Ask(b, "EXISTS p:{"+key+"}:standing"))
			b.ResetTimer()
			repeatSame(c, b.N, 64, "*4\r\n$7\r\nCL.TAKE\r\n$14\r\nk:000000000000\r\n$1\r\np\r\n$1\r\n0\r\n")
		})
	}
}
