package client

import (
	"cmp"
	"slices"
	"sync/atomic"
)

// What clients make the server hold: input that is not answered, replies and messages that are not
// read, queued calls, watched keys, subscriptions, prefixes, names. It is counted where it grows,
// by session and for all, and has one bound for all.

// holdings are what all clients hold together.
type holdings struct {
	Bytes    atomic.Int64
	Most     atomic.Int64                // maxmemory-clients in bytes; 0 for no bound
	limit    atomic.Pointer[MemoryLimit] // and as it was told
	Evicting atomic.Bool                 // a goroutine looks for the largest
	Vain     atomic.Bool                 // none could be evicted: the next Sample looks again
	Evicted  atomic.Int64                // how many were
}

// SessionBytes is about what a session takes with nothing to do, beside what its transport keeps
// for it (see Peer).
const SessionBytes = 5 << 10

// Charge counts bytes that the session holds more, or less. It is the session's own to call; others
// use chargeMail.
func (c *Client) Charge(bytes int) {
	if bytes == 0 {
		return
	}
	if n := c.Unauthenticated; n != nil {
		n.grow(bytes)
	}
	c.AddHeld(bytes)
}

// ChargeAsync counts bytes that others have, or make, for the client, from any goroutine.
func (c *Client) ChargeAsync(bytes int) {
	c.Mail.Mu.Lock()
	defer c.Mail.Mu.Unlock()
	c.chargeMail(bytes)
}

// chargeMail is chargeAside with the mail's lock. A session that is closed holds nothing.
func (c *Client) chargeMail(bytes int) {
	if !c.Mail.closed && bytes != 0 {
		c.AddHeld(bytes)
	}
}

func (c *Client) AddHeld(bytes int) {
	c.Held.Add(int64(bytes))
	if total := c.Among.Holdings.Bytes.Add(int64(bytes)); bytes > 0 {
		c.Among.Bound(total)
	}
}

// Release ends the counting: the session is closed.
func (c *Client) Release() {
	c.MarkAuthenticated()
	total := c.Among.Holdings.Bytes.Add(-c.Held.Swap(0))
	c.Among.hasLeft(c)
	c.Among.Bound(total)
}

// Bound has clients evicted if all of them hold too much.
func (c *Registry) Bound(total int64) {
	h := &c.Holdings
	if most := h.Most.Load(); most > 0 && total > most && !h.Vain.Load() && h.Evicting.CompareAndSwap(false, true) {
		go c.evict()
	}
}

// evict ends the connections of those who hold most, as many as it takes.
func (c *Registry) evict() {
	h := &c.Holdings
	defer h.Evicting.Store(false)
	for most := h.Most.Load(); most > 0; {
		leave, enough := c.largest(h.Bytes.Load() - most)
		for _, s := range leave {
			h.Evicted.Add(1)
			c.Log.Warn("evicted a client: all clients together hold more than maxmemory-clients", "peer", s.Peer.Remote)
			s.Peer.Cut()
		}
		if h.Vain.Store(!enough); len(leave) == 0 {
			return
		}
	}
}

// Weight is what a session holds, of a message that several hold only its part: so the weights of
// all are what all hold together, and a client is not taken for large because it hears what a
// thousand others hear.
func (c *Client) Weight() int64 {
	c.Mail.Mu.Lock()
	defer c.Mail.Mu.Unlock()
	weight := c.Held.Load() - c.Lent.ofOthers()
	for _, p := range c.Pending {
		weight -= p.ofOthers()
	}
	for _, p := range c.Mail.Pushes {
		weight -= p.ofOthers()
	}
	return weight
}

// ofOthers is the part of a piece that the others have who hold it, in equal parts.
func (p Piece) ofOthers() int64 {
	if p.Of == nil {
		return 0
	}
	size := int64(len(p.Bytes))
	return size - size/int64(max(p.Of.holders.Load(), 1))
}

// candidate is a client that may be evicted, and its weight when it was looked at.
type candidate struct {
	*Client
	weight int64
}

// weigh puts those that may be evicted in order, the largest first.
func (c *Registry) weigh() (list []candidate) {
	for _, s := range c.AllUnsorted() {
		if !s.isSpared() {
			list = append(list, candidate{s, s.Weight()})
		}
	}
	slices.SortFunc(list, func(a, b candidate) int { return cmp.Compare(b.weight, a.weight) })
	return list
}

// largest takes those that hold most out of those that stay, until they hold so many bytes; those
// that are on their way out count. enough is false if there are none left to take. Of a message
// that some keep who stay nothing is given back when the others go: then it is asked again.
func (c *Registry) largest(bytes int64) (leave []*Client, enough bool) {
	if c.areLeaving(bytes) {
		return nil, true
	}
	list := c.weigh()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range list {
		if bytes <= c.Leaving {
			break
		}
		if c.ByID[s.ID] != nil && s.leaves == 0 {
			c.leave(s.Client, s.weight)
			leave = append(leave, s.Client)
		}
	}
	return leave, bytes <= c.Leaving
}

func (c *Registry) areLeaving(bytes int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes <= c.Leaving
}

// leave counts what a session weighs as being on its way out, once. It needs the lock.
func (c *Registry) leave(s *Client, weight int64) {
	if s.leaves == 0 {
		s.leaves = max(weight, 1)
		c.Leaving += s.leaves
	}
}

// hasLeft says that a session is gone.
func (c *Registry) hasLeft(s *Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Leaving -= s.leaves
	s.leaves = 0
}

// isSpared says whether CLIENT NO-EVICT is on.
func (c *Client) isSpared() bool {
	c.Profile.Mu.Lock()
	defer c.Profile.Mu.Unlock()
	return c.Profile.NoEvict
}
