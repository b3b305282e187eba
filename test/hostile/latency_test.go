package hostile

import (
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// A client measures its own round trips while another misbehaves, beside a quiet run. The figures are printed, not judged:
// machines differ. That all calls are answered, and rightly, is.
func TestOthersGoOn(t *testing.T) {
	calls, keys := 1000, 200_000
	if peer.Race {
		calls, keys = 100, 20_000
	}
	server := tolerant(t)
	store(t, server, keys, "key")
	for i, run := range []struct {
		name   string
		attack func(conn net.Conn) error
	}{
		{"nothing", nil},
		{"pipelines of INFO", repeated(strings.Repeat("INFO\r\n", 100))},
		{"pipelines of COMMAND DOCS", repeated(strings.Repeat("COMMAND DOCS\r\n", 100))},
		{"ECHO of 1 MiB", repeated(string(Command("ECHO", strings.Repeat("x", 1<<20))))},
		{"replies that nobody reads", func(conn net.Conn) error {
			pour(conn, 64<<20)
			_, err := conn.Read(make([]byte, 1)) // until the end of the run, if it lets us
			return err
		}},
		{fmt.Sprintf("KEYS * on %d keys", keys), repeated(strings.Repeat("KEYS *\r\n", 4))},
		{"nothing again", nil},
	} {
		stop := attackWith(t, server, run.attack)
		h := victim(t, server, fmt.Sprint("victim", i), calls)
		stop()
		t.Logf("beside %-26s p50 %-10s p99 %-10s longest %s", run.name+":", h[len(h)/2], h[len(h)*99/100], h[len(h)-1])
	}
}

// repeated sends something again and again, and reads what is answered.
func repeated(what string) func(conn net.Conn) error {
	return func(conn net.Conn) error {
		go func() { _, _ = io.Copy(io.Discard, conn) }()
		for {
			if _, err := io.WriteString(conn, what); err != nil {
				return err
			}
		}
	}
}

// attackWith runs an attack on two connections until stopped.
func attackWith(t *testing.T, server *peer.Server, attack func(conn net.Conn) error) (stop func()) {
	var running sync.WaitGroup
	var conns []net.Conn
	for range 2 {
		if attack == nil {
			break
		}
		conn := connect(t, server)
		conns = append(conns, conn)
		running.Go(func() { _ = attack(conn) }) // it ends when the connection does
	}
	return func() {
		for _, conn := range conns {
			conn.Close()
		}
		running.Wait()
	}
}

// victim makes calls one by one, and returns how long each took, the shortest first.
func victim(t *testing.T, server *peer.Server, key string, calls int) (took []time.Duration) {
	t.Helper()
	conn := connect(t, server)
	call := Command("CL.THROTTLE", key, "100000", "1", "1000")
	for i := range calls {
		start := time.Now()
		write(t, conn, call)
		reads(t, conn, fmt.Sprintf("*5\r\n:0\r\n:100001\r\n:%d\r\n:-1\r\n:", 100_000-i))
		b := []byte{0}
		for b[0] != '\n' {
			_, err := conn.Read(b)
			require.NoError(t, err)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return took
}
