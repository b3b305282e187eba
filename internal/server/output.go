package server

import (
	"sync/atomic"
	"time"

	"cellserver/internal/commands"
)

// outputBuffer is what is known of the replies that wait for a client to read them, and judges
// whether they are too many.
type outputBuffer struct {
	limits  *atomic.Pointer[outputs]
	sent    int   // bytes of the session's Output that the socket has taken
	closing int64 // instant, nanoseconds, since when the connection only waits for its last replies to be read
	overdue int64 // instant, nanoseconds, since when more than Soft waits; 0 if it does not
}

// tlsBytes is about what crypto/tls keeps for a connection whose hands are shaken, its buffers
// among it.
const tlsBytes = 20 << 10

// readBytes is how much is read of a connection before the others have their turn; Redis reads as
// much.
const readBytes = 16 << 10

// piece is how much a client is sent at once, so that a reply of a gigabyte does not keep an event
// loop from the others.
const piece = 256 << 10

// next is the next piece of a session's output; empty when all of it is sent.
func (o *outputBuffer) next(s *commands.Session) []byte {
	out := s.Output()[o.sent:]
	return out[:min(len(out), piece)]
}

// wasSent says that the socket took a piece.
func (o *outputBuffer) wasSent(s *commands.Session, bytes int) {
	inPieces := o.sent > 0
	if o.sent += bytes; o.sent == len(s.Output()) {
		s.Sent()
		if o.sent = 0; o.waiting(s) == 0 {
			o.overdue = 0
		}
	} else {
		inPieces = true
	}
	if inPieces && bytes > 0 {
		s.Touch() // a client that reads is not idle
	}
}

// waiting is the number of bytes that the socket has not taken.
func (o *outputBuffer) waiting(s *commands.Session) int {
	return len(s.Output()) - o.sent + s.Following()
}

// uncounted is how many bytes of replies may be sent without a look at the limits: as many as Redis
// has a buffer for, which its limits do not count. Beyond it they hold before the client has had
// the time to read, as in Redis.
const uncounted = 16 << 10

// patience is how long a client may take to read its last replies.
const patience = 30 * time.Second

// stuck says whether a connection that is to end has waited for its client long enough.
func (o *outputBuffer) stuck(closing bool, now int64) bool {
	if !closing {
		return false
	}
	if o.closing == 0 {
		o.closing = now
	}
	return time.Duration(now-o.closing) > patience
}

// tooMuch says whether a client for whom bytes wait, pushes among them, is to be cut off.
func (o *outputBuffer) tooMuch(s *commands.Session, now int64) bool {
	limit, waiting := o.limit(s), o.waiting(s)+s.PushedBytes()
	if limit.Hard > 0 && waiting > limit.Hard {
		return true
	}
	if limit.Soft == 0 || waiting <= limit.Soft {
		o.overdue = 0
		return false
	}
	if o.overdue == 0 {
		o.overdue = now
	}
	return time.Duration(now-o.overdue) > limit.SoftDuration
}

// limit is that of the client's class.
func (o *outputBuffer) limit(s *commands.Session) OutputLimit {
	limits := o.limits.Load()
	if s.Listens() {
		return limits.listens
	}
	return limits.normal
}
