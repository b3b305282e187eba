package hostile

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// A client that sends all of a value that is too long before it reads receives the error, and then
// the end of the connection.
func TestRefusedValueIsReadToItsEnd(t *testing.T) {
	const long = 32 << 20
	server := peer.Start(t)
	w := watch(t, server)
	before := w.filesAtRest()
	for ahead, answers := range map[string]string{
		"": "", "*1\r\n$4\r\nPING\r\n": "+PONG\r\n", "*2\r\n$4\r\nKEYS\r\n$1\r\n*\r\n": "*0\r\n",
	} {
		call := fmt.Appendf(nil, "%s*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n", ahead, long)
		call = append(call, make([]byte, long)...)
		unlessPaused(t, answers+"-ERR Protocol error: invalid bulk length\r\n", func() (string, error) {
			conn, err := dial(server.Addr)
			require.NoError(t, err)
			defer conn.Close()
			if _, err := conn.Write(call); err != nil {
				return "", err
			}
			got, err := io.ReadAll(conn)
			return string(got), unlessReset(err)
		})
	}
	// As go-redis sees it:
	unlessPaused(t, "ERR Protocol error: invalid bulk length", func() (string, error) {
		return fmt.Sprint(w.Set(w.ctx, "k", strings.Repeat("x", long), 0).Err()), nil
	})
	w.releases(before)
}

// unlessPaused sends a value and compares the answer. If the answer is another, and this has taken a second or more,
// it sends the value again: the server disconnects a refused client that has sent nothing for a second, which may be
// the fault of a busy machine.
func unlessPaused(t *testing.T, want string, send func() (answer string, err error)) {
	t.Helper()
	for began := time.Now(); ; {
		sent := time.Now()
		got, err := send()
		if err == nil && got == want {
			return
		}
		took := time.Since(sent)
		require.GreaterOrEqual(t, took, time.Second, "%q instead of %q: %v", got, want, err)
		require.Less(t, time.Since(began), soon, "%q instead of %q, again and again: %v", got, want, err)
	}
}

// After any other protocol error the server cannot know how much input follows, so it closes the
// connection at once.
func TestOtherErrorsEndTheConnectionAtOnce(t *testing.T) {
	server := peer.Start(t)
	for _, nonsense := range []string{"\x00", "*\x00", "$\x00", "*1\r\n$99999999999\r\n"} {
		conn := connect(t, server)
		write(t, conn, []byte(nonsense))
		payload, sent := bytes.Repeat([]byte("A"), 1024), 0
		copy(payload[1022:], "\"\n") // an unterminated quote, in case it is parsed as an inline command
		for ; sent < 64<<20; sent += len(payload) {
			if _, err := conn.Write(payload); err != nil {
				break
			}
		}
		assert.Less(t, sent, 64<<20, "%q", nonsense)
		conn.Close()
	}
}

// A refused client that does not close its connection is disconnected after a moment, and does not
// count as a client.
func TestRefusedClientThatStaysConnected(t *testing.T) {
	server := peer.Start(t)
	w := watch(t, server)
	before := w.filesAtRest()
	var leaving []*peer.Conn
	for i := range 100 {
		conn := connect(t, server)
		write(t, conn, []byte("*1\r\n$99999999\r\n"))
		line := make([]byte, len("-ERR Protocol error: invalid bulk length\r\n"))
		_, err := io.ReadFull(conn, line)
		require.NoError(t, err)
		_, err = conn.Read(line)
		require.Equal(t, io.EOF, err)
		if i%2 == 0 {
			leaving = append(leaving, conn)
		}
	}
	assert.Equal(t, 1, w.number("connected_clients"))
	assert.LessOrEqual(t, w.files(), before+32)
	for _, conn := range leaving {
		conn.Close()
	}
	w.releases(before)

	conn := connect(t, server) // the server's stop does not wait for it
	write(t, conn, []byte("*1\r\n$99999999\r\n"))
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		for {
			if _, err := conn.Write(make([]byte, 1024)); err != nil {
				return
			}
		}
	}()
	ends(t, conn, "-ERR Protocol error: invalid bulk length\r\n")
	server.Signal(syscall.SIGTERM)
	assert.Zero(t, server.Wait())
	<-stop
}
