package persist

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/rdb"
)

// rdbFile returns an RDB file with fields, given as names and values.
func rdbFile(t *testing.T, fields ...string) []byte {
	var file bytes.Buffer
	w := rdb.NewWriter(&file)
	for i := 0; i < len(fields); i += 2 {
		require.NoError(t, w.Field(fields[i], fields[i+1]))
	}
	require.NoError(t, w.Database(0, 1, 0))
	require.NoError(t, w.Bytes([]byte("key"), bytes.Repeat([]byte("x"), 10_000), rdb.Never))
	require.NoError(t, w.Close())
	return file.Bytes()
}

// A file that this folder's server has not written is not replaced, and the error says what to do.
func TestForeignFileIsNotReplaced(t *testing.T) {
	dir := t.TempDir()
	f, data := openReal(t, dir)
	fill(t, data)
	path := filepath.Join(dir, "dump.rdb")
	for writer, file := range map[string][]byte{
		"Redis 7.0.15":                     rdbFile(t, "redis-ver", "7.0.15", "redis-bits", "64", "ctime", "1"),
		"Valkey 8.1.0":                     rdbFile(t, "valkey-ver", "8.1.0", "redis-bits", "64", "ctime", "1"),
		"a cellserver with another folder": rdbFile(t, "redis-bits", "64", "ctime", "1", folderField, "00000000000000aa"),
		"another program":                  []byte("notes"),
	} {
		require.NoError(t, os.WriteFile(path, file, 0o600))
		want := path + " was written by " + writer + ", so it is not replaced: copy its keys with cellserver import, " +
			"and then move it to another folder; or give dbfilename another name"
		require.EqualError(t, f.SaveRDB("dump.rdb"), want)
		require.EqualError(t, f.BeginSaveRDB("dump.rdb"), want)
		require.True(t, f.Status().RDB.LastSaveFailed)
		require.False(t, f.Status().RDB.Saving)
		left, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, file, left)
	}
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Symlink("elsewhere", path))
	require.ErrorContains(t, f.SaveRDB("dump.rdb"), "files of the folder cannot be links")
}

// The server's own file is replaced, also after a restart, and also if an earlier version has written
// it. An empty file is replaced too.
func TestOwnFileIsReplaced(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "dump.rdb")
	for _, file := range [][]byte{nil, rdbFile(t, "redis-bits", "64", "ctime", "1")} {
		require.NoError(t, os.WriteFile(path, file, 0o600))
		f, _ := openReal(t, dir)
		for range 2 {
			require.NoError(t, f.SaveRDB("dump.rdb"))
		}
		require.NoError(t, f.Close())
		f, _ = openReal(t, dir)
		require.NoError(t, f.SaveRDB("dump.rdb"))
		require.NoError(t, f.Close())
	}
}

// A file that is put there while another is written is not replaced either.
func TestForeignFileMeanwhile(t *testing.T) {
	dir := t.TempDir()
	f, _ := openReal(t, dir)
	f.files = appearing{f.files, filepath.Join(dir, "dump.rdb")}
	require.ErrorContains(t, f.SaveRDB("dump.rdb"), "was written by another program")
	require.NotContains(t, listDirectory(t, dir), rdbName)
}

// appearing is a folder in which a file appears while another file is created.
type appearing struct {
	files
	path string
}

func (a appearing) create(name string) (file, error) {
	if err := os.WriteFile(a.path, []byte("notes"), 0o600); err != nil {
		return nil, err
	}
	return a.files.create(name)
}

// A folder is not used if another program has written its lock file. The error about a file that
// cannot be opened names a remedy.
func TestForeignLock(t *testing.T) {
	dir := t.TempDir()
	lock := filepath.Join(dir, lockName)
	require.NoError(t, os.WriteFile(lock, []byte("notes"), 0o600))
	_, err := Open(ctx, dir, Options{})
	require.EqualError(t, err, lock+" was not written by cellserver: move it to another folder, or choose another folder")
	require.NoError(t, os.Remove(lock))
	require.NoError(t, os.Mkdir(filepath.Join(dir, segmentName(1)), 0o700))
	_, err = Open(ctx, dir, Options{})
	require.ErrorContains(t, err, "it is not a regular file: move it to another folder; files of the folder cannot be links")
	require.ErrorContains(t, withRemedy(os.ErrPermission), "let the user of the server own the folder")
}
