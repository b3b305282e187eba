package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A folder as Kubernetes mounts a ConfigMap: the files are links to files behind a link.
func TestPoliciesOfFolder(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(folder, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	run := func(args ...string) (string, error) {
		var out bytes.Buffer
		err := checkPolicies(append([]string{"check"}, args...), &out)
		return out.String(), err
	}
	_, err := run(folder)
	require.EqualError(t, err, folder+" has no files *.yaml or *.yml")
	const limits = "{limits: [{slidinglog: {limit: 10, period: 1s}}]}\n"
	write("..2026/b.yml", "policies:\n  b: "+limits)
	require.NoError(t, os.Symlink("..2026", filepath.Join(folder, "..data")))
	require.NoError(t, os.Symlink("..data/b.yml", filepath.Join(folder, "b.yml")))
	write("a.yaml", "policies:\n  a: "+limits)
	write(".hidden.yaml", "no policies")
	write("notes.txt", "no policies")
	write("folder.yaml/c", "no policies")
	out, err := run(folder)
	require.NoError(t, err)
	require.Equal(t, "policies: 2, files: 2\n", out)
	out, err = run(filepath.Join(folder, "b.yml"))
	require.NoError(t, err)
	require.Equal(t, "policies: 1, files: 1\n", out)
	_, err = run(folder, "--max-log-limit", "9")
	require.ErrorContains(t, err, filepath.Join(folder, "a.yaml")+":2: limit must be between 0 and 9 (max-log-limit)")
	write("c.yaml", "policies:\n\n  b: "+limits)
	_, err = run(folder)
	require.ErrorContains(t, err, "c.yaml:3: policy b is at "+filepath.Join(folder, "b.yml")+":2 already")
	_, err = run(filepath.Join(folder, "none.yaml"))
	require.Error(t, err)
	_, err = run()
	require.ErrorContains(t, err, "policies needs check")
}
