package integration

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/transcript"
	"cellserver/test/peer"
)

// stream returns n calls of several kinds, with changes of the protocol. It begins with FLUSHALL,
// so that its replies are always the same.
func stream(n int) []byte {
	b := command("FLUSHALL")
	for i := range n {
		key := fmt.Sprint("key", i/2)
		switch i % 8 {
		case 0, 1: // two consecutive calls on the same key
			b = append(b, command("CL.THROTTLE", key, "15", "1", "1000", "1")...)
		case 2:
			b = append(b, command("ECHO", strings.Repeat("\r\n$5*", i%40))...)
		case 3:
			b = append(b, "EXISTS nosuch 'a b' \"\\x00\"\r\n"...)
		case 4:
			b = append(b, command("NOSUCH", key)...)
		case 5:
			b = append(b, command("GET", "nosuch")...)
		case 6:
			b = append(b, "\r\n*0\r\n*-1\r\nPING\n"...)
		case 7:
			b = append(b, command("RESET")...)
			if i%16 == 7 {
				b = append(b, command("SELECT", fmt.Sprint(i%16))...)
			}
		}
	}
	return b
}

// recovery matches how long a limit takes to recover, in the reply to a call that is admitted.
var recovery = regexp.MustCompile(`(:-1\r\n):\d+\r\n`)

// withoutTimes removes these times from replies, because a second may pass between two calls on the same key.
func withoutTimes(replies string) string { return recovery.ReplaceAllString(replies, "$1") }

// cut divides bytes at random places, mostly into pieces of about this length.
func cut(b []byte, length int, random *rand.Rand) (pieces [][]byte) {
	for len(b) > 0 {
		n := min(1+random.IntN(2*length), len(b))
		pieces = append(pieces, b[:n])
		b = b[n:]
	}
	return pieces
}

// However a stream is divided, it gets the same replies as the undivided stream.
func TestAnySplitIsAnsweredAlike(t *testing.T) {
	server := peer.Start(t)
	long, short := stream(6000), stream(300)
	want := withoutTimes(exchange(t, server, long))
	require.Greater(t, strings.Count(want, "\r\n"), 6000)
	require.Contains(t, want, "*5\r\n:0\r\n:16\r\n:14\r\n:-1\r\n")
	for seed, length := range []int{3, 40, 1000, 16384, 65536} {
		pieces := cut(long, length, rand.New(rand.NewPCG(uint64(seed), 0)))
		got := withoutTimes(exchange(t, server, pieces...))
		require.True(t, want == got, "pieces of about %d bytes, seed %d", length, seed)
	}
	single := withoutTimes(exchange(t, server, bytes.SplitAfter(short, nil)...))
	require.True(t, withoutTimes(exchange(t, server, short)) == single, "a byte at a time")
}

// A stream is divided at each place in turn. The rest is sent only when the server has answered the
// first part.
func TestEachSplitIsAnsweredAlike(t *testing.T) {
	server := peer.Start(t)
	b := append(stream(16), command("QUIT")...)
	want := withoutTimes(exchange(t, server, b))
	for at := range b {
		first := append([]byte("ECHO before\r\n"), b[:at]...)
		conn := dial(t, server)
		_, err := conn.Write(first)
		require.NoError(t, err)
		got := make([]byte, len("$6\r\nbefore\r\n"))
		_, err = io.ReadFull(conn, got)
		require.NoError(t, err)
		_, err = conn.Write(b[at:])
		require.NoError(t, err)
		rest, err := io.ReadAll(conn)
		require.NoError(t, err)
		conn.Close()
		require.Equal(t, want, withoutTimes(string(rest)), "cut at %d: %q", at, b[max(0, at-10):at])
	}
}

func TestInlineCommands(t *testing.T) {
	conn := dial(t, peer.Start(t))
	r := bufio.NewReader(conn)
	_, err := conn.Write([]byte("PING\r\nCL.THROTTLE \"a key\" 15 1 1000 1\n" +
		"cl.throttle 'a key'\t15 1  1000\r\n\r\nEXISTS \"a\\x20key\"\nECHO ''\n"))
	require.NoError(t, err)
	expect(t, r, "+PONG", "[0, 16, 15, -1, 1000]")
	second, err := transcript.ReadReply(r)
	require.NoError(t, err)
	require.Regexp(t, `^\[0, 16, 14, -1, \d+\]$`, second)
	expect(t, r, "1", `""`)
	_, err = conn.Write([]byte("PING 'a\r\n"))
	require.NoError(t, err)
	expect(t, r, "-ERR Protocol error: unbalanced quotes in request")
	_, err = r.ReadByte()
	assert.Equal(t, io.EOF, err)
}

