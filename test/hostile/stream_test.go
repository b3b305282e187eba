package hostile

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/racetest"
	"cellserver/test/peer"
)

// These tests send invalid bytes. The server answers or disconnects, and serves all other clients
// as before.

// together runs each for all numbers below n in a few goroutines, and returns the first error.
func together(n int, each func(i int) error) error {
	const hands = 4
	var next atomic.Int64
	var running sync.WaitGroup
	errs := make(chan error, hands)
	for range hands {
		running.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := each(i); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	running.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

// allRows returns a call of each command, in turn as an array and as an inline line. It leaves out
// commands that end the server.
func allRows(w *watcher) (rows [][]byte) {
	names, err := w.CommandList(w.ctx, nil).Result()
	require.NoError(w.t, err)
	require.Greater(w.t, len(names), 20)
	slices.Sort(names)
	for i, name := range names {
		words := append(strings.Split(name, "|"), []string{"k", "15", "30", "60"}[:i%5]...)
		switch {
		case slices.Contains([]string{"shutdown", "debug", "quit"}, words[0]):
		case i%2 == 0:
			rows = append(rows, Command(words...))
		default:
			rows = append(rows, []byte(strings.Join(words, " ")+"\r\n"))
		}
	}
	return append(rows, []byte("QUIT\r\nPING\r\n"))
}

// prefixes returns truncated streams. Of a stream with every form of calls, it returns all prefixes. Of the stream
// of the calls of all commands, it returns for each prefix only the last call, which is truncated, and the call
// before it, so that the time is linear.
func prefixes(w *watcher) (all [][]byte) {
	for b := valid(); len(b) > 0; b = b[:len(b)-1] {
		all = append(all, b)
	}
	before := []byte{}
	for _, row := range allRows(w) {
		for n := range row {
			all = append(all, slices.Concat(before, row[:n+1]))
		}
		before = row
	}
	return all
}

// A stream is truncated at each byte, by a close, by a reset, or by closing one direction.
func TestEveryPrefix(t *testing.T) {
	server := startLogging(t)
	w := watch(t, server)
	all := prefixes(w)
	step := 1
	if racetest.Enabled {
		step = 3
	}
	if server.TLS != nil {
		step *= 7 // the calls are the same, and three handshakes for each prefix take most of the time
	}
	require.NoError(t, together(len(all)/step, func(i int) error {
		prefix := all[i*step]
		for _, reset := range []bool{true, false} {
			conn, err := dial(server.Addr)
			if err != nil {
				return err
			}
			if _, err = conn.Write(prefix); err != nil {
				return err
			}
			if reset {
				_ = conn.SetLinger(0)
			}
			conn.Close()
		}
		conn, err := dial(server.Addr)
		if err != nil {
			return err
		}
		_, err = answers(conn, prefix)
		return err
	}))
	w.becomes("connected_clients", 1)
}

// Each byte of a stream is replaced by each other byte. The test uses a Unix socket, because there
// are not enough ports.
func TestEveryByteChanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	server := startLogging(t, "--unixsocket", path)
	w := watch(t, server)
	b := valid()
	step := 1
	if racetest.Enabled {
		step = 7 // coprime to 256, so that the values differ at each place
	}
	var answered, refused atomic.Int64
	require.NoError(t, together(len(b)*256/step, func(i int) error {
		place, value := i*step/256, byte(i*step%256)
		sent := slices.Clone(b)
		sent[place] = value
		conn, err := net.Dial("unix", path)
		if err != nil {
			return err
		}
		replies, err := answers(conn.(*net.UnixConn), sent)
		if len(replies) > 0 && strings.Contains(replies[len(replies)-1], "ERR Protocol error") {
			refused.Add(1)
		} else {
			answered.Add(1)
		}
		if err != nil {
			return fmt.Errorf("byte %d is %q: %w", place, value, err)
		}
		return nil
	}))
	t.Logf("%d streams: %d answered to the end, %d refused", len(b)*256/step, answered.Load(), refused.Load())
	assert.Greater(t, refused.Load(), int64(1000))
	assert.Greater(t, answered.Load(), int64(1000))
	w.becomes("connected_clients", 1)
}

func TestFalseLengths(t *testing.T) {
	server := peer.Start(t)
	for call, want := range map[string]string{
		"*1\r\n$9223372036854775807\r\nabc\r\n":  "-ERR Protocol error: invalid bulk length\r\n",
		"*1\r\n$-5\r\nabc\r\n":                   "-ERR Protocol error: invalid bulk length\r\n",
		"*1\r\n$99999999999999999999\r\nabc\r\n": "-ERR Protocol error: invalid bulk length\r\n",
		"*9223372036854775807\r\n":               "-ERR Protocol error: invalid multibulk length\r\n",
		"*99999999999999999999\r\n":              "-ERR Protocol error: invalid multibulk length\r\n",
		"*2147483648\r\n$4\r\nPING\r\n":          "-ERR Protocol error: invalid multibulk length\r\n",
		"*+1\r\n$4\r\nPING\r\n":                  "-ERR Protocol error: invalid multibulk length\r\n",
		"*01\r\n$4\r\nPING\r\n":                  "-ERR Protocol error: invalid multibulk length\r\n",
		"*1\r\nfour\r\nPING\r\n":                 "-ERR Protocol error: expected '$', got 'f'\r\n",
	} {
		conn := connect(t, server)
		write(t, conn, []byte(call))
		ends(t, conn, want)
	}
	conn := connect(t, server)
	write(t, conn, []byte("*-9223372036854775808\r\n*-1\r\n*0\r\n\r\nPING\r\n"))
	reads(t, conn, "+PONG\r\n")
	for _, call := range falseLengths() {
		require.NoError(t, play(server.Addr, []byte(call)), "%q", call)
	}
}

func TestRandomBytes(t *testing.T) {
	server := startLogging(t)
	w := watch(t, server)
	for seed := range uint64(2) {
		random := rand.New(rand.NewPCG(seed, 1))
		for range 300 {
			b := noise(random, 1+random.IntN(8192))
			require.NoError(t, play(server.Addr, b), "seed %d", seed)
		}
	}
	w.becomes("connected_clients", 1)
}

func TestOtherProtocols(t *testing.T) {
	server := startLogging(t)
	w := watch(t, server)
	for _, b := range otherProtocols {
		require.NoError(t, play(server.Addr, []byte(b)), "%q", b)
	}
	assert.Zero(t, w.Exists(w.ctx, "k").Val(), "a call after the protocol error was executed")
}

// A web page can make a browser POST a form to this port, and the form's lines would be commands.
// Like Redis, the server disconnects at the first line of HTTP.
func TestBrowsersAreDisconnected(t *testing.T) {
	server := startLogging(t)
	w := watch(t, server)
	for _, first := range []string{"POST / HTTP/1.1\r\n", "post\r\n", "Host: localhost\r\n", "HOST:\n",
		string(Command("POST", "/"))} {
		conn := connect(t, server)
		write(t, conn, []byte(first+"CL.THROTTLE k 1 1 1000\r\n"))
		ends(t, conn, "")
		conn = connect(t, server)
		write(t, conn, []byte("PING\r\n"+first+"CL.THROTTLE k 1 1 1000\r\n"))
		ends(t, conn, "+PONG\r\n")
		require.Zero(t, w.Exists(w.ctx, "k").Val(), "%q", first)
	}
}

// Hundreds of clients begin a call and send no more; some stop in the middle of an argument.
func TestSilentConnections(t *testing.T) {
	const silent = 400
	server := startLogging(t)
	w := watch(t, server)
	before := w.filesAtRest()
	var conns []net.Conn
	for i := range silent {
		conn := connect(t, server)
		write(t, conn, []byte([]string{"*", "$", "\r", "P", "*2\r\n$4\r\nEC", "*3\r\n$1048576\r\nxxx"}[i%6]))
		conns = append(conns, conn)
	}
	w.becomes("connected_clients", silent+1)
	for i := range 1000 {
		got, err := w.Do(w.ctx, "CL.THROTTLE", "busy", 1_000_000, 1, 1000).Int64Slice()
		require.NoError(t, err)
		require.EqualValues(t, 1_000_000-i, got[2])
	}
	for _, conn := range conns {
		conn.Close()
	}
	w.becomes("connected_clients", 1)
	w.releases(before)
}

func TestResetInTheMiddleOfAReply(t *testing.T) {
	server := startLogging(t)
	w := watch(t, server)
	store(t, server, 20_000, "key")
	for i := range 60 {
		conn := connect(t, server)
		call := [][]byte{Command("ECHO", strings.Repeat("x", 1<<20)), Command("KEYS", "*"), Command("COMMAND")}[i%3]
		write(t, conn, call)
		_, err := io.ReadFull(conn, make([]byte, 1+i*10))
		require.NoError(t, err)
		require.NoError(t, conn.SetLinger(0))
		conn.Close()
	}
	w.becomes("connected_clients", 1)
}
