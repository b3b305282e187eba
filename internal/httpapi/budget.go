package httpapi

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"

	"cellserver/internal/web"
)

// The memory that the requests of all clients hold together is bounded: bodies as far as they have arrived, what
// is read from them, and replies. Without that, each of some thousand requests at once could hold tens of
// megabytes. Each connection has some memory of its own, in which a request with a few calls fits, so such
// requests are answered also while others hold all memory that is shared, for example because they arrive
// slowly or wait.

// maxShared bounds the memory that all connections share, and maxOwn that of a connection, in bytes.
const (
	maxShared = 256 << 20
	maxOwn    = 64 << 10
)

// budget is memory that may be held.
type budget struct {
	most int64
	held atomic.Int64
}

// take takes bytes, and reports whether the budget has as many.
func (b *budget) take(n int64) bool {
	if b.held.Add(n) > b.most {
		b.held.Add(-n)
		return false
	}
	return true
}

// The memory of a byte of a body when it has been read as JSON (an empty array takes forty bytes, and its
// slice grows by doubling), and that of a byte of a reply, with its JSON.
const (
	bytesPerBodyByte  = 64
	bytesPerReplyByte = 4
)

var errMemory = errors.New("OOM the requests over HTTP hold too much memory at present")

// share is the memory that a request holds: in that of its connection, and in that of all.
type share struct {
	own, shared         *budget
	heldOwn, heldShared int64
}

// share returns the share of a request of the connection. It holds nothing.
func (c *conn) share() share { return share{own: &c.own, shared: &c.api.memory} }

// take adds bytes to the share, and reports whether there are as many.
func (s *share) take(n int64) bool {
	switch {
	case s.own.take(n):
		s.heldOwn += n
	case s.shared.take(n):
		s.heldShared += n
	default:
		return false
	}
	return true
}

// giveBack returns the share.
func (s *share) giveBack() {
	s.own.held.Add(-s.heldOwn)
	s.heldOwn = 0
	if s.heldShared != 0 {
		s.shared.held.Add(-s.heldShared)
		s.heldShared = 0
	}
}

// readBody reads the body of a request. It takes memory as bytes arrive, twice as many at most: the length that a
// peer announces costs the peer nothing.
func readBody(r *http.Request, memory *share) ([]byte, error) {
	const first = 512
	if !memory.take(first) {
		return nil, errMemory
	}
	body := make([]byte, 0, first)
	for {
		n, err := r.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if err == io.EOF {
			return body, nil
		}
		if err != nil {
			return nil, err
		}
		if len(body) < cap(body) {
			continue
		}
		grown := min(2*cap(body), web.MaxBody+1) // with room for reading the end
		if !memory.take(int64(grown - cap(body))) {
			return nil, errMemory
		}
		body = append(make([]byte, 0, grown), body...)
	}
}

// refuseForMemory answers a request for which there is no memory.
func refuseForMemory(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	writeError(w, http.StatusServiceUnavailable, errMemory.Error())
}
