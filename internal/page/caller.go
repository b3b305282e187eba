package page

import (
	"context"
	"errors"

	"cellserver/internal/client"
	"cellserver/internal/resp"
	"cellserver/internal/session"
)

// caller makes calls in this process, as a client with a session of its own. Only one goroutine at a
// time may use it.
type caller struct {
	instance *session.Instance
	session  *session.Session
	woken    chan struct{}   // receives a value when the session is to be resumed
	cut      context.Context // ends when the client is disconnected
}

var errDisconnected = errors.New("the client was disconnected")

// newCaller opens a session for a connection with these addresses, which CLIENT LIST shows, and whose certificate
// may name a user.
func newCaller(in *session.Instance, remote, local, named string) *caller {
	cut, disconnect := context.WithCancel(context.Background())
	c := &caller{instance: in, woken: make(chan struct{}, 1), cut: cut}
	c.session = in.Open(client.Peer{Remote: remote, Local: local, FD: -1, Wake: c.wake, Cut: disconnect,
		CertificateUser: named})
	return c
}

func (c *caller) wake() {
	select {
	case c.woken <- struct{}{}:
	default:
	}
}

func (c *caller) close() { c.session.Close() }

// call makes a call and returns its reply. An error means that the client was disconnected, or that ctx
// is done; then the caller can only be closed.
func (c *caller) call(ctx context.Context, words ...string) (reply, error) {
	c.session.Feed(resp.AppendCall(nil, words))
	c.instance.Yield()
	var out []byte
	for {
		for piece := c.session.Output(); len(piece) > 0; piece = c.session.Output() {
			out = append(out, piece...)
			c.session.Sent()
		}
		switch {
		case c.session.More():
		case c.session.HasUnanswered():
			if err := c.await(ctx); err != nil {
				return reply{}, err
			}
		case c.cut.Err() != nil:
			return reply{}, errDisconnected
		default:
			r, _, err := parse(out)
			return r, err
		}
		c.session.Resume()
		c.instance.Yield()
	}
}

// await waits until the session is to be resumed.
func (c *caller) await(ctx context.Context) error {
	select {
	case <-c.woken:
		return nil
	case <-c.cut.Done():
		return errDisconnected
	case <-ctx.Done():
		return ctx.Err()
	}
}
