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

// toy is a server of a few commands, to play conversations with: in process with a still clock, or
// over TCP.
type toy struct {
	mu      sync.Mutex
	clock   time.Duration
	clients []*toyClient
}

// toyClient is one connection to it, and in process its own Peer.
type toyClient struct {
	server     *toy
	in, out    []byte
	subscribed bool
	gone       bool
	conn       net.Conn // nil in process
}

func (t *toy) Dial() (Peer, error) { return t.connect(nil), nil }

func (t *toy) Advance(d time.Duration) error {
	t.clock += d
	return nil
}

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
	for !c.gone {
		words, rest, whole := toyWords(c.in)
		if !whole {
			break
		}
		c.in = rest
		c.do(words)
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
	if err == io.EOF && !c.gone {
		err = ErrSilent
	}
	c.out = rest
	return line, err
}

func (c *toyClient) Close() (unheard []string) {
	for {
		line, err := c.Receive(0)
		if err != nil {
			return unheard
		}
		unheard = append(unheard, line)
	}
}

func (c *toyClient) do(words []string) {
	switch words[0] {
	case "PING":
		c.say("+PONG\r\n")
	case "ECHO":
		c.say("$%d\r\n%s\r\n", len(words[1]), words[1])
	case "TWICE":
		c.say("+OK\r\n+OK\r\n")
	case "MUTE":
	case "CLOCK":
		c.say(":%d\r\n", c.server.clock.Milliseconds())
	case "SUBSCRIBE":
		c.subscribed = true
		c.say("+OK\r\n")
	case "PUBLISH":
		for _, each := range c.server.clients {
			if each.subscribed {
				each.say("*1\r\n$%d\r\n%s\r\n", len(words[1]), words[1])
			}
		}
		c.say("+OK\r\n")
	case "GARBLE":
		c.say("?\r\n")
	case "QUIT":
		c.say("+OK\r\n")
		c.gone = true
	default:
		c.say("-ERR no %s \r\n", words[0])
	}
}

func (c *toyClient) say(format string, arguments ...any) {
	c.out = fmt.Appendf(c.out, format, arguments...)
}

// toyWords takes the first command from b, if it is whole. Its words hold no line breaks.
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

// serveToy serves it on a socket and returns the stage there. The clock stays the toy's own.
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
	for !c.gone {
		n, err := conn.Read(buffer)
		if err != nil {
			return
		}
		c.Send(buffer[:n])
	}
}
