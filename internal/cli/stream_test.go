package cli

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// afterPing answers the PING before a stream, reads the call, and sends its messages.
func afterPing(messages string) func(net.Conn, *bufio.Reader) {
	return func(conn net.Conn, r *bufio.Reader) {
		readCall(r)
		_, _ = io.WriteString(conn, "+PONG\r\n")
		readCall(r)
		_, _ = io.WriteString(conn, messages)
	}
}

// TestStream checks that messages are printed until the connection ends, and that an error or the beginning of a
// transaction is one reply.
func TestStream(t *testing.T) {
	for _, c := range []struct{ call, messages, prints, fails string }{
		{"MONITOR", "+OK\r\n+1.5 [0 a:1] \"GET\" \"k\"\r\n", "OK\n1.5 [0 a:1] \"GET\" \"k\"\n", "closed the connection"},
		{"subscribe a", "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n>3\r\n$7\r\nmessage\r\n$1\r\na\r\n$2\r\n\r\n\r\n",
			"subscribe\na\n1\nmessage\na\n\r\n\n", "closed the connection"},
		{"MONITOR", "-NOPERM no\r\n", "NOPERM no\n\n", "NOPERM no"},
		{"SUBSCRIBE a", "+QUEUED\r\n", "QUEUED\n", ""},
		{"MONITOR", "+OK\r\n*x\r\n", "OK\n", "does not answer in the Redis protocol"},
		{"MONITOR", "+OK\r\n\r\n", "OK\n", "does not answer in the Redis protocol"},
		{"MONITOR", "+OK\r\n" + strings.Repeat("*1\r\n", maxDepth+2), "OK\n", "a message is too large"},
		{"MONITOR", "+OK\r\n$2000000000\r\n", "OK\n", "a message is too large"},
		{"MONITOR", "+OK\r\n*9000000000000000000\r\n", "OK\n", "closed the connection"},
		{"MONITOR", "+OK\r\n%9000000000000000000\r\n", "OK\n", "closed the connection"},
		{"MONITOR", "+OK\r\n|1\r\n+a\r\n:1\r\n+" + strings.Repeat("m", 10_000) + "\r\n",
			"OK\n" + strings.Repeat("m", 10_000) + "\n", "closed the connection"},
	} {
		var out bytes.Buffer
		d := &runner{conn: serveAfterHello(t, afterPing(c.messages)), out: &out}
		err := d.execute(strings.Fields(c.call))
		if c.fails == "" {
			assert.NoError(t, err, c.call)
		} else {
			assert.ErrorContains(t, err, c.fails, "%s: %.40q", c.call, c.messages)
		}
		assert.Equal(t, c.prints, out.String(), c.call)
	}
}

// TestStreamIsInterrupted checks that a stream ends with its context, and that the next call opens a connection.
func TestStreamIsInterrupted(t *testing.T) {
	l := serveAfterHello(t,
		func(conn net.Conn, r *bufio.Reader) {
			afterPing("*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n")(conn, r)
			_, _ = r.ReadByte() // until the client hangs up
		},
		func(conn net.Conn, r *bufio.Reader) {
			readCall(r)
			_, _ = io.WriteString(conn, "+PONG\r\n")
			_, _ = r.ReadByte()
		})
	ctx, interrupt := context.WithCancel(t.Context())
	seen := 0
	err := l.stream(ctx, []string{"SUBSCRIBE", "a"}, func(reply) error {
		seen++
		interrupt()
		return nil
	})
	require.Error(t, err)
	assert.Equal(t, 1, seen)
	r, err := l.call([]string{"PING"})
	require.NoError(t, err)
	assert.Equal(t, "PONG", string(r.text))
}

