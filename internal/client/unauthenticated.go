package client

import (
	"container/list"
	"sync"
	"time"
)

// Unauthenticated counts the memory of connections that have not authenticated although a password
// is required, and of connections whose TLS handshake is not finished. Any peer that reaches the
// server can open such connections, so their memory has its own limit, and the oldest connections
// are cut first: a client that means to authenticate does so at once, and is hardly ever the
// oldest.
type Unauthenticated struct {
	mu      sync.Mutex
	limit   int64     // bytes
	bytes   int64     // of the connections in conns
	leaving int64     // bytes of connections that were cut and have not ended yet
	conns   list.List // of *UnauthenticatedConn that were not cut, the oldest first
	cut     int64     // number of connections that were cut
}

// UnauthenticatedConn is a connection that Unauthenticated counts.
type UnauthenticatedConn struct {
	all   *Unauthenticated
	bytes int64
	idle  func() bool // reports whether it waits for its peer; nil if it always does
	cut   func()
	entry *list.Element // in conns; nil once it was cut or has left
	left  bool
}

// Enter counts a connection that uses so many bytes. cut is called, from any goroutine, to close
// it. A connection for which idle returns false, because it waits for a processor rather than for
// its peer, is cut only if no idle connection is left. The new connection is cut last: otherwise no
// connection could enter while all others are busy.
func (u *Unauthenticated) Enter(bytes int, idle func() bool, cut func()) *UnauthenticatedConn {
	c := &UnauthenticatedConn{all: u, idle: idle, cut: cut, bytes: int64(bytes)}
	cutAll(u.enter(c))
	return c
}

func (u *Unauthenticated) enter(c *UnauthenticatedConn) (excess []*UnauthenticatedConn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	c.entry = u.conns.PushBack(c)
	u.bytes += c.bytes
	return u.enforceLimit(c)
}

// cutAll closes connections. It is called without the lock, because cut may call back.
func cutAll(conns []*UnauthenticatedConn) {
	for _, c := range conns {
		c.cut()
	}
}

// Grow adds bytes, which may be negative, to the memory of the connection.
func (c *UnauthenticatedConn) Grow(bytes int) { cutAll(c.all.add(c, int64(bytes))) }

// add counts bytes, and returns the connections to cut.
func (u *Unauthenticated) add(c *UnauthenticatedConn, bytes int64) (excess []*UnauthenticatedConn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case c.left:
		return nil
	case c.entry == nil:
		u.leaving += bytes
	default:
		u.bytes += bytes
	}
	c.bytes += bytes
	return u.enforceLimit(nil)
}

// enforceLimit removes connections until the rest is within the limit, and returns them. newest is
// the connection that has just entered, or nil. The caller holds the lock.
func (u *Unauthenticated) enforceLimit(newest *UnauthenticatedConn) (excess []*UnauthenticatedConn) {
	for u.bytes > u.limit && u.conns.Len() > 0 {
		c := u.next(newest)
		u.conns.Remove(c.entry)
		c.entry = nil
		u.bytes -= c.bytes
		u.leaving += c.bytes
		u.cut++
		excess = append(excess, c)
	}
	return excess
}

// next returns the connection to cut next: the oldest idle connection, else the oldest, and newest
// only if there is no other. The caller holds the lock, and there is at least one connection.
func (u *Unauthenticated) next(newest *UnauthenticatedConn) *UnauthenticatedConn {
	found := newest
	for entry := u.conns.Front(); entry != nil; entry = entry.Next() {
		c := entry.Value.(*UnauthenticatedConn)
		switch {
		case c == newest:
		case c.idle == nil || c.idle():
			return c
		case found == newest:
			found = c
		}
	}
	return found
}

// Leave stops counting the connection: it has authenticated, or has ended. Further calls have no
// effect.
func (c *UnauthenticatedConn) Leave() {
	u := c.all
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case c.left:
		return
	case c.entry == nil:
		u.leaving -= c.bytes
	default:
		u.conns.Remove(c.entry)
		u.bytes -= c.bytes
	}
	c.entry, c.left = nil, true
}

// setLimit changes the limit, in bytes.
func (u *Unauthenticated) setLimit(bytes int64) {
	u.mu.Lock()
	u.limit = bytes
	excess := u.enforceLimit(nil)
	u.mu.Unlock()
	cutAll(excess)
}

// UnauthenticatedStats describes the unauthenticated connections at one moment.
type UnauthenticatedStats struct {
	Connections  int   // that were not cut
	Bytes, Limit int64 // memory of all connections, with cut ones that have not ended yet
	Cut          int64 // connections cut since the server started
}

// Stats returns figures about the connections.
func (u *Unauthenticated) Stats() UnauthenticatedStats {
	u.mu.Lock()
	defer u.mu.Unlock()
	return UnauthenticatedStats{Connections: u.conns.Len(), Bytes: u.bytes + u.leaving, Limit: u.limit, Cut: u.cut}
}

// AwaitRoom waits up to 100 ms while a further connection would take memory that is not free yet: while the count
// is Overloaded, or connections that are not idle use almost all of the limit. It is called before a connection is
// accepted. Without it, a flood would cut each connection just before it is served.
func (u *Unauthenticated) AwaitRoom() {
	const pause, pauses = time.Millisecond, 100
	for n := 0; n < pauses && (u.Overloaded() || u.isBusy()); n++ {
		time.Sleep(pause)
	}
}

// Overloaded reports whether connections that were cut and have not ended yet use more than an eighth of the limit.
func (u *Unauthenticated) Overloaded() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.leaving > u.limit/8
}

func (u *Unauthenticated) isBusy() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.bytes <= u.limit/8*7 || u.conns.Len() == 0 {
		return false
	}
	next := u.next(nil)
	return next.idle != nil && !next.idle()
}

// Unauthenticated returns the count of unauthenticated connections. Transports use it for
// connections that are not clients yet.
func (r *Registry) Unauthenticated() *Unauthenticated { return &r.unauthenticated }

// Keep adds bytes that the transport would like to use for the connection. It returns false, and
// adds nothing, if the client has not authenticated.
func (c *Client) Keep(bytes int) bool {
	if c.unauthenticated != nil {
		return false
	}
	c.Charge(bytes)
	return true
}

// MarkUnauthenticated makes the client count among the unauthenticated clients. Only the session
// calls it.
func (c *Client) MarkUnauthenticated() {
	if c.unauthenticated == nil {
		c.unauthenticated = c.registry.unauthenticated.Enter(int(c.held.Load()), nil, c.Peer.Cut)
	}
}

// MarkAuthenticated undoes MarkUnauthenticated. Only the session calls it.
func (c *Client) MarkAuthenticated() {
	if c.unauthenticated != nil {
		c.unauthenticated.Leave()
		c.unauthenticated = nil
	}
}

// IsUnauthenticated reports whether the client counts among the unauthenticated clients. Only the
// session calls it.
func (c *Client) IsUnauthenticated() bool { return c.unauthenticated != nil }
