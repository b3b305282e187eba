package server

import (
	"sync/atomic"
	"time"
)

// A client that sends a value that is too long has its error at once, while it still sends. To
// close the connection then would have the system answer the rest with a reset, which throws away
// the error before the client has read it: it would see a broken pipe. So the connection is closed
// in one direction only, and what arrives is read and thrown away until the client closes it too.
// Its session has ended by then, and its place is free.
const (
	maxLingering = 32        // connections at once: it is a courtesy, and takes a descriptor
	lingerBytes  = 512 << 20 // as much as the longest value that Redis takes
	lingerFor    = patience
	lingerIdle   = time.Second // without a byte: looked at as often
)

// lingering counts the connections that linger.
type lingering struct{ count atomic.Int64 }

// enter takes a place, if there is one.
func (l *lingering) enter() bool {
	if l.count.Add(1) > maxLingering {
		l.leave()
		return false
	}
	return true
}

func (l *lingering) leave() { l.count.Add(-1) }
