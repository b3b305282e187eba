package httpapi

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"

	"cellserver/internal/client"
	"cellserver/internal/policy"
	"cellserver/internal/resp"
	"cellserver/internal/session"
)

// conn is a connection of HTTP. It keeps the sessions in which its requests make calls.
type conn struct {
	api    *API
	socket net.Conn
	own    budget // memory for its requests alone

	mu     sync.Mutex
	free   []*caller // sessions that no request uses
	closed bool
}

// caller makes calls in a session. One goroutine at a time may use it.
type caller struct {
	session *session.Session
	conn    *conn
	woken   chan struct{} // receives a value when the session may be resumed
	calls   []byte        // the calls to make, in RESP
	replies []byte        // to these calls
	memory  share         // for the replies
	outcome outcome       // of a call on a policy
	body    []byte        // of the response, which net/http copies if it is short
}

// transportBytes estimates the memory, in bytes, that net/http uses for a connection.
const transportBytes = 20 << 10

// maxKept is the size of the largest buffer, in bytes, that a caller keeps between requests.
const maxKept = 16 << 10

// take returns a caller that makes calls as a user.
func (c *conn) take(as *client.Account) *caller {
	c.mu.Lock()
	var k *caller
	if last := len(c.free) - 1; last >= 0 {
		k, c.free = c.free[last], c.free[:last]
	}
	c.mu.Unlock()
	if k == nil {
		k = c.open()
	}
	if k.session.Account.Load() != as || !k.session.IsLoggedIn() { // a new session may have to log in as default
		k.session.SetAccount(as) // if it has been deleted, the session refuses the calls
	}
	k.calls, k.replies = k.calls[:0], k.replies[:0]
	return k
}

func (c *conn) open() *caller {
	k := &caller{conn: c, woken: make(chan struct{}, 1), memory: c.share()}
	k.session = c.api.instance.Open(client.Peer{
		Remote: address(c.socket.RemoteAddr(), c.socket), Local: address(c.socket.LocalAddr(), c.socket), FD: -1,
		TransportBytes: transportBytes, Wake: k.wake, Cut: func() { c.socket.Close() },
	})
	k.session.SwitchProtocol(3)
	return k
}

// address returns an address as CLIENT LIST shows it: for a Unix socket, its path.
func address(a net.Addr, socket net.Conn) string {
	if a.Network() == "unix" {
		return socket.LocalAddr().String() + ":0"
	}
	return a.String()
}

// release makes a caller available for the next request.
func (c *conn) release(k *caller) {
	k.memory.giveBack()
	if cap(k.calls) > maxKept {
		k.calls = nil
	}
	if cap(k.replies) > maxKept {
		k.replies = nil
	}
	if len(k.body) > maxMeasured {
		k.body = nil // with HTTP/2, a body that net/http did not copy may still be sent
	}
	c.mu.Lock()
	usable := !c.closed && !k.session.Closing() && !k.session.HasUnanswered() && len(k.session.Output()) == 0
	if usable {
		c.free = append(c.free, k)
	}
	c.mu.Unlock()
	if !usable {
		k.session.Close()
	}
}

// close ends the sessions. Those of requests that are still being answered end with these.
func (c *conn) close() {
	c.mu.Lock()
	free := c.free
	c.free, c.closed = nil, true
	c.mu.Unlock()
	for _, k := range free {
		k.session.Close()
	}
}

func (k *caller) wake() {
	select {
	case k.woken <- struct{}{}:
	default:
	}
}

var (
	errSessionEnded = errors.New("ERR the connection was ended")
	errTooLong      = errors.New("ERR the replies are longer than 16 MiB")
)

const maxReplies = 16 << 20 // bytes

// run makes the calls, and returns when all replies have been written. When a call waits, for a limiter or
// for work outside this goroutine, it calls onWait once before it waits too. It returns an error if ctx is
// done, or if the session ends; then there may be fewer replies than calls.
func (k *caller) run(ctx context.Context, onWait func()) error {
	s, in := k.session, k.conn.api.instance
	for s.Feed(k.calls); ; s.Resume() {
		in.Yield()
		for out := s.Output(); len(out) > 0; out = s.Output() {
			if len(k.replies)+len(out) > maxReplies {
				return errTooLong
			}
			if !k.memory.take(bytesPerReplyByte * int64(len(out))) {
				return errMemory
			}
			k.replies = append(k.replies, out...)
			s.Sent()
		}
		switch {
		case s.Closing():
			return errSessionEnded
		case s.More():
			continue
		case !s.HasUnanswered() && !s.HasMail():
			return nil
		}
		if onWait != nil {
			onWait()
			onWait = nil
		}
		select {
		case <-k.woken:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// ask makes a call of CL.TAKE with VERBOSE.
func (k *caller) ask(r *http.Request, o *outcome, words ...string) (refused string) {
	k.calls = resp.AppendCall(k.calls[:0], words)
	return k.judge(r, o, nil)
}

// judge makes a call of CL.TAKE with VERBOSE, which stands in k.calls. If there is no outcome, refused says why.
func (k *caller) judge(r *http.Request, o *outcome, onWait func()) (refused string) {
	o.Policy = ""
	k.session.TellOutcome((*policy.Outcome)(o))
	replies, refused := k.makeWritten(r, onWait)
	k.session.TellOutcome(nil)
	if refused == "" && o.Policy == "" { // the session was not told
		o.read(&replies)
	}
	return refused
}

// makeCall makes a call, and returns its reply. If that is an error, or there is none, refused says why.
func (k *caller) makeCall(r *http.Request, words []string) (reply cursor, refused string) {
	k.calls = resp.AppendCall(k.calls[:0], words)
	return k.makeWritten(r, nil)
}

// makeWritten is makeCall for the call that stands in k.calls.
func (k *caller) makeWritten(r *http.Request, onWait func()) (reply cursor, refused string) {
	k.replies = k.replies[:0]
	err := k.run(r.Context(), onWait)
	reply = cursor{rest: k.replies}
	if text, is := reply.peekError(); is {
		return reply, text
	}
	switch {
	case len(k.replies) > 0:
		return reply, ""
	case err != nil:
		return reply, err.Error()
	}
	return reply, errSessionEnded.Error()
}
