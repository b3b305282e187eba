// Package differential compares cellserver, as it is built, with what others say: replies recorded
// from redis-cell, the conversations that document it, and a real redis-server.
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

// patience is how late a reply may be.
const patience = time.Minute

// dial connects; the connection and everything on it ends with the test at the latest.
func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := peer.Dial(address)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(5*patience)))
	return conn
}

// command is a call as clients send it.
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

// tampered is a connection on which one text arrives as another of the same length: a server with a
// planted bug. A text that arrives in two pieces escapes it.
type tampered struct {
	net.Conn
	old, new string
}

func (c *tampered) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	copy(b, bytes.ReplaceAll(b[:n], []byte(c.old), []byte(c.new)))
	return n, err
}
