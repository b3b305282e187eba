package client

import (
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Registry knows who is connected, and what all of them hold.
type Registry struct {
	Log       *slog.Logger // for what clients cause
	MaxPushes atomic.Int64 // bytes that wait to be pushed to one client; 0 for any number
	OutputCut atomic.Int64 // connections ended because they read too little

	Holdings        holdings
	Census          census
	Unauthenticated Unauthenticated
	newcomersLimit  atomic.Pointer[MemoryLimit]

	mu      sync.Mutex
	last    int64 // id
	ByID    map[int64]*Client
	Leaving int64 // bytes that evicted clients hold until they are gone
	Left    chan struct{}
}

// Add gives a session its id: 1 for the first, never used again.
func (c *Registry) Add(s *Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	s.ID = c.last
	c.ByID[s.ID] = s
}

// Remove has nobody see the session any more. What it still holds counts with what is on its way
// out.
func (c *Registry) Remove(s *Client) {
	weight := s.Weight()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ByID[s.ID] == nil {
		return
	}
	delete(c.ByID, s.ID)
	c.leave(s, weight)
	c.NoteDeparture()
}

func (c *Registry) NoteDeparture() {
	select {
	case c.Left <- struct{}{}:
	default:
	}
}

// Get finds a session by its id, nil if it is not connected.
func (c *Registry) Get(id int64) *Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ByID[id]
}

func (c *Registry) Count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ByID)
}

// AllUnsorted is everybody who is connected, in any order.
func (c *Registry) AllUnsorted() []*Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]*Client, 0, len(c.ByID))
	for _, s := range c.ByID {
		list = append(list, s)
	}
	return list
}

// All is the same, the oldest first.
func (c *Registry) All() []*Client {
	list := c.AllUnsorted()
	slices.SortFunc(list, func(a, b *Client) int { return int(a.ID - b.ID) })
	return list
}

// census is what all clients together take, as it was when Sample looked last: of ten thousand it
// takes a millisecond to find out, for which nobody should wait.
type census struct {
	Bytes          atomic.Int64
	Input, Replies atomic.Int64 // the most that one has: bytes that were read and wait, and room for replies
	looked         int64        // instant, nanoseconds; Sample's own
}

const censusEvery = int64(time.Second)

// SampleBuffers takes the census, once a second.
func (c *Registry) SampleBuffers(now int64) {
	found := &c.Census
	if now-found.looked < censusEvery {
		return
	}
	found.looked = now
	var input, replies int64
	for _, s := range c.AllUnsorted() {
		m := s.Memory(nil)
		input, replies = max(input, m.Unread), max(replies, m.Room)
	}
	found.Bytes.Store(c.Holdings.Bytes.Load()) // less than the sum, of messages for many
	found.Input.Store(input)
	found.Replies.Store(replies)
}
