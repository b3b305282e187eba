package faults

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// When a suspended server continues, its limits have recovered for the time of the suspension. The server loses no
// step that was promised. While it is suspended, no other server can use its folder.
func TestSuspended(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := newLoad(t)
	l.gentle = true
	server := peer.Start(t, "--dir", dir)
	ask(t, server, "CL.THROTTLE tokens 99 10 1 100") // ten tokens come back each second
	l.run(server)
	l.awaitPasses(1)
	server.Signal(syscall.SIGSTOP)
	before := now()
	for range amount(1, 3) {
		other := peer.Launch(t, peer.Command("--dir", dir, "--dir-wait", strconv.Itoa(amount(2, 20)), "--port", "0",
			"--unixsocket", dir+"/socket"))
		require.Equal(t, 1, other.Wait())
		require.Contains(t, other.Stderr(), fmt.Sprintf("%s is in use by process %s", dir, holderOf(t, dir)))
	}
	suspended := now() - before
	server.Signal(syscall.SIGCONT)
	l.awaitSteps(1000)
	l.awaitPasses(1)
	remaining := number(strings.Split(ask(t, server, "CL.THROTTLE tokens 99 10 1 0")[0], ", ")[2])
	assert.GreaterOrEqual(t, remaining, min(int(10*suspended/time.Second), 100))
	l.verifyAfter(l.kill(server), dir, "tokens")
}

// verifyAfter starts a server on a folder and checks it, without some keys.
func (l *load) verifyAfter(promised time.Duration, dir string, without string) {
	l.t.Helper()
	server := peer.Start(l.t, "--dir", dir, "--loglevel", "nothing")
	ask(l.t, server, "DEL "+without)
	l.verify(server, promised)
}

// A server that waits for another server's folder starts when the other server ends for any reason,
// and has all steps that were promised.
func TestTakesOver(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := newLoad(t)
	l.gentle = true
	server := peer.Start(t, "--dir", dir)
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL, syscall.SIGTERM} {
		port := peer.FreePort(t)
		next := peer.Launch(t, peer.Command("--dir", dir, "--port", strconv.Itoa(port), "--bind", "127.0.0.1"))
		next.Addr = fmt.Sprint("127.0.0.1:", port)
		await(t, func() bool {
			return strings.Contains(next.Stderr(), "waiting for another process that uses the folder")
		})
		require.Contains(t, next.Stderr(), fmt.Sprintf("process %s on host", holderOf(t, dir)))
		l.run(server)
		l.awaitPasses(1)
		require.NotContains(t, next.Log(), peer.Ready)
		promised := always
		if signal == syscall.SIGTERM {
			l.terminate(server)
		} else {
			promised = l.kill(server)
		}
		await(t, func() bool { return strings.Contains(next.Log(), peer.Ready) })
		l.verify(next, promised)
		server = next
	}
	server.Signal(syscall.SIGTERM)
	require.Zero(t, server.Wait())
}

// holderOf returns the process ID in the lock file of a folder.
func holderOf(t *testing.T, dir string) string {
	text, err := os.ReadFile(dir + "/lock")
	require.NoError(t, err)
	words := strings.Fields(string(text))
	require.Greater(t, len(words), 2)
	return words[1]
}
