package grpcapi

import (
	"errors"
	"sync"
	"sync/atomic"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// The memory that the requests of all connections hold together is bounded: see client.Registry.RequestLimit. Beyond
// the bound, the connections that hold most are closed. A connection that holds no more than its part of the bound,
// which is a thousandth if there are a thousand connections, is therefore never closed for what others hold.
//
// The frames of both directions say which requests a connection has (see watched.go). A request counts from the frame
// that begins it to the frame that ends it, so it also counts while it waits for the rest of its message, and while the
// peer does not read the answer. In between, grpc-go keeps what belongs to the request, and tells nobody how much that
// is. A request whose handler runs when it is reset, or when its connection is closed, counts until the handler returns
// (see running.go). Such a connection keeps its place.

const (
	// requestBytes is the memory of a request: 12 KB measured. The stack of its goroutine takes 8 KB of this.
	requestBytes = 12 << 10
	// fieldFactor is the memory, in bytes, of a byte of the fields of a request: 95 measured, for fields that have been
	// sent before, which take one byte each. Whatever their form is, fields take less than maxFieldBytes.
	fieldFactor   = 96
	maxFieldBytes = 2 * maxHeaders
	// messageFactor is the memory, in bytes, of a byte of a message before it is decoded, and of its answer, which
	// repeats it with --envoy-metadata, without the buffers in which it arrives: see dataBytes. What the decoded message
	// takes until it is answered counts apart from that, because an entry may have two bytes, and takes ninety: see
	// decodedBytes.
	messageFactor = 2
	// frameBytes is the memory of a frame with a part of a message, besides the part itself: 40 bytes measured, and up to
	// twice as much while the list of the frames grows.
	frameBytes = 96
	// descriptorBytes and entryBytes are the memory of a decoded descriptor and of an entry, with the metadata of the
	// answer and the status: 970 and 180 bytes measured without the status. Each byte of text takes up to textFactor.
	descriptorBytes = 2 << 10
	entryBytes      = 192
	textFactor      = 3
)

// memory is what the requests of all connections hold.
type memory struct {
	bytes   atomic.Int64
	leaving atomic.Int64 // part of bytes, of connections that are being closed, or are closed
	closed  atomic.Int64 // part of leaving, of connections that are closed and have running handlers
}

// holding is what the requests of a connection hold.
type holding struct {
	bytes atomic.Int64 // all of it

	mu             sync.Mutex          // guards the following fields, and changes of bytes
	requests       map[uint32]*request // by the number of the stream, until the request is answered or reset
	running        int                 // handlers that have not returned
	latest         uint32              // the greatest number of a stream
	newest         *request            // of the stream latest; nil if it is not answered
	last           uint32              // streams with a greater number are not answered
	received, sent frames
	isInFields     bool // the next bytes of received are the rest of the fields of a request
	isClosed       bool
	isLeaving      bool // the connection is being closed: nothing more is counted; Server.mu guards this field, too
}

var errMemory = errors.New("the requests over gRPC hold too much memory at present")

// hold counts the bytes of a handshake. It returns errMemory if the connection must be closed.
func (c *conn) hold(bytes int) error {
	return c.count(func(*holding) int64 { return int64(bytes) })
}

// decodedBytes returns the memory that a decoded request takes until it is answered. Requests that check refuses for
// their descriptors are not decoded, so this is less than 1 MiB, and the text.
func decodedBytes(request any) (bytes int) {
	r, is := request.(*pb.RateLimitRequest)
	if !is || len(r.Descriptors) > maxDescriptors {
		return 0
	}
	text := len(r.Domain)
	for _, d := range r.Descriptors {
		bytes += descriptorBytes + entryBytes*len(d.GetEntries())
		for _, e := range d.GetEntries() {
			text += len(e.GetKey()) + len(e.GetValue())
		}
	}
	return bytes + textFactor*text
}

// count adds what change returns to what the connection holds. It returns errMemory if the connection must be closed.
func (c *conn) count(change func(h *holding) int64) error {
	h, all := &c.holding, &c.server.memory
	h.mu.Lock()
	if h.isLeaving {
		h.mu.Unlock()
		return errMemory
	}
	more := change(h)
	h.add(all, more)
	h.mu.Unlock()
	if more <= 0 || all.staying() <= c.server.instance.Clients.RequestLimit() || !c.server.cutLargest(c) {
		return nil
	}
	return errMemory
}

// add changes what the connection holds. h.mu must be locked.
func (h *holding) add(all *memory, more int64) {
	h.bytes.Add(more)
	all.bytes.Add(more)
	if h.isLeaving {
		all.leaving.Add(more)
	}
	if h.isClosed {
		all.closed.Add(more)
	}
}

// leave counts what the connection holds as leaving. h.mu and Server.mu must be locked.
func (h *holding) leave(all *memory) {
	if !h.isLeaving {
		h.isLeaving = true
		all.leaving.Add(h.bytes.Load())
	}
}

// staying is what the requests of connections hold that are not being closed.
func (m *memory) staying() int64 { return m.bytes.Load() - m.leaving.Load() }

// close stops counting a connection that is closed, but for the requests whose handlers run. It reports whether there
// are any. Server.mu must be locked.
func (h *holding) close(all *memory) (runs bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leave(all)
	for stream := range h.requests {
		h.add(all, h.reset(stream))
	}
	if h.running == 0 { // there may be messages of a handshake
		h.add(all, -h.bytes.Load())
	}
	h.isClosed = true
	all.closed.Add(h.bytes.Load())
	return h.running > 0
}

// cutLargest closes the connections that hold most, until the others are within the bound. It reports whether c is one
// of them.
func (s *Server) cutLargest(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.memory.staying() > s.instance.Clients.RequestLimit() {
		var largest *conn
		bytes := int64(0)
		for other := range s.conns {
			if held := other.holding.bytes.Load(); held > bytes && !other.holding.isLeaving {
				largest, bytes = other, held
			}
		}
		if largest == nil {
			break
		}
		h := &largest.holding
		h.mu.Lock()
		h.leave(&s.memory)
		h.mu.Unlock()
		s.counts.cut.Add(1)
		largest.Conn.Close()
	}
	return c.holding.isLeaving
}

// dataBytes returns the memory of a part of a message in a frame of so many bytes. The buffers of grpc-go have few
// sizes: see mem.DefaultBufferPool.
func dataBytes(length int) int64 {
	buffer := length
	switch {
	case length == 0:
		return 0
	case length > 4<<10:
		buffer = max(length, 16<<10)
	case length > 1<<10:
		buffer = 4 << 10
	}
	return int64(buffer) + messageFactor*int64(length) + frameBytes
}

// fieldBytes returns the memory of the fields of a request in a frame of so many bytes.
func fieldBytes(length int) int64 { return min(fieldFactor*int64(length), maxFieldBytes) }
