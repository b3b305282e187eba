package faults

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// terminate ends a server with SIGTERM, under load.
func (l *load) terminate(server *peer.Server) (took time.Duration) {
	told := now()
	server.Signal(syscall.SIGTERM)
	require.Zero(l.t, server.Wait())
	took = now() - told
	l.end()
	return took
}

// After SIGTERM, all steps that were answered are there.
func TestTerminationLosesNothing(t *testing.T) {
	dir := t.TempDir()
	l := newLoad(t)
	var longest time.Duration
	stops := amount(3, 40)
	for range stops {
		server := peer.Start(t, "--dir", dir)
		l.verify(server, always)
		l.run(server)
		l.anyMoment()
		longest = max(longest, l.terminate(server))
		require.Empty(t, server.Stderr())
	}
	l.verify(peer.Start(t, "--dir", dir), always)
	t.Log(stops, "stops, the longest took", longest)
}

// The checker finds that a server was started with an old copy of its folder.
func TestAnOldCopyIsFound(t *testing.T) {
	dir, old := t.TempDir(), t.TempDir()
	l := newLoad(t)
	server := peer.Start(t, "--dir", dir)
	l.run(server)
	l.awaitSteps(1000)
	l.terminate(server)
	copyFolder(t, dir, old)
	server = peer.Start(t, "--dir", dir)
	l.verify(server, always)
	l.run(server)
	l.awaitSteps(1000)
	l.terminate(server)

	server = peer.Start(t, "--dir", old)
	errs := l.contradictions(l.look(server), always)
	require.GreaterOrEqual(t, len(errs), 2, "the counters and the databases have changed")
	for _, err := range errs {
		require.Regexp(t, "is as after step [0-9]+ of|has never been|databases", err.Error())
	}
	require.NoError(t, l.counts.check(l.look(server).counts, 0), "steps that were not promised may be lost")
}

// copyFolder copies the files of a folder. It skips a file that is removed meanwhile.
func copyFolder(t *testing.T, from, to string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(from)
	require.NoError(t, err)
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(from, e.Name()))
		if os.IsNotExist(err) {
			continue
		}
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(to, e.Name()), content, 0o600))
		names = append(names, e.Name())
	}
	slices.Sort(names)
	return names
}
