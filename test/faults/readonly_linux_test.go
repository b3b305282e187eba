package faults

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// A folder on a read-only file system, such as the snapshot of a volume, can be checked and exported.
func TestReadOnlyFileSystem(t *testing.T) {
	t.Parallel()
	dir, out := t.TempDir(), t.TempDir()
	server := peer.Start(t, "--dir", dir)
	require.Equal(t, []string{"+OK"}, ask(t, server, "SET key value"))
	server.Signal(syscall.SIGTERM)
	require.Zero(t, server.Wait())
	onReadOnly := func(args ...string) string {
		script := `mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && ! touch "$0/x" 2> /dev/null && exec "$@"`
		cmd := exec.Command("unshare", append([]string{"-rm", "sh", "-c", script, dir}, peer.Command(args...).Args...)...)
		text, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", text)
		return string(text)
	}
	require.Contains(t, onReadOnly("check", dir), "is complete: a server can start with it")
	file := filepath.Join(out, "keys.rdb")
	onReadOnly("export", "--dir", dir, file)
	require.Contains(t, onReadOnly("check", file), "is intact")
	require.NoError(t, os.Remove(filepath.Join(dir, "lock")))
	require.Contains(t, onReadOnly("check", dir), "is complete: a server can start with it")
}
