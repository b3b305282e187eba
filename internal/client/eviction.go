package client

import (
	"cmp"
	"slices"
	"sync/atomic"
)

// Clients make the server hold memory: input that is not answered yet, unread replies and messages,
// queued calls, watched keys, subscriptions, prefixes, names. Each change is counted where it
// happens, for the client and for all clients together. While all together use more than
// maxmemory-clients, the clients that use most are disconnected.

// holdings is the memory that all clients use together, and the state of their eviction.
type holdings struct {
	bytes     atomic.Int64
	limit     atomic.Int64 // maxmemory-clients in bytes; 0 for no limit
	setting   atomic.Pointer[MemoryLimit]
	available atomic.Int64 // memory, in bytes, to which percentages in options refer; 0 if it is unknown
	running   atomic.Bool  // a goroutine is evicting
	exhausted atomic.Bool  // no client was left to evict: nothing is tried until RetryEviction
	evicted   atomic.Int64
}

// SessionBytes estimates the memory, in bytes, of an idle session without its transport (see Peer).
const SessionBytes = 5 << 10

// Charge adds bytes, which may be negative, to the memory that the client uses. Only the session
// calls it; other goroutines use ChargeAsync.
func (c *Client) Charge(bytes int) {
	if bytes == 0 {
		return
	}
	if u := c.unauthenticated; u != nil {
		u.Grow(bytes)
	}
	c.addHeld(bytes)
}

// ChargeAsync is like Charge, and may be called from any goroutine. It has no effect once the
// session has ended. It does not count towards the limit of unauthenticated clients.
func (c *Client) ChargeAsync(bytes int) {
	c.mailbox.mu.Lock()
	defer c.mailbox.mu.Unlock()
	c.chargeLocked(bytes)
}

// chargeLocked is ChargeAsync for a caller that holds the mailbox's lock.
func (c *Client) chargeLocked(bytes int) {
	if !c.mailbox.closed && bytes != 0 {
		c.addHeld(bytes)
	}
}

// HeldBytes returns the memory that the client uses. A message that many clients share counts in
// full for each.
func (c *Client) HeldBytes() int64 { return c.held.Load() }

func (c *Client) addHeld(bytes int) {
	c.held.Add(int64(bytes))
	c.registry.addHeld(bytes)
}

// addHeld adds bytes to the memory of all clients, and enforces the limit.
func (r *Registry) addHeld(bytes int) {
	if total := r.holdings.bytes.Add(int64(bytes)); bytes > 0 {
		r.enforceLimit(total)
	}
}

// Release subtracts everything that the client uses from the memory of all clients. The session
// calls it last.
func (c *Client) Release() {
	c.MarkAuthenticated()
	total := c.registry.holdings.bytes.Add(-c.held.Swap(0))
	c.registry.hasLeft(c)
	c.registry.enforceLimit(total)
}

// HeldBytes returns the memory that all clients use together. A message that many clients share
// counts once.
func (r *Registry) HeldBytes() int64 { return r.holdings.bytes.Load() }

// Eviction is the state of the eviction of clients.
type Eviction struct {
	Limit     int64 // maxmemory-clients in bytes; 0 for no limit
	Evicted   int64 // clients evicted since the server started
	Leaving   int64 // bytes that disconnected clients use until their sessions have ended
	Running   bool  // clients are being evicted
	Exhausted bool  // no client is left that may be evicted
}

// Eviction returns the state of the eviction of clients.
func (r *Registry) Eviction() Eviction {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &r.holdings
	return Eviction{Limit: h.limit.Load(), Evicted: h.evicted.Load(), Leaving: r.leaving, Running: h.running.Load(),
		Exhausted: h.exhausted.Load()}
}

// RetryEviction evicts clients again if all of them use too much and none could be evicted before:
// in the meantime one may have turned CLIENT NO-EVICT off.
func (r *Registry) RetryEviction() {
	r.holdings.exhausted.Store(false)
	r.enforceLimit(r.HeldBytes())
}

