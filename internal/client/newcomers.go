package client

import (
	"container/list"
	"sync"
)

// Unauthenticated are the connections that have not logged in, where there is a password, and those whose
// TLS handshake is under way. Anybody may be one, so what is kept for all of them together is
// bounded, and the oldest is cut first: a client that means to log in does so at once, and is
// hardly ever the oldest.
type Unauthenticated struct {
	mu      sync.Mutex
	Most    int64     // bytes
	bytes   int64     // of those that stay
	leaving int64     // of those that were cut and are still there
	All     list.List // of *Newcomer that stay, the oldest first
	cut     int64     // how many were
}

// UnauthenticatedConn is one of them.
type UnauthenticatedConn struct {
	among *Unauthenticated
	bytes int64
	idle  func() bool // it waits for its peer; nil for always
	end   func()
	at    *list.Element // nil once it was cut, or has left
	left  bool
}

// Enter counts a connection for which so many bytes are kept. end is called, from any goroutine, if
// it is to be cut; one that is not idle, because it waits for a processor and not for its peer, is
// cut after all others. The one that enters is cut only if it is too large by itself: else it would
// never get in while all others are busy.
func (ns *Unauthenticated) Enter(bytes int, idle func() bool, end func()) *UnauthenticatedConn {
	n := &UnauthenticatedConn{among: ns, idle: idle, end: end, bytes: int64(bytes)}
	for _, oldest := range ns.enter(n) {
		oldest.end()
	}
	return n
}

func (ns *Unauthenticated) enter(n *UnauthenticatedConn) (cut []*UnauthenticatedConn) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	n.at = ns.All.PushBack(n)
	ns.bytes += n.bytes
	return ns.fit(n)
}

// Grow counts bytes that are kept for it more, or less.
func (n *UnauthenticatedConn) Grow(bytes int) { n.grow(bytes) }

func (n *UnauthenticatedConn) grow(bytes int) {
	for _, oldest := range n.among.add(n, int64(bytes)) {
		oldest.end()
	}
}

// add counts, and says which newcomers are to be cut for it.
func (ns *Unauthenticated) add(n *UnauthenticatedConn, bytes int64) (cut []*UnauthenticatedConn) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	switch {
	case n.left:
		return nil
	case n.at == nil:
		ns.leaving += bytes
	default:
		ns.bytes += bytes
	}
	n.bytes += bytes
	return ns.fit(nil)
}

// fit takes the oldest out until the others are within the bound: the one that enters last. It
// needs the lock.
func (ns *Unauthenticated) fit(enters *UnauthenticatedConn) (cut []*UnauthenticatedConn) {
	for ns.bytes > ns.Most && ns.All.Len() > 0 {
		n := ns.oldest(enters)
		ns.All.Remove(n.at)
		n.at = nil
		ns.bytes -= n.bytes
		ns.leaving += n.bytes
		ns.cut++
		cut = append(cut, n)
	}
	return cut
}

// oldest is the oldest that is idle, or else the oldest; the one that enters if there is no other.
// It needs the lock, and that there are some.
func (ns *Unauthenticated) oldest(enters *UnauthenticatedConn) *UnauthenticatedConn {
	found := enters
	for at := ns.All.Front(); at != nil; at = at.Next() {
		n := at.Value.(*UnauthenticatedConn)
		switch {
		case n == enters:
		case n.idle == nil || n.idle():
			return n
		case found == enters:
			found = n
		}
	}
	return found
}

// Leave ends the counting: it has logged in, or is gone.
func (n *UnauthenticatedConn) Leave() {
	ns := n.among
	ns.mu.Lock()
	defer ns.mu.Unlock()
	switch {
	case n.left:
		return
	case n.at == nil:
		ns.leaving -= n.bytes
	default:
		ns.All.Remove(n.at)
		ns.bytes -= n.bytes
	}
	n.at, n.left = nil, true
}

// limit changes the bound.
func (ns *Unauthenticated) limit(most int64) {
	ns.mu.Lock()
	ns.Most = most
	cut := ns.fit(nil)
	ns.mu.Unlock()
	for _, oldest := range cut {
		oldest.end()
	}
}

// Count is how many bytes are kept for all that are there, and how many were cut.
func (ns *Unauthenticated) Count() (bytes, cut int64) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	return ns.bytes + ns.leaving, ns.cut
}

// Overloaded says that many were cut who are not gone yet: more should not be let in until they are.
func (ns *Unauthenticated) Overloaded() bool {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	return ns.leaving > ns.Most/8
}

// Keep counts bytes more that the transport keeps for the connection; false if it is to do without,
// for a newcomer.
func (c *Client) Keep(bytes int) bool {
	if c.Unauthenticated != nil {
		return false
	}
	c.Charge(bytes)
	return true
}

// MarkUnauthenticated is for a session that has to log in; leaveNewcomers for one that has, or is over.
func (c *Client) MarkUnauthenticated() {
	if c.Unauthenticated == nil {
		c.Unauthenticated = c.Among.Unauthenticated.Enter(int(c.Held.Load()), nil, c.Peer.Cut)
	}
}

func (c *Client) MarkAuthenticated() {
	if c.Unauthenticated != nil {
		c.Unauthenticated.Leave()
		c.Unauthenticated = nil
	}
}
