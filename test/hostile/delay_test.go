package hostile

import (
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"cellserver/internal/racetest"
	"cellserver/test/peer"
)

// processorTime returns the CPU time that a process has used.
func processorTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	var used unix.Timespec
	require.NoError(t, unix.ClockGettime(int32(^pid<<3|2), &used)) // the clock of another process: see clock_getcpuclockid
	return time.Duration(used.Nano())
}

// roundTripsInServer returns the CPU time that a server uses during each of some calls on a connection, sorted.
// Unlike elapsed time, CPU time does not depend on what else the machine does.
func roundTripsInServer(t *testing.T, server *peer.Server, conn net.Conn, calls int) (took []time.Duration) {
	t.Helper()
	for range calls {
		began := processorTime(t, server.PID())
		write(t, conn, []byte("PING\r\n"))
		reads(t, conn, "+PONG\r\n")
		took = append(took, processorTime(t, server.PID())-began)
	}
	slices.Sort(took)
	return took
}

// attackKey is the environment variable that makes this program attack an address instead of running tests. It
// contains the address, a number of connections, and the bytes that each connection sends again and again. See
// attackFrom.
const attackKey = "HOSTILE_ATTACK"

func TestMain(m *testing.M) {
	words := strings.SplitN(os.Getenv(attackKey), " ", 3)
	if len(words) < 3 {
		peer.Main(m)
	}
	conns, _ := strconv.Atoi(words[1])
	knock(&net.Dialer{}, words[0], conns, func(conn net.Conn) {
		go func() { _, _ = io.Copy(io.Discard, conn) }()
		for err := error(nil); err == nil; {
			_, err = io.WriteString(conn, words[2])
		}
	})
	_, _ = io.Copy(io.Discard, os.Stdin) // until attackFrom ends it
}

// attackFrom attacks from another process, which uses one CPU at most and leaves the others to the
// server and the client.
func attackFrom(t *testing.T, addr string, conns int, bytes string) (stop func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", attackKey+"="+addr+" "+strconv.Itoa(conns)+" "+bytes)
	input, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	return func() {
		input.Close()
		_ = cmd.Wait()
	}
}

// TestUnauthenticatedPeersDelayNoClient prints how long a thousand unauthenticated peers delay a client, in the
// server's CPU time: peers that pipeline requests over HTTP, and peers on the client's own port. It does not judge
// these figures; it requires that every call is answered.
func TestUnauthenticatedPeersDelayNoClient(t *testing.T) {
	conns, calls := 1000, 1000
	if racetest.Enabled {
		conns, calls = 100, 100
	}
	args, addr := withHTTP(t, "--http-port")
	server := peer.StartPlain(t, append(args, "--requirepass", "secret", "--loglevel", "nothing")...)
	for _, c := range []struct{ name, addr, bytes string }{
		{"RESP", server.Addr, strings.Repeat("PING\r\n", 100)},
		{"401", addr, strings.Repeat(toCalls("Content-Length: 0\r\n"), 100)},
		{"404", addr, strings.Repeat(toPath("/none"), 100)},
		{"long", addr, fullHeader("")},
	} {
		conn := connect(t, server)
		write(t, conn, Command("AUTH", "secret"))
		reads(t, conn, "+OK\r\n")
		roundTripsInServer(t, server, conn, 100)
		quiet := roundTripsInServer(t, server, conn, calls)
		stop := attackFrom(t, c.addr, conns, c.bytes)
		began := processorTime(t, server.PID())
		until(t, func() bool { return processorTime(t, server.PID())-began > 500*time.Millisecond },
			func() string { return "the attack has begun" })
		took := roundTripsInServer(t, server, conn, calls)
		stop()
		t.Logf("%-5s quiet: p50 %s, p99 %s; beside %d unauthenticated peers: p50 %s, p90 %s, p99 %s, longest %s", c.name,
			quiet[calls/2], quiet[calls*99/100], conns, took[calls/2], took[calls*9/10], took[calls*99/100], took[calls-1])
	}
}
