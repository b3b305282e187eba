package client

import (
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Registry is the list of connected clients, with the limits on the memory that they use. It is
// safe for use by many goroutines.
type Registry struct {
	log       *slog.Logger
	maxPushes atomic.Int64 // bytes
	outputCut atomic.Int64

	holdings             holdings
	buffers              bufferSample
	unauthenticated      Unauthenticated
	unauthenticatedLimit atomic.Pointer[MemoryLimit]

	mu       sync.Mutex
	lastID   int64
	byID     map[int64]*Client
	streams  int   // clients whose connection counts already: see Peer.IsStream
	leaving  int64 // bytes: the sum of the clients' leavingWeight
	departed chan struct{}
}

// NewRegistry returns an empty registry. log is for events that clients cause, which may be
// frequent. Call SetMaxMemory, SetMaxMemoryUnauthenticated and UpdateLimits before the first client
// connects.
func NewRegistry(log *slog.Logger) *Registry {
	r := &Registry{log: log, byID: make(map[int64]*Client), departed: make(chan struct{}, 1)}
	r.maxPushes.Store(DefaultMaxPushes)
	return r
}

// Add puts a client into the registry and gives it an id. The first id is 1, and no id is used
// twice.
func (r *Registry) Add(c *Client) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastID++
	c.ID = r.lastID
	r.byID[c.ID] = c
	if c.Peer.IsStream {
		r.streams++
	}
}

// Remove takes a client out of the registry, so that no other client finds it any more. The memory
// that it still uses counts as leaving until Release.
func (r *Registry) Remove(c *Client) {
	weight := c.Weight()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byID[c.ID] == nil {
		return
	}
	delete(r.byID, c.ID)
	if c.Peer.IsStream {
		r.streams--
	}
	r.markLeaving(c, weight)
	r.NoteDeparture()
}

// Departed receives a value when a client has left. If several clients leave before the value is
// received, it receives only one.
func (r *Registry) Departed() <-chan struct{} { return r.departed }

// NoteDeparture sends to Departed without blocking. The transport calls it when a connection has
// ended that was not in the registry.
func (r *Registry) NoteDeparture() {
	select {
	case r.departed <- struct{}{}:
	default:
	}
}

// Get returns the client with an id, or nil if it is not connected.
func (r *Registry) Get(id int64) *Client {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byID[id]
}

// Count returns the number of connections that clients have.
func (r *Registry) Count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.byID) - r.streams
}

// AllUnsorted returns all clients in no particular order.
func (r *Registry) AllUnsorted() []*Client {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]*Client, 0, len(r.byID))
	for _, c := range r.byID {
		list = append(list, c)
	}
	return list
}

// All returns all clients in the order in which they connected.
func (r *Registry) All() []*Client {
	list := r.AllUnsorted()
	slices.SortFunc(list, func(a, b *Client) int { return int(a.ID - b.ID) })
	return list
}

// SetMaxPushes limits the bytes of messages that wait for one client; 0 is no limit. A client is
// disconnected if a message would exceed it.
func (r *Registry) SetMaxPushes(bytes int) { r.maxPushes.Store(int64(bytes)) }

// allowsPushes reports whether so many bytes of messages may wait for one client.
func (r *Registry) allowsPushes(bytes int) bool {
	limit := r.maxPushes.Load()
	return limit == 0 || int64(bytes) <= limit
}

// OutputCut returns the number of clients that were disconnected because they read too slowly.
func (r *Registry) OutputCut() int64 { return r.outputCut.Load() }

// bufferSample is the result of SampleBuffers. Sampling ten thousand clients takes a millisecond,
// so INFO and MEMORY STATS show the latest sample instead of taking one.
type bufferSample struct {
	bytes          atomic.Int64
	input, replies atomic.Int64
	taken          int64 // instant, nanoseconds; used by SampleBuffers alone
}

// sampleInterval is the time between two samples, in nanoseconds.
const sampleInterval = int64(time.Second)

// SampleBuffers samples the memory of all clients, unless the last sample is less than a second
// old. Only one goroutine may call it.
func (r *Registry) SampleBuffers(now int64) {
	sample := &r.buffers
	if now-sample.taken < sampleInterval {
		return
	}
	sample.taken = now
	var input, replies int64
	for _, c := range r.AllUnsorted() {
		m := c.Memory(nil)
		input, replies = max(input, m.Unread), max(replies, m.ReplyBuffer)
	}
	sample.bytes.Store(r.HeldBytes()) // not the sum over the clients: shared messages count once
	sample.input.Store(input)
	sample.replies.Store(replies)
}

// Buffers returns the latest sample: the memory of all clients together, and the largest unread
// input and the largest reply buffer of one client, in bytes.
func (r *Registry) Buffers() (total, maxInput, maxReplies int64) {
	return r.buffers.bytes.Load(), r.buffers.input.Load(), r.buffers.replies.Load()
}
