package commands

import (
	"cmp"
	"slices"
	"sync/atomic"
)

// What clients make the server hold: input that is not answered, replies and messages that are not read, queued calls,
// watched keys, subscriptions, prefixes, names. It is counted where it grows, by session and for all, and has one bound for all.

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

// charge counts bytes that the session holds more, or less. It is the session's own to call; others use chargeMail.
func (c *Client) charge(bytes int) {
	if bytes == 0 {
		return
	}
	if n := c.newcomer; n != nil {
		n.grow(bytes)
	}
	c.hold(bytes)
}

// chargeAside counts bytes that others have, or make, for the client, from any goroutine.
func (c *Client) chargeAside(bytes int) {
	c.mail.mu.Lock()
	defer c.mail.mu.Unlock()
	c.chargeMail(bytes)
}

// chargeMail is chargeAside with the mail's lock. A session that is closed holds nothing.
func (c *Client) chargeMail(bytes int) {
	if !c.mail.closed && bytes != 0 {
		c.hold(bytes)
	}
}

func (c *Client) hold(bytes int) {
	c.holds.Add(int64(bytes))
	if total := c.among.holdings.bytes.Add(int64(bytes)); bytes > 0 {
		c.among.bound(total)
	}
}

// release ends the counting: the session is closed.
func (c *Client) release() {
	c.leaveNewcomers()
	total := c.among.holdings.bytes.Add(-c.holds.Swap(0))
	c.among.hasLeft(c)
	c.among.bound(total)
}

// bound has clients evicted if all of them hold too much.
func (c *clients) bound(total int64) {
	h := &c.holdings
	if most := h.most.Load(); most > 0 && total > most && !h.vain.Load() && h.evicting.CompareAndSwap(false, true) {
		go c.evict()
	}
}

// evict ends the connections of those who hold most, as many as it takes.
func (c *clients) evict() {
	h := &c.holdings
	defer h.evicting.Store(false)
	for most := h.most.Load(); most > 0; {
		leave, enough := c.largest(h.bytes.Load() - most)
		for _, s := range leave {
			h.evicted.Add(1)
			c.log.Warn("a client is evicted: together they hold more than maxmemory-clients", "peer", s.peer.Remote)
			s.peer.Cut()
		}
		if h.vain.Store(!enough); len(leave) == 0 {
			return
		}
	}
}

// weight is what a session holds, of a message that several hold only its part: so the weights of all are what all hold
// together, and a client is not taken for large because it hears what a thousand others hear.
func (c *Client) weight() int64 {
	c.mail.mu.Lock()
	defer c.mail.mu.Unlock()
	weight := c.holds.Load() - c.lent.ofOthers()
	for _, p := range c.pending {
		weight -= p.ofOthers()
	}
	for _, p := range c.mail.pushes {
		weight -= p.ofOthers()
	}
	return weight
}

// ofOthers is the part of a piece that the others have who hold it, in equal parts.
func (p piece) ofOthers() int64 {
	if p.of == nil {
		return 0
	}
	size := int64(len(p.bytes))
	return size - size/int64(max(p.of.holders.Load(), 1))
}

// candidate is a client that may be evicted, and its weight when it was looked at.
type candidate struct {
	*Client
	weight int64
}

// weigh puts those that may be evicted in order, the largest first.
func (c *clients) weigh() (list []candidate) {
	for _, s := range c.some() {
		if !s.isSpared() {
			list = append(list, candidate{s, s.weight()})
		}
	}
	slices.SortFunc(list, func(a, b candidate) int { return cmp.Compare(b.weight, a.weight) })
	return list
}

// largest takes those that hold most out of those that stay, until they hold so many bytes; those that are on their way out
// count. enough is false if there are none left to take. Of a message that some keep who stay nothing is given back when the others
// go: then it is asked again.
func (c *clients) largest(bytes int64) (leave []*Client, enough bool) {
	if c.areLeaving(bytes) {
		return nil, true
	}
	list := c.weigh()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range list {
		if bytes <= c.leaving {
			break
		}
		if c.byID[s.id] != nil && s.leaves == 0 {
			c.leave(s.Client, s.weight)
			leave = append(leave, s.Client)
		}
	}
	return leave, bytes <= c.leaving
}

func (c *clients) areLeaving(bytes int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes <= c.leaving
}

// leave counts what a session weighs as being on its way out, once. It needs the lock.
func (c *clients) leave(s *Client, weight int64) {
	if s.leaves == 0 {
		s.leaves = max(weight, 1)
		c.leaving += s.leaves
	}
}

// hasLeft says that a session is gone.
func (c *clients) hasLeft(s *Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaving -= s.leaves
	s.leaves = 0
}

// isSpared says whether CLIENT NO-EVICT is on.
func (c *Client) isSpared() bool {
	c.about.mu.Lock()
	defer c.about.mu.Unlock()
	return c.about.noEvict
}
