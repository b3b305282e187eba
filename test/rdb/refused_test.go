package rdb

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/rdb"
	"cellserver/test/peer"
)

// A server closes the connection after an argument longer than proto-max-bulk-len, which is 512 MB
// in Redis and less here. Such values are left out, and all other values arrive.
func TestLongValuesAreLeftOut(t *testing.T) {
	theirs, ours := newRedis(t, t.TempDir()), newOwn(t, "--proto-max-bulk-len", "1kb")
	from := theirs.client(0)
	for i := range 100 {
		require.NoError(t, from.Set(ctx, fmt.Sprint("short", i), "v", 0).Err())
	}
	require.NoError(t, from.Set(ctx, "long", strings.Repeat("v", 1024), 0).Err())
	require.NoError(t, from.Set(ctx, strings.Repeat("k", 1025), "v", 0).Err())
	out := requireOutput(t, append([]string{"import", theirs.url()}, ours.port()...)...)
	require.Contains(t, out, "imported 100 keys: ")
	require.Contains(t, out, "left out: 2 keys, longer than the server's proto-max-bulk-len of 1024 bytes: ")
	require.Equal(t, int64(100), ours.client(0).DBSize(ctx).Val())
}

// import does not write values into a folder that a server would refuse.
func TestBoundsOfAFolder(t *testing.T) {
	dir := t.TempDir()
	folder, path := filepath.Join(dir, "folder"), filepath.Join(dir, fileName)
	keys := contents{0: {
		"k": {"v", rdb.Never}, strings.Repeat("k", 65537): {"v", rdb.Never}, "long": {strings.Repeat("v", 2048), rdb.Never},
	}}
	require.NoError(t, os.WriteFile(path, keys.file(t), 0o600))
	out := requireOutput(t, "import", "--dir", folder, "--proto-max-bulk-len", "2047", path)
	require.Contains(t, out, "imported 1 keys: ")
	require.Contains(t, out, "left out: 1 keys, longer than --max-key-size 65536: ")
	require.Contains(t, out, "left out: 1 keys, whose values are longer than --proto-max-bulk-len 2047: \"long\"")
	out = requireOutput(t, "import", "--dir", folder, "--max-key-size", "70000", path)
	require.Contains(t, out, "imported 2 keys: ")
	require.Contains(t, out, "1 keys were there already, with the same content")
}

// Files that are no backups are refused as such, and nothing blocks.
func TestWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	empty, text, pipe, link := filepath.Join(dir, "empty"), filepath.Join(dir, "text"), filepath.Join(dir, "pipe"),
		filepath.Join(dir, "link")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	require.NoError(t, os.WriteFile(text, []byte("not a backup"), 0o600))
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	require.NoError(t, os.Symlink(filepath.Join(dir, "nowhere"), link))
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"check", empty}, "unexpected EOF"},
		{[]string{"check", text}, "this is not an RDB file"},
		{[]string{"check", pipe}, "is not a regular file"},
		{[]string{"check", dir}, "is not a folder of cellserver"},
		{[]string{"import", pipe}, "is not a regular file"},
		{[]string{"export", "--dir", dir, filepath.Join(dir, "new")}, "is not a folder of cellserver"},
		{[]string{"export", "--replace", pipe}, "is not a regular file, and is not replaced"},
		{[]string{"export", link}, "exists"},
		{[]string{"export", "--replace", link}, "no such file"},
		{[]string{"export", ""}, "the name of the file is empty"},
	} {
		stdout, stderr, status := subcommand(t, c.args...)
		require.Equal(t, 1, status, "%v: %s", c.args, stdout)
		require.Contains(t, stderr, c.says)
		require.Empty(t, stdout)
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 4)
}

// If the output is a link, export replaces the file that the link leads to. A database that does
// not exist is an error.
func TestReplaceBehindALink(t *testing.T) {
	ours, dir := newOwn(t, "--databases", "2"), t.TempDir()
	link, target := filepath.Join(dir, "link"), filepath.Join(dir, "target")
	require.NoError(t, os.WriteFile(target, nil, 0o600))
	require.NoError(t, os.Symlink(target, link))
	requireOutput(t, append([]string{"export", "--replace", link}, ours.port()...)...)
	requireOutput(t, "check", target)
	got, err := os.Readlink(link)
	require.NoError(t, err)
	require.Equal(t, target, got)
	_, stderr, status := subcommand(t, append([]string{"import", ours.url() + "/2"}, ours.port()...)...)
	require.Equal(t, 1, status)
	require.Contains(t, stderr, "DB index is out of range")
}

// An export that a signal ends leaves no part of a file.
func TestExportIsInterrupted(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		dir := t.TempDir()
		_, port, _ := net.SplitHostPort(silent.Addr().String())
		cmd := peer.Command("export", "-p", port, filepath.Join(dir, "keys.rdb"))
		require.NoError(t, cmd.Start())
		conn, err := silent.Accept() // the file has been created before
		require.NoError(t, err)
		defer conn.Close()
		files, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, files, 1)
		require.NoError(t, cmd.Process.Signal(s))
		tooLate := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // ProcessState has the exit status
		tooLate.Stop()
		require.Equal(t, s, cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
		files, err = os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, files)
	}
}
