package commands

import (
	"cmp"
	"slices"
	"sync/atomic"
)

// What clients make the server hold: input that is not answered, replies and messages that are not read, queued calls,
// watched keys, subscriptions, names. It is counted where it grows, by session and for all, and has one bound for all.

// holdings are what all clients hold together.
type holdings struct {
	bytes    atomic.Int64
	most     atomic.Int64          // maxmemory-clients in bytes; 0 for no bound
	limit    atomic.Pointer[Share] // and as it was told
	evicting atomic.Bool           // a goroutine looks for the largest
	vain     atomic.Bool           // none could be evicted: the next Sample looks again
	evicted  atomic.Int64          // how many were
}

// sessionBytes is about what a session takes with nothing to do, beside what its transport keeps for it (see Peer).
const sessionBytes = 5 << 10

// What one more of these takes beside its name.
const (
	watchBytes        = 256 // a watch, and its places in two tables
	subscriptionBytes = 320 // a subscription, and its places in three
	queuedBytes       = 40  // a queued call
	wordBytes         = 24  // a word of it
)

// charge counts bytes that the session holds more, or less. It is the session's own to call; others use chargeMail.
func (s *Session) charge(bytes int) {
	if bytes == 0 {
		return
	}
	if n := s.newcomer; n != nil {
		n.grow(bytes)
	}
	s.hold(bytes)
}

// chargeAside counts bytes that others have, or make, for the client, from any goroutine.
func (s *Session) chargeAside(bytes int) {
	s.mail.mu.Lock()
	defer s.mail.mu.Unlock()
	s.chargeMail(bytes)
}

// chargeMail is chargeAside with the mail's lock. A session that is closed holds nothing.
func (s *Session) chargeMail(bytes int) {
	if !s.mail.closed && bytes != 0 {
		s.hold(bytes)
	}
}

func (s *Session) hold(bytes int) {
	s.holds.Add(int64(bytes))
	if total := s.instance.holdings.bytes.Add(int64(bytes)); bytes > 0 {
		s.instance.boundHoldings(total)
	}
}

// release ends the counting: the session is closed.
func (s *Session) release() {
	s.leaveNewcomers()
	total := s.instance.holdings.bytes.Add(-s.holds.Swap(0))
	s.instance.clients.hasLeft(s)
	s.instance.boundHoldings(total)
}

// boundHoldings has clients evicted if all of them hold too much.
func (in *Instance) boundHoldings(total int64) {
	h := &in.holdings
	if most := h.most.Load(); most > 0 && total > most && !h.vain.Load() && h.evicting.CompareAndSwap(false, true) {
		go in.evictClients()
	}
}

// evictClients ends the connections of those who hold most, as many as it takes.
func (in *Instance) evictClients() {
	h := &in.holdings
	defer h.evicting.Store(false)
	for most := h.most.Load(); most > 0; {
		leave, enough := in.clients.largest(h.bytes.Load() - most)
		for _, s := range leave {
			h.evicted.Add(1)
			in.clientLog.Warn("a client is evicted: together they hold more than maxmemory-clients", "peer", s.peer.Remote)
			s.peer.Cut()
		}
		if h.vain.Store(!enough); len(leave) == 0 {
			return
		}
	}
}

// largest takes those that hold most out of those that stay, until they hold so many bytes; those that are on their way out
// count. enough is false if there are none left to take.
func (c *clients) largest(bytes int64) (leave []*Session, enough bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if bytes <= c.leaving {
		return nil, true
	}
	list := make([]*Session, 0, len(c.byID))
	for _, s := range c.byID {
		if s.leaves == 0 && !s.isSpared() {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b *Session) int { return cmp.Compare(b.holds.Load(), a.holds.Load()) })
	for _, s := range list {
		if bytes <= c.leaving {
			break
		}
		c.leave(s)
		leave = append(leave, s)
	}
	return leave, bytes <= c.leaving
}

// leave counts what a session holds as being on its way out, once. It needs the lock.
func (c *clients) leave(s *Session) {
	if s.leaves == 0 {
		s.leaves = max(s.holds.Load(), 1)
		c.leaving += s.leaves
	}
}

// hasLeft says that a session is gone.
func (c *clients) hasLeft(s *Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaving -= s.leaves
	s.leaves = 0
}

// isSpared says whether CLIENT NO-EVICT is on.
func (s *Session) isSpared() bool {
	s.about.mu.Lock()
	defer s.about.mu.Unlock()
	return s.about.noEvict
}
