package commands

import (
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// clients knows who is connected, and what all of them hold.
type clients struct {
	log       *slog.Logger // for what clients cause
	maxPushes atomic.Int64 // bytes that wait to be pushed to one client; 0 for any number
	outputCut atomic.Int64 // connections ended because they read too little

	holdings       holdings
	census         census
	newcomers      Newcomers
	newcomersLimit atomic.Pointer[Share]

	mu      sync.Mutex
	last    int64 // id
	byID    map[int64]*Client
	leaving int64 // bytes that evicted clients hold until they are gone
	left    chan struct{}
}

// add gives a session its id: 1 for the first, never used again.
func (c *clients) add(s *Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	s.id = c.last
	c.byID[s.id] = s
}

// remove has nobody see the session any more. What it still holds counts with what is on its way out.
func (c *clients) remove(s *Client) {
	weight := s.weight()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byID[s.id] == nil {
		return
	}
	delete(c.byID, s.id)
	c.leave(s, weight)
	c.noteLeft()
}

func (c *clients) noteLeft() {
	select {
	case c.left <- struct{}{}:
	default:
	}
}

// get finds a session by its id, nil if it is not connected.
func (c *clients) get(id int64) *Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byID[id]
}

func (c *clients) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.byID)
}

// some is everybody who is connected, in any order.
func (c *clients) some() []*Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]*Client, 0, len(c.byID))
	for _, s := range c.byID {
		list = append(list, s)
	}
	return list
}

// all is the same, the oldest first.
func (c *clients) all() []*Client {
	list := c.some()
	slices.SortFunc(list, func(a, b *Client) int { return int(a.id - b.id) })
	return list
}

// census is what all clients together take, as it was when Sample looked last: of ten thousand it takes a millisecond to find out, for
// which nobody should wait.
type census struct {
	bytes          atomic.Int64
	input, replies atomic.Int64 // the most that one has: bytes that were read and wait, and room for replies
	looked         int64        // instant, nanoseconds; Sample's own
}

const censusEvery = int64(time.Second)

// look takes the census, once a second.
func (c *clients) look(now int64) {
	found := &c.census
	if now-found.looked < censusEvery {
		return
	}
	found.looked = now
	var input, replies int64
	for _, s := range c.some() {
		m := s.memory(nil)
		input, replies = max(input, m.unread), max(replies, m.room)
	}
	found.bytes.Store(c.holdings.bytes.Load()) // less than the sum, of messages for many
	found.input.Store(input)
	found.replies.Store(replies)
}