// TestRepeat checks how often a command is sent, and that it is not sent again after the connection was lost.
func TestRepeat(t *testing.T) {
	answers := func(replies ...string) func(net.Conn, *bufio.Reader) {
		return func(conn net.Conn, r *bufio.Reader) {
			for _, reply := range replies {
				readCall(r)
				_, _ = io.WriteString(conn, reply)
			}
			readCall(r)
		}
	}
	var out bytes.Buffer
	var waited []time.Duration
	d := &runner{out: &out, interval: time.Hour, wait: func(pause time.Duration) { waited = append(waited, pause) }}
	d.conn = serveAfterHello(t, answers("+a\r\n", "-ERR b\r\n", "+c\r\n"))
	require.ErrorIs(t, d.repeat([]string{"X"}, 3), errReply)
	assert.Equal(t, "a\nERR b\n\nc\n", out.String())
	assert.Equal(t, []time.Duration{time.Hour, time.Hour}, waited, "not before the first, nor after the last")
	require.NoError(t, d.repeat([]string{"X"}, 0))

	out.Reset()
	d.conn = serveAfterHello(t, answers("+a\r\n", "+b\r\n"))
	err := d.repeat([]string{"X"}, -1)
	require.ErrorContains(t, err, "closed the connection")
	require.NotErrorIs(t, err, errReply)
	assert.Equal(t, "a\nb\n", out.String())
}

func TestRepeatedCall(t *testing.T) {
	for line, want := range map[string]int{
		"5 PING": 5, "PING": 1, "5": 1, "x PING": 1, "1.5 PING": 1, "2147483647 PING": 1<<31 - 1,
	} {
		rest, times, err := repeatedCall(strings.Fields(line))
		require.NoError(t, err, line)
		assert.Equal(t, want, times, line)
		assert.Equal(t, want > 1, len(rest) < len(strings.Fields(line)), line)
	}
	for _, line := range []string{"0 PING", "-1 PING", "2147483648 PING"} {
		_, _, err := repeatedCall(strings.Fields(line))
		require.ErrorIs(t, err, errTimes, line)
	}
}

// TestHelpWithoutServer checks that help describes this program's commands if no server answers, or refuses.
func TestHelpWithoutServer(t *testing.T) {
	docs := func(name string) []byte {
		if name != "config|set" {
			return nil
		}
		return []byte("*2\r\n+config|set\r\n*4\r\n+summary\r\n+Sets.\r\n+arguments\r\n*1\r\n*2\r\n+name\r\n+parameter\r\n")
	}
	refuses := func(conn net.Conn, r *bufio.Reader) {
		readCall(r)
		_, _ = io.WriteString(conn, "-NOAUTH Authentication required.\r\n")
	}
	for _, l := range []*connection{newConnection(&Server{host: "127.0.0.1", port: 1}), serveAfterHello(t, refuses)} {
		var out bytes.Buffer
		d := &runner{conn: l, out: &out, docs: docs}
		require.NoError(t, d.help([]string{"config", "SET"}))
		assert.Equal(t, "CONFIG SET parameter\nSets.\n", out.String())
		out.Reset()
		require.NoError(t, d.help([]string{"x"}))
		assert.Contains(t, out.String(), " does not answer. cellserver itself has no such command")
	}
	d := &runner{conn: newConnection(&Server{host: "127.0.0.1", port: 1}), out: io.Discard}
	require.Error(t, d.help([]string{"x"}), "other programs have no table")
}

// TestAlertIsTLS checks the hint about a server that answers a plain call with an alert, as OpenSSL does.
func TestAlertIsTLS(t *testing.T) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	go func() {
		if conn, err := listener.Accept(); err == nil {
			_, _ = conn.Read(make([]byte, 1024))
			_, _ = conn.Write([]byte{21, 3, 1, 0, 2, 2, 10})
			conn.Close()
		}
	}()
	l := newConnection(&Server{host: "127.0.0.1", port: listener.Addr().(*net.TCPAddr).Port})
	_, err = l.call([]string{"PING"})
	require.ErrorContains(t, err, " speaks TLS: add --tls")
}

// TestRefusedConnection checks that the error says why a server refuses connections: it sends the reason before any
// call, and ends the connection.
func TestRefusedConnection(t *testing.T) {
	for _, says := range []string{"DENIED Redis is running in protected mode", "ERR max number of clients reached"} {
		listener, err := net.Listen("tcp4", "127.0.0.1:0")
		require.NoError(t, err)
		go func() {
			if conn, err := listener.Accept(); err == nil {
				_, _ = io.WriteString(conn, "-"+says+".\r\n")
				readCall(bufio.NewReader(conn))
				conn.Close()
			}
		}()
		l := newConnection(&Server{host: "127.0.0.1", port: listener.Addr().(*net.TCPAddr).Port})
		_, err = l.call([]string{"PING"})
		require.EqualError(t, err, l.address+" refuses: "+says)
		listener.Close()
	}
}
