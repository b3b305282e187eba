package transcript

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// toy is a server with a few commands, in process with a still clock, or on TCP.
type toy struct {
	mu      sync.Mutex
	clock   time.Duration
	clients []*toyClient
}

// toyClient is a connection to a toy. In process, it is the Peer too.
type toyClient struct {
	server     *toy
	in, out    []byte
	subscribed bool
	closed     bool
	conn       net.Conn // nil in process
}

func (t *toy) Dial() (Peer, error) { return t.connect(nil), nil }

func (t *toy) Advance(d time.Duration) error {
	t.clock += d
	return nil
}

func (t *toy) Late() time.Duration { return 0 }

func (t *toy) connect(conn net.Conn) *toyClient {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := &toyClient{server: t, conn: conn}
	t.clients = append(t.clients, c)
	return c
}

func (c *toyClient) Send(b []byte) error {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.in = append(c.in, b...)
	for !c.closed {
		words, rest, whole := toyWords(c.in)
		if !whole {
			break
		}
		c.in = rest
		c.execute(words)
	}
	for _, each := range c.server.clients {
		if each.conn != nil {
			each.conn.Write(each.out)
			each.out = nil
		}
	}
	return nil
}

func (c *toyClient) Receive(time.Duration) (string, error) {
	line, rest, err := NextReply(c.out)
	if err == io.EOF && !c.closed {
		err = ErrSilent
	}
	c.out = rest
	return line, err
}

func (c *toyClient) Close() (unread []string) {
	for {
		line, err := c.Receive(0)
		if err != nil {
			return unread
		}
		unread = append(unread, line)
	}
}

func (c *toyClient) execute(words []string) {
	switch words[0] {
	case "PING":
		c.reply("+PONG\r\n")
	case "ECHO":
		c.reply("$%d\r\n%s\r\n", len(words[1]), words[1])
	case "TWICE":
		c.reply("+OK\r\n+OK\r\n")
	case "MUTE":
	case "CLOCK":
		c.reply(":%d\r\n", c.server.clock.Milliseconds())
	case "LEFT":
		c.reply(":%d\r\n", (time.Minute-c.server.clock).Milliseconds()/1000)
	case "SUBSCRIBE":
		c.subscribed = true
		c.reply("+OK\r\n")
	case "PUBLISH":
		for _, each := range c.server.clients {
			if each.subscribed {
				each.reply("*1\r\n$%d\r\n%s\r\n", len(words[1]), words[1])
			}
		}
		c.reply("+OK\r\n")
	case "GARBLE":
		c.reply("?\r\n")
	case "QUIT":
		c.reply("+OK\r\n")
		c.closed = true
	default:
		c.reply("-ERR no %s \r\n", words[0])
	}
}

func (c *toyClient) reply(format string, arguments ...any) {
	c.out = fmt.Appendf(c.out, format, arguments...)
}

// toyWords splits the first command off b, if it is complete. Its words contain no line breaks.
func toyWords(b []byte) (words []string, rest []byte, whole bool) {
	header, rest, whole := bytes.Cut(b, []byte("\r\n"))
	n, _ := strconv.Atoi(strings.TrimPrefix(string(header), "*"))
	for i := 0; whole && i < 2*n; i++ {
		var word []byte
		word, rest, whole = bytes.Cut(rest, []byte("\r\n"))
		if i%2 == 1 {
			words = append(words, string(word))
		}
	}
	return words, rest, whole
}

// serveToy serves a toy on a socket and returns the stage. Its clock is a real one.
func serveToy(t *testing.T, s *toy) Stage {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go s.serve(conn)
		}
	}()
	return Network("tcp", listener.Addr().String())
}

func (t *toy) serve(conn net.Conn) {
	defer conn.Close()
	c := t.connect(conn)
	buffer := make([]byte, 4096)
	for !c.closed {
		n, err := conn.Read(buffer)
		if err != nil {
			return
		}
		c.Send(buffer[:n])
	}
}
