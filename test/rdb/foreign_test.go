package rdb

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// A cellserver that is started with a redis-server's folder warns, and does not replace the
// redis-server's files, whichever command writes one.
func TestFolderOfRedis(t *testing.T) {
	dir := t.TempDir()
	theirs := newRedis(t, dir)
	require.NoError(t, theirs.client(0).Set(ctx, "key", "value", 0).Err())
	require.NoError(t, theirs.client(0).Save(ctx).Err())
	path := filepath.Join(dir, fileName)
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "appendonlydir"), 0o700))

	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	defer log.Close()
	ours := server{peer.StartLogging(t, log, "--dir", dir, "--dbfilename", fileName), t}
	const refused = "was written by Redis 7.0.15, so it is not replaced: copy its keys with cellserver import, " +
		"and then move it to another folder"
	client := ours.client(0)
	require.ErrorContains(t, client.BgSave(ctx).Err(), refused)
	require.ErrorContains(t, client.Save(ctx).Err(), refused)
	require.ErrorContains(t, client.Do(ctx, "SHUTDOWN", "SAVE").Err(), "ERR Errors trying to SHUTDOWN. Check logs.")
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, before, after)
	lines, err := os.ReadFile(log.Name())
	require.NoError(t, err)
	for _, want := range []string{"a file in the folder is not loaded", "a journal of redis-server is not loaded",
		"an RDB file cannot be written", "SHUTDOWN SAVE is refused", refused} {
		require.Contains(t, string(lines), want)
	}

	requireOutput(t, append([]string{"import", path}, ours.port()...)...)
	require.Equal(t, "value", client.Get(ctx, "key").Val())
	require.NoError(t, os.Rename(path, path+".imported"))
	require.NoError(t, client.Save(ctx).Err())
	require.NoError(t, client.Save(ctx).Err(), "cellserver replaces its own file")
}
