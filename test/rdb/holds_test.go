package rdb

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// heldLimits are calls of each limiter, on keys with open holds.
var heldLimits = [][]any{
	{"CL.THROTTLE", "throttle", 1000, 1000, "1d"}, {"CL.FIXED", "fixed", 1000, "30d"},
	{"CL.SLIDING", "sliding", 1000, "30d"}, {"CL.SLIDINGLOG", "log", 1000, "30d"},
	{"CL.QUOTA", "quota", 1000, "YEAR@UTC"},
}

func (s server) call(words []any, more ...any) []int64 {
	s.t.Helper()
	reply, err := s.client(3).Do(ctx, append(append([]any{}, words...), more...)...).Int64Slice()
	require.NoError(s.t, err)
	return reply
}

// requireHolds requires that each key has two open holds of 30 and 40, with 30 charged without a hold. It settles
// the holds: each gives back as much as it would have at the server that made it.
func (s server) requireHolds() {
	s.t.Helper()
	peerAsks := s.client(3)
	for _, words := range heldLimits {
		list, err := peerAsks.Do(ctx, "CL.HOLDS", words[1]).Slice()
		require.NoError(s.t, err)
		require.Len(s.t, list, 2, "%v", words)
		require.Equal(s.t, []any{"first", int64(30)}, list[0].([]any)[:2], "%v", words)
		require.EqualValues(s.t, -20, s.call(words, 10, "SETTLE", "first")[5], "%v", words)
		require.EqualValues(s.t, 5, s.call(words, 45, "SETTLE", "second")[5], "%v", words)
	}
	require.EqualValues(s.t, 7, s.call([]any{"CL.THROTTLE", "empty", 1000, 1000, 1}, 10, "SETTLE", "first")[5])
}

// A file has the open holds if SAVE has written it, or if export has written it from a folder. import writes the
// holds into a folder. It cannot give them to a server, and says so. redis-server loads such a file.
func TestFilesHaveHolds(t *testing.T) {
	dir := t.TempDir()
	folder, path := filepath.Join(dir, "folder"), filepath.Join(dir, "keys.rdb")
	ours := newOwn(t, "--dir", folder)
	for _, words := range heldLimits {
		ours.call(words, 30, "HOLD", "first", "20m")
		ours.call(words, 40, "HOLD", "second", "30m")
		ours.call(words, 30)
	}
	ours.call([]any{"CL.THROTTLE", "empty", 1000, 1000, 1}, 3, "HOLD", "first", "20m")
	require.Eventually(t, func() bool { return ours.client(3).Exists(ctx, "empty").Val() == 0 },
		patience, time.Millisecond)
	require.NoError(t, ours.client(0).Save(ctx).Err())
	saved := filepath.Join(folder, "dump.rdb")
	require.Contains(t, requireOutput(t, append([]string{"export"}, append(ours.port(), path)...)...),
		"left out: 11 open holds")
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Rename(saved, filepath.Join(dir, "saved.rdb")))
	ours.Signal(os.Interrupt)
	require.Zero(t, ours.Wait())
	requireOutput(t, "export", "--dir", folder, path)
	again := newOwn(t, "--dir", folder)
	again.requireHolds() // the holds in the journal

	for i, file := range []string{path, filepath.Join(dir, "saved.rdb")} {
		copied := filepath.Join(dir, fmt.Sprint("copy", i))
		require.Contains(t, requireOutput(t, "check", file), "and 11 open holds\n")
		require.Contains(t, requireOutput(t, "import", "--dir", copied, file), "and 11 open holds\n")
		require.NotContains(t, requireOutput(t, "import", "--dir", copied, file), "open holds")
		newOwn(t, "--dir", copied).requireHolds()
	}
	to := newOwn(t)
	require.Contains(t, requireOutput(t, append([]string{"import"}, append(to.port(), path)...)...),
		"left out: 11 open holds")
	require.NoError(t, os.Rename(path, filepath.Join(dir, fileName)))
	require.EqualValues(t, 5, start(t, dir)(3).DBSize(ctx).Val())
}
