// Package differential compares the cellserver binary with redis-cell's recorded replies, with the
// transcripts of its documentation, and with a real redis-server.
package differential

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/transcript"
	"cellserver/test/peer"
)

func TestMain(m *testing.M) { peer.Main(m) }

// patience is the longest wait for a reply.
const patience = time.Minute

// dial connects. The connection is closed at the end of the test.
func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := peer.Dial(address)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(5*patience)))
	return conn
}

// command returns a call in RESP.
func command(words ...string) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", len(words))
	for _, w := range words {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(w), w)
	}
	return b
}

// replies reads n replies.
func replies(r *bufio.Reader, n int) (all []string, err error) {
	for range n {
		line, err := transcript.ReadReply(r)
		if err != nil {
			return all, err
		}
		all = append(all, line)
	}
	return all, nil
}

// tampering is a connection that replaces one text in replies by another of the same length, like a
// server with a planted bug. It misses a text that arrives in two pieces.
type tampering struct {
	net.Conn
	old, new string
}

func (c *tampering) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	copy(b, bytes.ReplaceAll(b[:n], []byte(c.old), []byte(c.new)))
	return n, err
}
