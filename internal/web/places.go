package web

import (
	"net/http"

	"cellserver/internal/client"
)

// A port has places for a number of connections. A connection that waits for its peer makes room for a new connection:
// first connections of unauthenticated peers, which have no right to their places. Users have at most half of the
// places, because a request of a user may wait for hours. If all places of users are taken, a user that needs one gets
// it from the user with the most. So at least half of the places are left to gateways, whatever other peers do.

// Kind says what is known about a peer. Connections make room in this order.
type Kind int

// The kinds of peers.
const (
	Unauthenticated Kind = iota // has not made a request that was accepted
	User                        // has logged in, or need not
	Gateway                     // asks about requests of its own clients, and never waits
)

// owner is the peer of a connection that is known.
type owner struct {
	kind    Kind
	account *client.Account
}

// Know notes that a request comes from a known peer. From now on, the memory of its connection is charged to the peer's
// client, by charge, and its place is one of the kind. If Know returns false, users have no place left, and the caller
// must refuse the request. A connection of a user stays one, even if it makes requests of a gateway too.
func Know(r *http.Request, kind Kind, account *client.Account, charge func(bytes int)) bool {
	c := connOf(r)
	if c == nil {
		return true
	}
	if o := c.owner.Load(); o != nil && (o.kind == User && kind == Gateway || *o == owner{kind, account}) {
		return true
	}
	if !c.server.own(c, &owner{kind, account}) {
		return false
	}
	c.turn.end()
	c.memory.toClient(charge)
	return true
}

// Forget notes that the client of Know has left. The peer is unauthenticated again.
func Forget(r *http.Request) {
	c := connOf(r)
	if c == nil || c.owner.Load() == nil {
		return
	}
	c.server.own(c, nil)
	c.toUnauthenticated()
	if r.ProtoMajor == 1 {
		c.turn.resume()
	}
}

// own makes a peer the owner of a connection, nil for an unauthenticated peer. It returns false if there is no place.
func (s *Server) own(c *conn, by *owner) bool {
	s.mu.Lock()
	before := c.owner.Load()
	var victim *conn
	ok := true
	if by != nil && by.kind == User && (before == nil || before.kind != User) {
		victim, ok = s.userPlace(by.account)
	}
	if ok {
		c.owner.Store(by)
		if s.conns[c] { // else it has been cut
			s.countUser(before, -1)
			s.countUser(by, 1)
		}
	}
	s.mu.Unlock()
	if victim != nil {
		victim.cut()
	}
	return ok
}

// countUser adds n to the number of the connections of a user. The caller holds mu.
func (s *Server) countUser(o *owner, n int) {
	if o == nil || o.kind != User {
		return
	}
	s.users += n
	if s.byUser[o.account] += n; s.byUser[o.account] <= 0 {
		delete(s.byUser, o.account)
	}
}

// userPlace finds a place for a connection of a user. If users have all of theirs, victim is the connection that
// makes room: one that waits for its peer, or one of the user with the most connections. The caller holds mu.
func (s *Server) userPlace(account *client.Account) (victim *conn, ok bool) {
	if s.users < max(s.config.MaxConns/2, 1) {
		return nil, true
	}
	if victim = s.longestWaiting(User, User); victim != nil {
		return victim, true
	}
	most := account
	for other, conns := range s.byUser {
		if conns > s.byUser[most]+1 {
			most = other
		}
	}
	if most == account {
		return nil, false
	}
	for c := range s.conns {
		if o := c.owner.Load(); o != nil && *o == (owner{User, most}) {
			return c, true
		}
	}
	return nil, false
}

// longestWaiting returns the connection that has waited for its peer for longest, of the first kind of peers from
// one to another that have such a connection; nil if there is none. The caller holds mu.
func (s *Server) longestWaiting(from, to Kind) (longest *conn) {
	var kind Kind
	var since uint64
	for c := range s.conns {
		k, at := c.kind(), c.since.Load()
		if at != 0 && from <= k && k <= to && (longest == nil || k < kind || k == kind && at < since) {
			longest, kind, since = c, k, at
		}
	}
	return longest
}

// kind returns what is known about the peer.
func (c *conn) kind() Kind {
	switch o := c.owner.Load(); {
	case o != nil:
		return o.kind
	case c.trusted:
		return Gateway
	}
	return Unauthenticated
}

// admit gives a new connection a place. It returns false if there is none.
func (s *Server) admit(c *conn) bool {
	for {
		s.mu.Lock()
		if len(s.conns) < s.config.MaxConns {
			s.conns[c] = true
			s.mu.Unlock()
			return true
		}
		longest := s.longestWaiting(Unauthenticated, Gateway)
		s.mu.Unlock()
		if longest == nil {
			return false
		}
		longest.cut()
	}
}

// removeConn takes a connection's place from it.
func (s *Server) removeConn(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns[c] {
		delete(s.conns, c)
		s.countUser(c.owner.Load(), -1)
	}
}

// Conns returns the number of open connections.
func (s *Server) Conns() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}
