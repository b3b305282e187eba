package hostile

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/transcript"
	"cellserver/test/peer"
)

// caller is a client with a key of its own, whose quota does not recover while the test runs: each
// call that is applied takes one token, and replies how many are left.
type caller struct {
	key            string
	sent, received atomic.Int64 // calls written, replies read
	batch, burst   int
}

// run makes calls until the connection ends, which must be between two replies.
func (h *caller) run(addr string) error {
	conn, err := dial(addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	var calls []byte
	for range h.batch {
		calls = append(calls, Command("CL.THROTTLE", h.key, fmt.Sprint(h.burst), "1", "1000")...)
	}
	r := bufio.NewReader(conn)
	for {
		if _, err := conn.Write(calls); err != nil {
			return h.rest(r)
		}
		h.sent.Add(int64(h.batch))
		for range h.batch {
			if over, err := h.receive(r); over || err != nil {
				return err
			}
		}
	}
}

// rest reads the replies that were sent before the connection ended.
func (h *caller) rest(r *bufio.Reader) error {
	for {
		if over, err := h.receive(r); over || err != nil {
			return err
		}
	}
}

// receive reads the next reply, which must be whole, or the end of the connection between two
// replies.
func (h *caller) receive(r *bufio.Reader) (over bool, err error) {
	if _, err := r.Peek(1); err != nil {
		return true, unlessReset(err)
	}
	reply, err := transcript.ReadReply(r)
	if err != nil {
		return true, fmt.Errorf("%s: torn reply %d: %w", h.key, h.received.Load(), err)
	}
	want := fmt.Sprintf("[0, %d, %d, -1, ", h.burst+1, int64(h.burst)-h.received.Load())
	if !strings.HasPrefix(reply, want) {
		return true, fmt.Errorf("%s: reply %d is %s, not %s", h.key, h.received.Load(), reply, want)
	}
	h.received.Add(1)
	return false, nil
}

// The server is told to stop while clients call as fast as they can. Every call that was sent
// before is answered and was applied once, and no reply is torn.
func TestStopUnderLoad(t *testing.T) {
	for round := range 3 {
		server := startLogging(t, "--shutdown-timeout", "3600")
		var callers []*caller
		var running sync.WaitGroup
		errs := make(chan error, 40)
		for i := range cap(errs) {
			h := &caller{key: fmt.Sprint("key", i), batch: 1 + i%4*15, burst: 1_000_000}
			callers = append(callers, h)
			running.Go(func() { errs <- h.run(server.Addr) })
		}
		until(t, func() bool { return receivedAll(callers, 20) }, func() string { return "a client was not served" })
		sent := make([]int64, len(callers))
		for i, h := range callers {
			sent[i] = h.sent.Load()
		}
		server.Signal(syscall.SIGTERM)
		assert.Zero(t, server.Wait())
		running.Wait()
		close(errs)
		for err := range errs {
			assert.NoError(t, err)
		}
		for i, h := range callers {
			require.GreaterOrEqual(t, h.received.Load(), sent[i], "round %d, %s: calls sent before the signal are answered", round,
				h.key)
		}
	}
}

func receivedAll(callers []*caller, calls int64) bool {
	for _, h := range callers {
		if h.received.Load() < calls {
			return false
		}
	}
	return true
}

// slowReader returns a client that has requested far more than sockets hold, and reads nothing.
func slowReader(t *testing.T, server *peer.Server) *peer.Conn {
	t.Helper()
	store(t, server, 10_000, strings.Repeat("long", 25))
	conn := connect(t, server)
	require.NoError(t, conn.SetReadBuffer(4096))
	write(t, conn, []byte(strings.Repeat("KEYS *\r\n", 40)))
	reads(t, conn, "*10000\r\n")
	return conn
}

func isNotAccepting(server *peer.Server) bool {
	conn, err := net.Dial("tcp", server.Addr)
	if err == nil {
		conn.Close()
	}
	return err != nil
}

// A client that does not read delays a stop for as long as --shutdown-timeout allows. A second
// signal ends the wait.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	server := startLogging(t, "--shutdown-timeout", "3600")
	slowReader(t, server)
	server.Signal(syscall.SIGTERM)
	until(t, func() bool { return isNotAccepting(server) }, func() string { return "the server no longer listens" })
	server.Signal(syscall.SIGTERM) // fails unless the server is still running
	assert.Equal(t, -1, server.Wait(), "the signal must end the server, long before the timeout")
}

func TestStopDoesNotWaitForEver(t *testing.T) {
	server := startLogging(t, "--shutdown-timeout", "1")
	slowReader(t, server)
	start := time.Now()
	server.Signal(syscall.SIGTERM)
	assert.Zero(t, server.Wait())
	assert.GreaterOrEqual(t, time.Since(start), time.Second)
}

// A client that reads late receives everything that it has requested.
func TestLateReaderReceivesAllBeforeTheStop(t *testing.T) {
	const keys, times = 10_000, 20
	server := startLogging(t, "--shutdown-timeout", "3600")
	store(t, server, keys, strings.Repeat("long", 25))
	conn := connect(t, server)
	write(t, conn, []byte(strings.Repeat("KEYS *\r\n", times)))
	reads(t, conn, fmt.Sprintf("*%d\r\n", keys))
	server.Signal(syscall.SIGTERM)
	until(t, func() bool { return isNotAccepting(server) }, func() string { return "the server no longer listens" })
	rest, err := io.ReadAll(conn)
	require.NoError(t, err)
	assert.Equal(t, times-1, strings.Count(string(rest), fmt.Sprintf("*%d\r\n", keys)))
	assert.Equal(t, times*keys, strings.Count(string(rest), "\r\nlong"))
	assert.Zero(t, server.Wait())
}
