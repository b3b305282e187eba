package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

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

// Files have to be read again until they have looked the same for a while, and after each change.
func TestPolicyWatch(t *testing.T) {
	folder := t.TempDir()
	in := func(name string) string { return filepath.Join(folder, name) }
	write := func(name, text string) { require.NoError(t, os.WriteFile(in(name), []byte(text), 0o600)) }
	require.NoError(t, os.MkdirAll(in("..1"), 0o700))
	require.NoError(t, os.MkdirAll(in("..2"), 0o700))
	write("..1/a.yaml", "old")
	write("..2/a.yaml", "new")
	require.NoError(t, os.Symlink("..1", in("..data")))
	require.NoError(t, os.Symlink("..data/a.yaml", in("a.yaml")))
	w := policyWatch{find: func() ([]policyFile, error) { return findPolicies(folder) }}
	settle := func() {
		for range sameForSure {
			require.True(t, w.mayHaveChanged())
		}
		require.False(t, w.mayHaveChanged())
	}
	settle()
	for i, change := range []func() error{
		func() error { return errors.Join(os.Symlink("..2", in("next")), os.Rename(in("next"), in("..data"))) },
		func() error { return os.Chtimes(in("a.yaml"), time.Time{}, time.Unix(1, 0)) },
		func() error { return os.WriteFile(in("..2/a.yaml"), []byte("longer"), 0o600) },
		func() error { return os.WriteFile(in("b.yml"), nil, 0o600) },
		func() error { return os.Remove(in("b.yml")) },
	} {
		require.NoError(t, change(), i)
		settle()
	}
	require.NoError(t, os.RemoveAll(folder))
	for range 2 * sameForSure {
		require.True(t, w.mayHaveChanged(), "an error may pass at any time")
	}
}

func TestPolicyFilesAreBounded(t *testing.T) {
	folder := t.TempDir()
	write := func(i int) {
		require.NoError(t, os.WriteFile(filepath.Join(folder, fmt.Sprint(i, ".yaml")), nil, 0o600))
	}
	for i := range maxPolicyFiles {
		write(i)
	}
	require.NoError(t, syscall.Mkfifo(filepath.Join(folder, "pipe.yaml"), 0o600))
	files, err := readPolicies(folder)
	require.NoError(t, err)
	require.Len(t, files, maxPolicyFiles)
	write(maxPolicyFiles)
	_, err = readPolicies(folder)
	require.EqualError(t, err, folder+" has 1001 files with policies, and at most 1000 are allowed")
}
