package commands

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	policies "cellserver/internal/policy"
)

// Users have rights to policies, and to some subjects of a policy, by the names of their keys.
func TestRightsToPolicies(t *testing.T) {
	s := newServer(t)
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
		got := s.dialAs(t, test.rules).do(t, test.call)
		if test.allowed {
			require.NotContains(t, got, "NOPERM", "%s: %s", test.rules, test.call)
		} else {
			require.Contains(t, got, "NOPERM", "%s: %s", test.rules, test.call)
		}
	}
}

// A reload applies all policies at once, keeps the counts of keys that stay, and applies nothing of a file
// that is not valid.
func TestReloadOfPolicies(t *testing.T) {
	s := newServer(t)
	file := t.TempDir() + "/policies.yaml"
	s.families.policies.Files.Read = func() ([]policies.File, error) {
		text, err := os.ReadFile(file)
		return []policies.File{{Name: "p.yaml", Text: text}}, err
	}
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	d := s.dial()
	write("policies: {p: {limits: [{fixed: {limit: 2, period: 60s}}, {quota: {limit: 9, per: day}}]}}")
	require.Contains(t, d.do(t, "CL.POLICY RELOAD"), "p: new")
	require.Equal(t, "*5\r\n:0\r\n:2\r\n:1\r\n:-1\r\n:60\r\n", d.do(t, "CL.TAKE alice p"))
	write("policies: {p: {limits: [{fixed: {limit: 4, period: 60s}}, {quota: {limit: 9, per: month}}]}}")
	changes := d.do(t, "CL.POLICY RELOAD")
	require.Contains(t, changes, "p: fixed: limit 2, period 1m -> limit 4, period 1m")
	require.Contains(t, changes, "p: quota day -> month: begins anew")
	require.Equal(t, "*5\r\n:0\r\n:4\r\n:2\r\n:-1\r\n:60\r\n", d.do(t, "CL.TAKE alice p"))
	write("policies: {p: {limits: [{fixed: {limit: 4")
	require.Contains(t, d.do(t, "CL.POLICY RELOAD"), "-ERR p.yaml:1: not YAML")
	write("policies: {q: {limits: []}}")
	require.Contains(t, d.do(t, "CL.POLICY RELOAD"), "-ERR p.yaml:1: limits must be a list")
	require.Equal(t, "*5\r\n:0\r\n:4\r\n:1\r\n:-1\r\n:60\r\n", d.do(t, "CL.TAKE alice p"))
}
