package persist

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/journal"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store/memory"
	"cellserver/internal/window"
)

// oldFolder returns a copy of testdata/version1: a folder that a server wrote before segments were
// linked. It has a snapshot, a segment that ends where the server was killed, with a delta of a long log,
// and a segment that ends with a shutdown.
func oldFolder(t *testing.T) string {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("testdata/version1")))
	return dir
}

// requireOldKeys compares the keys of oldFolder. Its limits last for ten years.
func requireOldKeys(t *testing.T, data *memory.Store) {
	v := data.View()
	v.Begin()
	for key, want := range map[string]string{"text": "of version 1", "number": "43", "late": "x", "again": "y"} {
		value, _, err := v.Read(ctx, []byte(key), nil)
		require.NoError(t, err)
		require.Equal(t, want, string(value), key)
	}
	fixed, err := window.NewLimit(100, 315360000)
	require.NoError(t, err)
	log, err := window.NewLogLimit(1000, 315360000, 1000)
	require.NoError(t, err)
	for key, rule := range map[string]limit.Rule{
		"fixed": {Kind: limit.Fixed, Window: fixed}, "log": {Kind: limit.SlidingLog, Log: log},
	} {
		d, err := v.Take(ctx, []byte(key), &rule, 0, quota.Peek)
		require.NoError(t, err)
		require.Equal(t, map[string]int64{"fixed": 90, "log": 680}[key], d.Remaining, key)
	}
	v.Select(3)
	value, _, err := v.Read(ctx, []byte("other"), nil)
	require.NoError(t, err)
	require.Equal(t, "db3", string(value))
}

// A folder of version 1 of the format is loaded, and continued with segments of version 2.
func TestFolderOfVersion1(t *testing.T) {
	dir := oldFolder(t)
	for range 2 {
		f, data := openReal(t, dir)
		requireOldKeys(t, data)
		require.NoError(t, f.Close())
	}
	headers := map[string]int{}
	for _, name := range []string{"journal-0000000002", "journal-0000000003", "journal-0000000004", "journal-0000000005"} {
		file, err := os.Open(filepath.Join(dir, name))
		require.NoError(t, err)
		defer file.Close()
		h, _, _, err := journal.ReadHeader(file, 200)
		require.NoError(t, err)
		headers[name] = h.Version
	}
	require.Equal(t, map[string]int{"journal-0000000002": 1, "journal-0000000003": 1, "journal-0000000004": 2,
		"journal-0000000005": 2}, headers)

	f, data := openReal(t, dir)
	require.NoError(t, f.Compact())
	for f.Status().Journal.BaseSize == 0 || f.Status().Journal.Compacting {
		require.NoError(t, f.Flush())
	}
	requireOldKeys(t, data)
	require.NoError(t, f.Close())
	_, data = openReal(t, dir)
	requireOldKeys(t, data)
}
