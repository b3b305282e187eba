package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A folder as Kubernetes mounts a ConfigMap, with a folder below it. Every name counts, unless it begins with a dot.
func TestCheckEnvoy(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(folder, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	run := func(args ...string) (string, error) {
		var out bytes.Buffer
		err := checkPolicies(append([]string{"check", "--envoy"}, args...), &out)
		return out.String(), err
	}
	const limit = "\ndescriptors: [{key: k, unit: day, rate_limit: {unit: day, requests_per_unit: 1}}]\n"
	write("..2026/b", "domain: b"+limit)
	require.NoError(t, os.Symlink("..2026", filepath.Join(folder, "..data")))
	require.NoError(t, os.Symlink("..data/b", filepath.Join(folder, "b")))
	write("below/a.txt", "domain: a"+limit)
	write(".hidden", "not a configuration")
	out, err := run(folder)
	require.NoError(t, err)
	require.Equal(t, folder+"/b:2: \"unit\" has no effect in a descriptor\n"+
		folder+"/below/a.txt:2: \"unit\" has no effect in a descriptor\ndomains: 2, limits: 2, files: 2\n", out)
	write("c", "domain: a\ndescriptors: [{key: l}]")
	_, err = run(folder)
	require.EqualError(t, err, folder+"/c:1: domain \"a\" is in "+folder+"/below/a.txt already")
	out, err = run(folder, "--envoy-merge-domains", "yes")
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(out, "domains: 2, limits: 2, files: 3\n"), out)
	write(strings.Repeat("d/", maxEnvoyDepth)+"e", "")
	_, err = run(folder)
	require.ErrorContains(t, err, "is more than 16 folders deep")
	_, err = run(filepath.Join(folder, "none"))
	require.Error(t, err)
}

// If policies are given, the policies that descriptors name must be among them.
func TestCheckEnvoyPolicies(t *testing.T) {
	folder := t.TempDir()
	limits, policies := filepath.Join(folder, "limits"), filepath.Join(folder, "policies.yaml")
	text := "domain: d\ndescriptors:\n- {key: k, policy: api}\n- {key: l, policy: none}\n"
	require.NoError(t, os.WriteFile(limits, []byte(text), 0o600))
	const one = "policies: {api: {limits: [{fixed: {limit: 1, period: 1h}}]}}"
	require.NoError(t, os.WriteFile(policies, []byte(one), 0o600))
	var out bytes.Buffer
	require.NoError(t, checkPolicies([]string{"check", "--envoy", limits}, &out))
	require.Equal(t, "domains: 1, limits: 2, files: 1\n", out.String())
	require.EqualError(t, checkPolicies([]string{"check", "--envoy", "--policies", policies, limits}, &out),
		limits+`:4: d.l names policy "none", which does not exist`)
	err := checkPolicies([]string{"check", "--policies", policies, policies}, &out)
	require.EqualError(t, err, "--policies is for --envoy")
	require.NoError(t, os.WriteFile(limits, []byte(strings.Replace(text, "none", "api", 1)), 0o600))
	require.NoError(t, checkPolicies([]string{"check", "--envoy", "--policies", policies, limits}, &out))
}
