package monitor_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/command"
	"cellserver/internal/commands"
	"cellserver/internal/policy"
	"cellserver/internal/session"
	"cellserver/internal/stats"
	"cellserver/internal/store"
	"cellserver/internal/store/memory"
)

// withPolicies returns an instance with policies, and a function that replaces them.
func withPolicies(t testing.TB, text string) (in *session.Instance, reload func(text string)) {
	t.Helper()
	keys := memory.New(memory.Options{Clock: store.NewStillClock(1), SweepEvery: -1})
	t.Cleanup(func() { keys.Close() })
	files := &commands.PolicyFiles{Read: func() ([]policy.File, error) {
		return []policy.File{{Name: "p.yaml", Text: []byte(text)}}, nil
	}}
	in, err := commands.New(commands.Config{Store: keys, Policies: files})
	require.NoError(t, err)
	return in, func(next string) {
		text = next
		_, err := files.Reload()
		require.NoError(t, err)
	}
}

const fewPolicies = `
policies:
  p: {limits: [{fixed: {limit: 1, period: 60s}}]}
  two: {limits: [{fixed: {limit: 9, period: 60s}}, {throttle: {burst: 9, rate: 1/1s}}]}
  shade: {limits: [{fixed: {limit: 1, period: 60s}}], shadow: true}
  net: {limits: [{fixed: {limit: 9, period: 60s}}], overrides: [{cidr: [10.0.0.0/8], blocked: true}]}
  idle: {limits: [{fixed: {limit: 1, period: 60s}}]}
`

// decisionCalls has calls of every command that decides, allowed, limited, in shadow mode and with errors.
var decisionCalls = []string{
	"SET text x", "SET p:{text}:fixed x", "SET p:{text}:standing x",
	"CL.THROTTLE a 0 1 60", "CL.THROTTLE a 0 1 60", "CL.THROTTLE text 0 1 60", "CL.THROTTLE a 0 1 60 1 PEEK",
	"CL.FIXED b 1 60", "CL.FIXED b 1 60", "CL.SLIDING c 1 60", "CL.SLIDINGLOG d 1 60", "CL.QUOTA e 1 DAY",
	"CL.ACQUIRE f 1 60 holder", "CL.ACQUIRE f 1 60 other", "CL.RENEW f 60 holder", "CL.RELEASE f holder",
	"GCRA g 1 1 60", "GCRA text 1 1 60",
	"CL.TAKE u p", "CL.TAKE u p", "CL.TAKE u p 1 PEEK", "CL.TAKE text p", "CL.TAKE u none", "CL.TAKE u p 1 ID i",
	"CL.TAKE v p 1 ID i", "CL.TAKE v p 1 ID i",
	"CL.TAKE u two", "CL.TAKE u two 1 UPTO", "CL.TAKE u two 99 VERBOSE", "CL.TAKE 10.0.0.1 net", "CL.TAKE 192.0.2.1 net",
	"CL.BAN b two 60 x", "CL.TAKE b two", "CL.TAKE b two 1 PEEK", "CL.BAN b shade 60 x", "CL.TAKE b shade",
	"CL.PARDON b two", "CL.PARDON b shade",
	"CL.TAKE u shade", "CL.TAKE u shade", "CL.TAKE u shade 1 VERBOSE", "CL.TAKE u shade 1 PEEK",
	"CL.ALL 2 FIXED h 1 60 1 FIXED i 1 60 1", "CL.ALL 1 FIXED h 1 60 1", "CL.ALL 1 FIXED text 1 60 1",
	"CL.ALL 2 TAKE w p 1 TAKE w two 1", "CL.ALL 2 TAKE w p 1 TAKE w two 1", "CL.ALL 2 TAKE x two 1 TAKE u shade 1",
	"CL.ALL 2 TAKE x two 1 TAKE u shade 1 PEEK", "CL.ALL 2 TAKE x two 1 TAKE text p 1", "CL.ALL 2 TAKE y p 1 TAKE y p 1",
	"CL.ALL 2 TAKE w p 1 TAKE u shade 1", "CL.ALL 2 TAKE x two 1 TAKE x none 1",
}

// decisionsOf adds up the decisions of commands, by command, and of policies, by policy and result.
func decisionsOf(t *testing.T, in *session.Instance) (byCommand map[string]int, byPolicy map[string]string) {
	t.Helper()
	byCommand, byPolicy = map[string]int{}, map[string]string{}
	for series, value := range scrape(t, handler(in)) {
		n, err := strconv.Atoi(value)
		if labels, is := strings.CutPrefix(series, "decisions_total{command="); is {
			require.NoError(t, err)
			byCommand[strings.Split(labels, `"`)[1]] += n
		}
		if labels, is := strings.CutPrefix(series, "policy_decisions_total{policy="); is && n > 0 {
			words := strings.Split(labels, `"`)
			byPolicy[words[1]+" "+words[3]] = value
		}
	}
	return byCommand, byPolicy
}

