package peer

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// The ports of FreePort begin here, if the system does not give them to others.
const firstPort = 16384

// FreePort returns a port on which no process listens. Until the test ends, no other call returns the port, in
// this process or in another. Nor does the system give it to a connection, or to a listener on any port, so it
// is still free when the server starts to listen.
func FreePort(t *testing.T) int {
	t.Helper()
	end := endOfPorts()
	if end <= firstPort { // nothing better is possible on this system
		port := listens(t, "127.0.0.1:0")
		require.NotZero(t, port)
		return port
	}
	for range 1000 {
		port := firstPort + rand.IntN(end-firstPort)
		held, err := net.ListenPacket("unixgram", fmt.Sprint("@cellserver-test-port-", port)) // it has no file
		if err != nil {
			continue // another call has it
		}
		if listens(t, fmt.Sprint(":", port)) == 0 {
			held.Close()
			continue
		}
		t.Cleanup(func() { held.Close() })
		return port
	}
	require.Fail(t, "no free port")
	return 0
}

// listens listens on an address for a moment, and returns the port, or 0 if another process listens there.
func listens(t *testing.T, address string) int {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return 0
	}
	require.NoError(t, l.Close())
	return l.Addr().(*net.TCPAddr).Port
}

// endOfPorts returns the first of the ports that the system gives to connections, and to listeners on any
// port. It returns 0 on systems other than Linux, which do not have this file.
func endOfPorts() (first int) {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return 0
	}
	if _, err := fmt.Sscan(string(text), &first); err != nil {
		return 0
	}
	return first
}
