package server

import (
	"sync/atomic"
	"time"

	"cellserver/internal/session"
)

// outputBuffer tracks how much of a session's output has been sent, and applies the output limits
// to the rest.
type outputBuffer struct {
	limits        *atomic.Pointer[classLimits]
	sent          int   // bytes of the session's Output that the socket has accepted
	closingSince  int64 // instant, nanoseconds, since which only the last replies are sent
	overSoftSince int64 // instant, nanoseconds, since which the output is beyond Soft; 0 if it is not
}

// tlsBytes estimates the memory, in bytes, that crypto/tls uses for a connection after the
// handshake, with its buffers.
const tlsBytes = 20 << 10

// readBytes is the number of bytes that are read from a connection before other connections have
// their turn, as in Redis.
const readBytes = 16 << 10

// maxWrite is the number of bytes that are sent to a client at once, so that a reply of a gigabyte
// does not occupy an event loop.
const maxWrite = 256 << 10

// next returns the next piece of a session's output. It is empty if all of it has been sent.
func (o *outputBuffer) next(s *session.Session) []byte {
	out := s.Output()[o.sent:]
	return out[:min(len(out), maxWrite)]
}

// markSent records how many bytes of a piece the socket has accepted.
func (o *outputBuffer) markSent(s *session.Session, bytes int) {
	inPieces := o.sent > 0
	if o.sent += bytes; o.sent == len(s.Output()) {
		s.Sent()
		if o.sent = 0; o.waiting(s) == 0 {
			o.overSoftSince = 0
		}
	} else {
		inPieces = true
	}
	if inPieces && bytes > 0 {
		s.MarkActive() // a client that reads a long reply is not idle
	}
}

// waiting returns the number of bytes that the socket has not accepted.
func (o *outputBuffer) waiting(s *session.Session) int {
	return len(s.Output()) - o.sent + s.PieceBytes()
}

// uncheckedBytes is the number of bytes of replies that may be sent without applying the limits. It
// is the size of Redis's reply buffer, which its limits do not count. The limits apply to longer
// replies before the client has had time to read them, as in Redis.
const uncheckedBytes = 16 << 10

// closeTimeout is the time that a client may take to read its last replies.
const closeTimeout = 30 * time.Second

// closeTimedOut reports whether a connection that will be closed has waited for its client for
// closeTimeout.
func (o *outputBuffer) closeTimedOut(closing bool, now int64) bool {
	if !closing {
		return false
	}
	if o.closingSince == 0 {
		o.closingSince = now
	}
	return time.Duration(now-o.closingSince) > closeTimeout
}

// exceedsLimit reports whether to disconnect a client because of the bytes that wait for it,
// including messages.
func (o *outputBuffer) exceedsLimit(s *session.Session, now int64) bool {
	limit, waiting := o.limit(s), o.waiting(s)+s.PushedBytes()
	if limit.Hard > 0 && waiting > limit.Hard {
		return true
	}
	if limit.Soft == 0 || waiting <= limit.Soft {
		o.overSoftSince = 0
		return false
	}
	if o.overSoftSince == 0 {
		o.overSoftSince = now
	}
	return time.Duration(now-o.overSoftSince) > limit.SoftDuration
}

// limit returns the limit of the client's class.
func (o *outputBuffer) limit(s *session.Session) OutputLimit {
	limits := o.limits.Load()
	if s.IsSubscribed() {
		return limits.pubsub
	}
	return limits.normal
}