func TestNothingIsAnsweredAfterQuit(t *testing.T) {
	server := peer.Start(t)
	const calls = 2000
	b := bytes.Repeat(command("PING"), calls)
	b = append(b, command("QUIT")...)
	b = append(b, command("CL.THROTTLE", "key", "15", "1", "1000")...)
	conn := dial(t, server)
	_, err := conn.Write(b)
	require.NoError(t, err)
	answer, err := io.ReadAll(conn) // until the server closes the connection
	require.NoError(t, err)
	assert.True(t, strings.Repeat("+PONG\r\n", calls)+"+OK\r\n" == string(answer), "%d bytes", len(answer))
	assert.Equal(t, ":0\r\n", exchange(t, server, command("EXISTS", "key")))
}

// A client that has sent everything may close its sending direction, as nc and load tests do, and
// still receives all replies.
func TestHalfClosedSocketIsAnswered(t *testing.T) {
	server := peer.Start(t)
	assert.Equal(t, "+PONG\r\n", exchange(t, server, command("PING")))
	for _, size := range []int{10, 10_000} { // sockets hold these; a slow reader loses longer ones, in Redis too
		echo := command("ECHO", strings.Repeat("x", size))
		answer := exchange(t, server, bytes.Repeat(echo, 100))
		assert.Equal(t, 100*len(fmt.Sprintf("$%d\r\n\r\n", size))+100*size, len(answer))
	}
	assert.Equal(t, "+PONG\r\n", exchange(t, server, command("PING"), []byte("*2\r\n$4\r\nEC")),
		"an incomplete call at the end must not matter")
	// KEYS replies later than other commands, because it runs outside the event loop.
	for range 50 {
		require.Equal(t, "*0\r\n+PONG\r\n", exchange(t, server, append(command("KEYS", "*"), command("PING")...)))
	}
}

// Clients disconnect in the middle of a call, some by a reset. Other clients are not affected, and
// nothing is left of the disconnected clients.
func TestDisconnectingClientsAffectNoOthers(t *testing.T) {
	server := peer.Start(t)
	c := client(t, server, 3)
	call := command("CL.THROTTLE", "key", "1000000", "1", "1000", "1")
	for i := range 300 {
		conn := dial(t, server)
		_, err := conn.Write(append(command("ECHO", strings.Repeat("x", i*100)), call[:i%len(call)]...))
		require.NoError(t, err)
		if i%2 == 0 {
			require.NoError(t, conn.SetLinger(0)) // Close sends a reset
		}
		require.NoError(t, conn.Close())
		require.NoError(t, c.Ping(inTime(t)).Err())
	}
	assert.Zero(t, c.Exists(inTime(t), "key").Val(), "an incomplete call was executed")
	require.Eventually(t, func() bool {
		list, err := c.Do(inTime(t), "CLIENT", "LIST").Text()
		return err == nil && strings.Count(list, "id=") == 1
	}, patience, 10*time.Millisecond)
}

// A client may send all of its calls before it reads the first reply.
func TestManyCallsBeforeTheFirstReplyIsRead(t *testing.T) {
	const calls = 100_000
	server := peer.Start(t)
	var b []byte
	for i := range calls {
		b = append(b, command("CL.THROTTLE", fmt.Sprint("key", i%1000), "1000", "1", "1000", "1")...)
	}
	conn := dial(t, server) // not earlier, because a TLS handshake has a time limit
	require.NoError(t, send(conn, b)(), "the server must read on while its replies are not read")
	r := bufio.NewReader(conn)
	for i := range calls {
		want := fmt.Sprintf("*5\r\n:0\r\n:1001\r\n:%d\r\n:-1\r\n:", 1000-i/1000)
		got := make([]byte, len(want))
		_, err := io.ReadFull(r, got)
		require.NoError(t, err)
		require.Equal(t, want, string(got), "reply %d", i)
		_, err = r.ReadString('\n')
		require.NoError(t, err)
	}
	_, err := r.ReadByte()
	assert.Equal(t, io.EOF, err)
}
