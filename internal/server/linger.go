package server

import (
	"sync/atomic"
	"time"
)

// Lingering close. A client that sends a value that is too long gets its error at once, while it is
// still sending. If the server closed the connection then, the system would answer the rest of the
// value with a reset, which discards the error before the client has read it: the client would see
// a broken pipe. So the server closes its direction of the connection, and reads and discards what
// arrives until the client closes its direction. The session has ended by then, and does not count
// towards maxclients.
const (
	maxLingering   = 32        // connections; each uses a descriptor, just so that its client gets an error
	maxLingerBytes = 512 << 20 // per connection: the longest value that Redis accepts
	maxLingerTime  = closeTimeout
	maxLingerIdle  = time.Second // time without input; also the interval of the check
)

// lingering counts the connections that linger, of all event loops or goroutines.
type lingering struct{ count atomic.Int64 }

// enter counts another connection. It returns false if there are maxLingering already.
func (l *lingering) enter() bool {
	if l.count.Add(1) > maxLingering {
		l.leave()
		return false
	}
	return true
}

func (l *lingering) leave() { l.count.Add(-1) }
