package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// startOnSmallDisk starts a server whose folder is a file system of 1 MiB that only this process
// sees, mostly filled by one file. free removes that file.
func startOnSmallDisk(t *testing.T) (server *peer.Server, free func()) {
	t.Helper()
	dir, number := t.TempDir(), strconv.Itoa(peer.FreePort(t))
	cmd := peer.Command("--dir", dir, "--port", number, "--bind", "127.0.0.1", "--loglevel", "nothing")
	script := `mount -t tmpfs -o size=1m none "$0" && head -c 900k /dev/zero >"$0/filler" && exec "$@"`
	cmd.Args = append([]string{"sh", "-c", script, dir, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	server = peer.Launch(t, cmd)
	server.Addr = "127.0.0.1:" + number
	require.Eventually(t, server.Answers, patience, tick,
		"this needs root, or user namespaces: %s", server.Stderr())
	return server, func() {
		require.NoError(t, os.Remove(filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid), "root", dir, "filler")))
	}
}

// When the disk is full, all calls are answered, and limits are applied; with
// stop-writes-on-bgsave-error, calls that may write are refused instead. When there is space again,
// the server writes everything that has changed meanwhile.
func TestFullFolder(t *testing.T) {
	server, free := startOnSmallDisk(t)
	const keys = 30 // 300 kB, which fit only without the filler
	for i := range keys {
		exchange(t, server, command("SET", fmt.Sprint("k", i), strings.Repeat("x", 10_000)))
	}
	require.Eventually(t, func() bool { return field(t, server, "journal_failing_since") != 0 }, patience, tick)
	decisions := exchange(t, server, command("CL.FIXED", "a", "1", "1000"), command("CL.FIXED", "a", "1", "1000"))
	require.Regexp(t, `^\*5\r\n:0\r\n(.*\r\n){4}\*5\r\n:1\r\n(.*\r\n){4}$`, decisions, "allowed, then limited")
	require.Contains(t, exchange(t, server, command("INFO", "persistence")), "\r\njournal_failure:")
	require.Equal(t, "+OK\r\n", exchange(t, server, command("CONFIG", "SET", "stop-writes-on-bgsave-error", "yes")))
	require.Contains(t, exchange(t, server, command("CL.FIXED", "b", "1", "1000")), "-MISCONF ")
	require.Contains(t, exchange(t, server, command("PING")), "-MISCONF ")
	require.Equal(t, "$10000\r\n", exchange(t, server, command("GET", "k0"))[:8])

	free()
	require.Eventually(t, func() bool { return field(t, server, "journal_failing_since") == 0 }, patience, tick)
	require.Eventually(t, func() bool { return exchange(t, server, command("PING")) == "+PONG\r\n" }, patience, tick)
	server.Signal(syscall.SIGTERM)
	require.Zero(t, server.Wait())
}
