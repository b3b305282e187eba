package peer

import (
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// While a server has not yet opened its port, the system gives the port to no other process, and FreePort does
// not return it again.
func TestFreePortIsKept(t *testing.T) {
	end := endOfPorts()
	if end <= firstPort {
		return // the system may give any port to others
	}
	seen := map[int]bool{}
	for range 500 {
		port := FreePort(t)
		assert.Less(t, port, end, "a connection may have this port at any moment")
		assert.False(t, seen[port], "returned twice: %d", port)
		seen[port] = true
	}
}

// A port on which a process listens is not free.
func TestFreePortIsFree(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	require.Zero(t, listens(t, l.Addr().String()))
}

func TestExpectedWarnings(t *testing.T) {
	const at = "time=2026-11-23T13:40:46.854Z level=WARN "
	planted := at + `msg="store: no connection" address=127.0.0.1:19583 error="connection refused"` + "\n"
	require.Equal(t, planted, withoutExpected(
		at+`msg="store: no connection" address=127.0.0.1:19583 error="context deadline exceeded"`+"\n"+planted+
			at+`msg="maxmemory is exceeded" used=1`+"\n"))
}