// enforceLimit starts a goroutine that evicts clients if total is beyond the limit.
func (r *Registry) enforceLimit(total int64) {
	h := &r.holdings
	limit := h.limit.Load()
	if limit > 0 && total > limit && !h.exhausted.Load() && h.running.CompareAndSwap(false, true) {
		go r.evict()
	}
}

// evict disconnects the clients that use most, until the others are within the limit.
func (r *Registry) evict() {
	h := &r.holdings
	defer h.running.Store(false)
	for limit := h.limit.Load(); limit > 0; {
		chosen, enough := r.largest(h.bytes.Load() - limit)
		for _, c := range chosen {
			h.evicted.Add(1)
			r.log.Warn("evicted a client: all clients together hold more than maxmemory-clients", "peer", c.Peer.Remote)
			c.Peer.Cut()
		}
		if h.exhausted.Store(!enough); len(chosen) == 0 {
			return
		}
	}
}

// Weight returns the memory by which clients are chosen for eviction. Clients that share a message
// each have an equal part of it. So the weights of all clients add up to the memory that they use
// together, and a client is not evicted for messages that a thousand others receive too.
func (c *Client) Weight() int64 {
	c.mailbox.mu.Lock()
	defer c.mailbox.mu.Unlock()
	weight := c.held.Load() - c.output.shared.ofOthers()
	for _, p := range c.output.pending {
		weight -= p.ofOthers()
	}
	for _, p := range c.mailbox.messages {
		weight -= p.ofOthers()
	}
	return weight
}

// ofOthers returns the part of a piece's bytes that belongs to the other clients that share it.
func (p Piece) ofOthers() int64 {
	if p.Of == nil {
		return 0
	}
	size := int64(len(p.Bytes))
	return size - size/int64(max(p.Of.holders.Load(), 1))
}

// candidate is a client that may be evicted, and its weight at one moment.
type candidate struct {
	*Client
	weight int64
}

// candidates returns the clients that may be evicted, the largest first.
func (r *Registry) candidates() (list []candidate) {
	for _, c := range r.AllUnsorted() {
		if !c.isExempt() {
			list = append(list, candidate{c, c.Weight()})
		}
	}
	slices.SortFunc(list, func(a, b candidate) int { return cmp.Compare(b.weight, a.weight) })
	return list
}

// largest returns the largest clients: enough of them to free so many bytes when they have left.
// Clients that are already leaving count first. enough is false if there are not enough clients to
// evict. Messages that a client shares with clients that stay are not freed; then evict calls
// largest again.
func (r *Registry) largest(bytes int64) (chosen []*Client, enough bool) {
	if r.areLeaving(bytes) {
		return nil, true
	}
	list := r.candidates()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range list {
		if bytes <= r.leaving {
			break
		}
		if r.byID[c.ID] != nil && c.leavingWeight == 0 {
			r.markLeaving(c.Client, c.weight)
			chosen = append(chosen, c.Client)
		}
	}
	return chosen, bytes <= r.leaving
}

// areLeaving reports whether the clients that are leaving use at least so many bytes.
func (r *Registry) areLeaving(bytes int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes <= r.leaving
}

// markLeaving adds the weight of a client that is about to leave to r.leaving, once. The caller
// holds the lock.
func (r *Registry) markLeaving(c *Client, weight int64) {
	if c.leavingWeight == 0 {
		c.leavingWeight = max(weight, 1)
		r.leaving += c.leavingWeight
	}
}

// hasLeft subtracts the weight of a client that has left.
func (r *Registry) hasLeft(c *Client) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaving -= c.leavingWeight
	c.leavingWeight = 0
}

// isExempt reports whether CLIENT NO-EVICT is on.
func (c *Client) isExempt() bool {
	c.Profile.Mu.Lock()
	defer c.Profile.Mu.Unlock()
	return c.Profile.NoEvict
}
