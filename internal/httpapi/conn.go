package httpapi

import (
	"errors"
	"net"
	"net/http"
	"sync"

	"cellserver/internal/client"
	"cellserver/internal/policy"
	"cellserver/internal/resp"
	"cellserver/internal/session"
	"cellserver/internal/web"
)

// conn is a connection of HTTP. It keeps the sessions in which its requests make calls.
type conn struct {
	api    *API
	socket net.Conn
	own    budget // memory for its requests alone

	mu       sync.Mutex
	free     []*caller // sessions that no request uses
	sessions int       // number of all sessions
	payer    *caller   // for whose client the memory of the connection counts
	closed   bool
}

// caller makes the calls of requests. One goroutine at a time may use it.
type caller struct {
	*session.Caller
	conn     *conn
	calls    session.Calls    // to make
	replied  int              // bytes of replies to the request
	memory   share            // for calls and replies
	outcomes *policy.Outcomes // of a call on policies
	body     []byte           // of the response, which net/http copies if it is short
}

// take returns a caller that makes calls for a request as a user. If all places of users on the port are taken, take
// answers the request and returns nil.
func (c *conn) take(w http.ResponseWriter, r *http.Request, kind web.Kind, as *client.Account) *caller {
	c.mu.Lock()
	var k *caller
	if last := len(c.free) - 1; last >= 0 {
		k, c.free = c.free[last], c.free[:last]
	} else {
		k = c.open()
	}
	if c.payer == nil {
		c.payer = k
	}
	payer := c.payer
	c.mu.Unlock()
	if !web.Know(r, kind, as, payer.ChargeAsync) {
		c.release(r, k)
		w.Header()["Connection"] = []string{"close"}
		w.Header().Set("Retry-After", "1")
		writeError(w, http.StatusServiceUnavailable, "ERR users have too many connections to this port")
		return nil
	}
	if k.Account.Load() != as || !k.IsLoggedIn() { // a new session may have to log in as default
		k.SetAccount(as) // if it has been deleted, the session refuses the calls
	}
	k.replied = 0
	return k
}

// open opens a session. The caller holds mu.
func (c *conn) open() *caller {
	k := &caller{conn: c, outcomes: new(policy.Outcomes)}
	k.memory.of = k
	k.Caller = c.api.instance.OpenCaller(client.Peer{
		Remote: address(c.socket.RemoteAddr(), c.socket), Local: address(c.socket.LocalAddr(), c.socket), FD: -1,
		IsStream: c.sessions > 0, Cut: func() { c.socket.Close() },
	})
	k.Reserve = k.reserve
	c.sessions++
	k.SwitchProtocol(3)
	return k
}

// address returns an address as CLIENT LIST shows it: for a Unix socket, its path.
func address(a net.Addr, socket net.Conn) string {
	if a.Network() == "unix" {
		return socket.LocalAddr().String() + ":0"
	}
	return a.String()
}

// release makes a caller available for the next request, after the request r.
func (c *conn) release(r *http.Request, k *caller) {
	k.memory.giveBack()
	k.calls.Reset()
	if len(k.body) > maxMeasured {
		k.body = nil // with HTTP/2, a body that net/http did not copy may still be sent
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed && k.IsIdle() {
		c.free = append(c.free, k)
		return
	}
	if c.payer == k {
		c.payer = nil
		web.Forget(r)
	}
	c.sessions--
	k.Close()
}

// close ends the sessions. The sessions of requests that are still being answered end with their requests.
func (c *conn) close() {
	c.mu.Lock()
	free := c.free
	c.free, c.closed = nil, true
	c.mu.Unlock()
	for _, k := range free {
		k.Close()
	}
}

const maxReplies = 16 << 20 // bytes

var errTooLong = errors.New("ERR the replies are longer than 16 MiB")

// reserve bounds the replies, and counts the memory for them.
func (k *caller) reserve(bytes int) error {
	if k.replied += bytes; k.replied > maxReplies {
		return errTooLong
	}
	if k.memory.take(bytesPerReplyByte*int64(bytes)) != nil {
		return errMemory
	}
	return nil
}

// decide makes the only call, of CL.TAKE or CL.ALL with VERBOSE. Then k.outcomes has an outcome for each
// policy; if there is none, refused says why.
func (k *caller) decide(r *http.Request, onWait func()) (reply resp.Replies, refused string) {
	k.outcomes.Reset()
	k.Outcome = k.outcomes
	reply, err := k.Do(r.Context(), &k.calls, onWait)
	k.outcomes, k.Outcome = k.Outcome.(*policy.Outcomes), nil
	k.calls.Reset()
	if text, is := reply.PeekError(); is {
		return reply, text
	}
	switch {
	case reply.Len() > 0:
		return reply, ""
	case err != nil:
		return reply, err.Error()
	}
	return reply, session.ErrEnded.Error()
}
