package httpapi

import (
	"errors"
	"net/http"
	"sync/atomic"

	"cellserver/internal/web"
)

// budget bounds the memory that the requests of all clients hold together: bodies, what is read from them,
// and replies. Without it, each of some thousand requests at once could hold tens of megabytes.
type budget struct{ held atomic.Int64 }

// maxHeld is the bound, in bytes.
const maxHeld = 256 << 20

// The memory of a byte of a body when it has been read as JSON (an empty array takes forty bytes, and its
// slice grows by doubling), and that of a byte of a reply, with its JSON.
const (
	bytesPerBodyByte  = 64
	bytesPerReplyByte = 4
)

var errMemory = errors.New("OOM the requests over HTTP hold too much memory at present")

// share is the part of the budget that a request holds.
type share struct {
	of   *budget
	held int64
}

// take adds bytes to the share, and reports whether the budget has as many.
func (s *share) take(n int64) bool {
	if s.of.held.Add(n) > maxHeld {
		s.of.held.Add(-n)
		return false
	}
	s.held += n
	return true
}

// giveBack returns the share to the budget.
func (s *share) giveBack() {
	s.of.held.Add(-s.held)
	s.held = 0
}

// bodyBytes returns how long the body of a request may become.
func bodyBytes(r *http.Request) int64 {
	if r.ContentLength < 0 || r.ContentLength > web.MaxBody {
		return web.MaxBody
	}
	return r.ContentLength
}

// refuseForMemory answers a request for which there is no memory.
func refuseForMemory(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	writeError(w, http.StatusServiceUnavailable, errMemory.Error())
}
