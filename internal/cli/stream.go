package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
)

// streams are the commands after which a server sends messages until the connection ends.
var streams = []string{"MONITOR", "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE"}

// stream executes such a command, and prints what the server sends. In a session, Ctrl-C ends it; else it ends the
// program. As in redis-cli, the end of the connection is an error.
func (d *runner) stream(call []string) error {
	if d.format != formatRaw && !startsWithAny(call, []string{"MONITOR"}) {
		fmt.Fprintln(d.out, "Reading messages... (press Ctrl-C to quit)")
	}
	interrupted := context.Background()
	if d.interactive {
		ctx, stop := signal.NotifyContext(interrupted, os.Interrupt)
		defer stop()
		interrupted = ctx
	}
	err := d.conn.stream(interrupted, call, func(r reply) error { return d.print(call, r) })
	if interrupted.Err() != nil {
		_, err = fmt.Fprintln(d.out)
	}
	return err
}

// stream sends a command, and passes each reply to show until the context ends. It returns after a reply that is not
// the beginning of a stream, such as an error, and then the connection can be used again.
func (l *connection) stream(ctx context.Context, call []string, show func(reply) error) error {
	// go-redis authenticates before the first command, and reads one reply to each. So it sends a PING, and has nothing
	// to read after the reply.
	if err := l.connect(); err != nil {
		return err
	}
	conn := l.socket
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	in := messages{from: bufio.NewReader(conn)}
	if _, err := conn.Write(appendCall(nil, call)); err != nil {
		l.close()
		return l.describeError(err)
	}
	for first := true; ; first = false {
		r, err := in.next()
		switch {
		case err == nil:
			err = show(r)
		case isClosed(err):
			err = fmt.Errorf("%s closed the connection", l.address)
		default:
			err = l.describeError(err)
		}
		switch {
		case first && (r.kind == kindError || r.kind == kindStatus && string(r.text) == "QUEUED"):
			return err
		case err != nil:
			l.close()
			return err
		}
	}
}

// appendCall appends a call in the protocol.
func appendCall(b []byte, call []string) []byte {
	b = fmt.Appendf(b, "*%d\r\n", len(call))
	for _, word := range call {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(word), word)
	}
	return b
}

// The bounds of a message: no server that speaks the protocol needs more.
const (
	maxMessage = 1 << 30 // bytes
	maxDepth   = 64      // of arrays in arrays
)

var errMessage = errors.New("a message is too large")

// messages reads one reply after the other.
type messages struct {
	from *bufio.Reader
	read []byte // of the present reply
}

func (m *messages) next() (r reply, err error) {
	m.read = nil // r refers to it
	if err := m.whole(maxDepth); err != nil {
		return reply{}, err
	}
	r, _, err = parseReply(m.read)
	return r, err
}

// whole reads a reply with its parts. parseReply finds what is wrong with it.
func (m *messages) whole(depth int) error {
	line, err := m.line()
	if err != nil {
		return err
	}
	count, err := strconv.Atoi(string(line[1:]))
	if err != nil || count < 0 {
		return nil
	}
	switch line[0] {
	case kindString, kindVerbatim, kindLongError:
		return m.text(count)
	case kindMap, kindAttribute:
		count = min(count, maxMessage) * 2
	case kindArray, kindSet, kindPush:
	default:
		return nil
	}
	if line[0] == kindAttribute {
		count++ // the reply that it is about
	}
	if depth == 0 {
		return errMessage
	}
	for range count {
		if err := m.whole(depth - 1); err != nil {
			return err
		}
	}
	return nil
}

// line reads a line, and returns it without its end. It has at least one byte.
func (m *messages) line() ([]byte, error) {
	begin := len(m.read)
	for {
		part, err := m.from.ReadSlice('\n')
		m.read = append(m.read, part...)
		switch end := len(m.read) - len("\r\n"); {
		case len(m.read) > maxMessage:
			return nil, errMessage
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil:
			return nil, err
		case end <= begin:
			return nil, errNoReply
		default:
			return m.read[begin:end], nil
		}
	}
}

// text reads a text of so many bytes, and the end of the line after it. It takes no memory for what has not come.
func (m *messages) text(length int) error {
	if length > maxMessage-len(m.read) {
		return errMessage
	}
	for length += len("\r\n"); length > 0; {
		part := make([]byte, min(length, 64<<10))
		n, err := io.ReadFull(m.from, part)
		m.read = append(m.read, part[:n]...)
		if err != nil {
			return err
		}
		length -= n
	}
	return nil
}