// TestDecisionsAddUp: whatever is called, alone or in EXEC, the sum of the decisions of each command is the
// number of its calls.
func TestDecisionsAddUp(t *testing.T) {
	in, _ := withPolicies(t, fewPolicies)
	call(t, in, decisionCalls...)
	_, alone := decisionsOf(t, in)
	assert.Equal(t, map[string]string{
		"p allowed": "4", "p limited": "4", "p error": "4",
		"two allowed": "5", "two limited": "1", "two banned": "1", "two error": "2",
		"shade allowed": "1", "shade shadow": "5", "net allowed": "1", "net limited": "1",
	}, alone)
	shadowed := scrape(t, handler(in))
	assert.Equal(t, "4", shadowed[`decisions_total{command="cl.take",result="shadow"}`], "one is a PEEK")
	assert.Equal(t, "2", shadowed[`decisions_total{command="cl.all",result="shadow"}`], "one is a PEEK")

	call(t, in, append(append([]string{"MULTI"}, decisionCalls...), "EXEC")...)
	sums, _ := decisionsOf(t, in)
	for name, row := range in.Table.ByName {
		if row.Traits&command.Decides != 0 {
			made := in.Stats.Of(row.Number).Calls.Load()
			assert.NotZero(t, made, "%s: the test makes no call of it", name)
			assert.EqualValues(t, made, sums[name], name)
		}
	}
}

// TestHeldByPolicy: held and settled quantities are counted once for each policy that was charged. Holds that have
// charged nothing are not counted: they would falsify the figures about too high estimates.
func TestHeldByPolicy(t *testing.T) {
	in, _ := withPolicies(t, fewPolicies+"  most: {limits: [{fixed: {limit: 9223372036854775807, period: 60s}}]}\n")
	const most = "9223372036854775807"
	calls := []string{
		"CL.TAKE u two 9 HOLD a 1m", "CL.TAKE u two 9 HOLD a 1m", "CL.TAKE v two 9 HOLD a 1m", "CL.TAKE u two 9 HOLD b 1m",
		"CL.TAKE u two 3 SETTLE a", "CL.TAKE u two 3 SETTLE a", "CL.TAKE u two 4 SETTLE a", "CL.TAKE u two 4 SETTLE none",
		"CL.TAKE w two 12 UPTO HOLD a 1m", "CL.TAKE u two 2 SETTLE c FORCE", "CL.TAKE u idle 1",
		"CL.TAKE u most " + most + " HOLD a 1m", "CL.TAKE u most 0 SETTLE a", "CL.TAKE u most " + most + " HOLD b 1m",
		"CL.EXEMPT y two 60", "CL.TAKE y two 5 HOLD a 1m", "CL.TAKE y two 5 SETTLE a",
		"CL.TAKE u shade 9 HOLD a 1m", "CL.TAKE u shade 9 SETTLE a",
		"CL.ALL 1 TAKE z p 1 HOLD b 1m", "CL.ALL 2 TAKE z p 0 TAKE z two 5 SETTLE b",
		"MULTI", "CL.ALL 2 TAKE w p 1 TAKE x two 5 HOLD a 1m", "CL.ALL 2 TAKE w p 1 TAKE x two 7 SETTLE a", "EXEC",
	}
	call(t, in, calls...)
	held := map[string]string{}
	for series, value := range scrape(t, handler(in)) {
		if strings.HasPrefix(series, "policy_held_") || strings.HasPrefix(series, "policy_settled_") {
			held[series] = value
		}
	}
	assert.Equal(t, map[string]string{
		`policy_held_total{policy="two"}`: "32", `policy_settled_total{policy="two"}`: "10",
		`policy_held_total{policy="p"}`: "2", `policy_settled_total{policy="p"}`: "1",
		`policy_held_total{policy="most"}`: "9.223372036854776e+18", `policy_settled_total{policy="most"}`: "0",
	}, held)
	call(t, in, "CONFIG RESETSTAT")
	for series := range scrape(t, handler(in)) {
		assert.NotContains(t, series, "policy_held_")
	}
}

// TestManyPolicies: the series of a scrape are bounded, no decision is lost, and none is counted twice when
// policies are replaced.
func TestManyPolicies(t *testing.T) {
	const many = policy.MaxPolicies
	text := func(prefix string, count int) string {
		var b strings.Builder
		b.WriteString("policies:\n")
		for i := range count {
			fmt.Fprintf(&b, "  %s%d: {limits: [{fixed: {limit: 1, period: 60s}}]}\n", prefix, i)
		}
		return b.String()
	}
	in, reload := withPolicies(t, text("p", many))
	take := func(prefix string) {
		var calls []string
		for i := range many {
			calls = append(calls, fmt.Sprintf("CL.TAKE u %s%d", prefix, i), fmt.Sprintf("CL.TAKE u %s%d", prefix, i))
		}
		call(t, in, calls...)
	}
	take("p")
	_, got := decisionsOf(t, in)
	assert.Equal(t, "1", got["p0 allowed"])
	assert.Equal(t, "1", got["p31 limited"])
	others := strconv.Itoa(many - stats.MaxPolicies)
	assert.Equal(t, []string{others, others}, []string{got["_other allowed"], got["_other limited"]})
	assert.Len(t, got, 2*stats.MaxPolicies+2)

	reload(text("q", 2))
	_, got = decisionsOf(t, in)
	assert.Equal(t, map[string]string{"_other allowed": others, "_other limited": others}, got, "no count falls")
	assert.Equal(t, "0", scrape(t, handler(in))[`policy_decisions_total{policy="q1",result="allowed"}`])
	call(t, in, "CL.TAKE u q0")
	_, got = decisionsOf(t, in)
	assert.Equal(t, "1", got["q0 allowed"])
	call(t, in, "CONFIG RESETSTAT")
	_, got = decisionsOf(t, in)
	assert.Empty(t, got)
}
