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

// hammer is a client with a key of its own, from which nothing drips back while the test runs: each
// call that is applied takes one from what remains, and says so.
type hammer struct {
	key          string
	sent, heard  atomic.Int64 // calls written, replies read
	batch, burst int
}

// run calls until the connection ends, which must be between two replies.
func (h *hammer) run(addr string) error {
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
			if over, err := h.hear(r); over || err != nil {
				return err
			}
		}
	}
}

// rest hears what was answered before the connection ended.
func (h *hammer) rest(r *bufio.Reader) error {
	for {
		if over, err := h.hear(r); over || err != nil {
			return err
		}
	}
}

// hear reads one reply: the next, and whole. Or the end, between two.
func (h *hammer) hear(r *bufio.Reader) (over bool, err error) {
	if _, err := r.Peek(1); err != nil {
		return true, unlessGone(err)
	}
	reply, err := transcript.ReadReply(r)
	if err != nil {
		return true, fmt.Errorf("%s: torn reply %d: %w", h.key, h.heard.Load(), err)
	}
	want := fmt.Sprintf("[0, %d, %d, -1, ", h.burst+1, int64(h.burst)-h.heard.Load())
	if !strings.HasPrefix(reply, want) {
		return true, fmt.Errorf("%s: reply %d is %s, not %s", h.key, h.heard.Load(), reply, want)
	}
	h.heard.Add(1)
	return false, nil
}

// The server is told to stop while clients call as fast as they can. Every call that was sent
// before is answered, each was applied once, no reply is torn.
func TestStopUnderLoad(t *testing.T) {
	for round := range 3 {
		server := tolerant(t)
		var hammers []*hammer
		var running sync.WaitGroup
		errs := make(chan error, 40)
		for i := range cap(errs) {
			h := &hammer{key: fmt.Sprint("key", i), batch: 1 + i%4*15, burst: 1_000_000}
			hammers = append(hammers, h)
			running.Go(func() { errs <- h.run(server.Addr) })
		}
		until(t, func() bool { return heardAll(hammers, 20) }, func() string { return "everybody is served" })
		sent := make([]int64, len(hammers))
		for i, h := range hammers {
			sent[i] = h.sent.Load()
		}
		server.Signal(syscall.SIGTERM)
		assert.Zero(t, server.Wait())
		running.Wait()
		close(errs)
		for err := range errs {
			assert.NoError(t, err)
		}
		for i, h := range hammers {
			require.GreaterOrEqual(t, h.heard.Load(), sent[i], "round %d, %s: calls sent before the signal are answered", round,
				h.key)
		}
	}
}

func heardAll(hammers []*hammer, calls int64) bool {
	for _, h := range hammers {
		if h.heard.Load() < calls {
			return false
		}
	}
	return true
}

// slowReader is owed far more than sockets hold, and reads none of it.
func slowReader(t *testing.T, server *peer.Server) *peer.Conn {
	t.Helper()
	store(t, server, 10_000, strings.Repeat("long", 25))
	conn := connect(t, server)
	require.NoError(t, conn.SetReadBuffer(4096))
	write(t, conn, []byte(strings.Repeat("KEYS *\r\n", 40)))
	reads(t, conn, "*10000\r\n")
	return conn
}

func deaf(server *peer.Server) bool {
	conn, err := net.Dial("tcp", server.Addr)
	if err == nil {
		conn.Close()
	}
	return err != nil
}

// Who does not read holds a stop up for as long as the operator allows, and a second signal ends
// the wait.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	server := tolerant(t, "--shutdown-timeout", "3600")
	slowReader(t, server)
	server.Signal(syscall.SIGTERM)
	until(t, func() bool { return deaf(server) }, func() string { return "it no longer listens" })
	server.Signal(syscall.SIGTERM) // it still runs, or this fails
	assert.Equal(t, -1, server.Wait(), "ended by the signal, long before the time-out")
}

func TestStopDoesNotWaitForEver(t *testing.T) {
	server := tolerant(t, "--shutdown-timeout", "1")
	slowReader(t, server)
	start := time.Now()
	server.Signal(syscall.SIGTERM)
	assert.Zero(t, server.Wait())
	assert.GreaterOrEqual(t, time.Since(start), time.Second)
}

// Who reads late, but reads, gets everything that it asked for.
func TestStopWaitsForALateReader(t *testing.T) {
	const keys, times = 10_000, 20
	server := tolerant(t)
	store(t, server, keys, strings.Repeat("long", 25))
	conn := connect(t, server)
	write(t, conn, []byte(strings.Repeat("KEYS *\r\n", times)))
	reads(t, conn, fmt.Sprintf("*%d\r\n", keys))
	server.Signal(syscall.SIGTERM)
	until(t, func() bool { return deaf(server) }, func() string { return "it no longer listens" })
	rest, err := io.ReadAll(conn)
	require.NoError(t, err)
	assert.Equal(t, times-1, strings.Count(string(rest), fmt.Sprintf("*%d\r\n", keys)))
	assert.Equal(t, times*keys, strings.Count(string(rest), "\r\nlong"))
	assert.Zero(t, server.Wait())
}
