package grpcapi

import (
	"net"
	"sync"
)

// watched is a connection whose frames are counted. It is above TLS.
type watched struct {
	net.Conn
	of   *conn
	kept []byte  // arrived, and not yet returned by Read
	from *[]byte // the memory of kept, from keptBytes
}

// keptBytes has memory for the bytes that connections keep.
var keptBytes = sync.Pool{New: func() any { return new([]byte) }}

// Read implements net.Conn. Frames count before grpc-go sees them. No call returns bytes that follow the fields of a
// request, so grpc-go has seen these fields, and nothing that follows them, when it calls Server.tap.
func (c *watched) Read(b []byte) (n int, err error) {
	if len(c.kept) > 0 {
		n = copy(b, c.kept)
	} else if n, err = c.Conn.Read(b); n == 0 {
		return n, err
	}
	used := 0
	if full := c.of.count(func(h *holding) (more int64) {
		used, more = h.receive(c.of, b[:n])
		return more
	}); full != nil {
		return 0, full
	}
	c.keep(b[used:n], used)
	return used, err
}

// keep keeps what was not used of what was kept, or of what has arrived.
func (c *watched) keep(unused []byte, used int) {
	switch {
	case len(c.kept) > 0:
		c.kept = c.kept[used:]
	case len(unused) > 0:
		c.from = keptBytes.Get().(*[]byte)
		*c.from = append((*c.from)[:0], unused...)
		c.kept = *c.from
	}
	if len(c.kept) == 0 && c.from != nil {
		keptBytes.Put(c.from)
		c.kept, c.from = nil, nil
	}
}

// Write implements net.Conn.
func (c *watched) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if n > 0 {
		_ = c.of.count(func(h *holding) int64 { return h.send(b[:n]) }) // less than before, so there is no error
	}
	return n, err
}

// receive reads the frames in received bytes, up to the end of the fields of a request. It returns how many bytes these
// are, and by how much they change what the connection holds. h.mu must be locked.
func (h *holding) receive(c *conn, b []byte) (used int, more int64) {
	if h.isInFields {
		return h.skipFields(b), 0
	}
	for f, rest, found := h.received.next(b); found; f, rest, found = h.received.next(rest) {
		switch {
		case f.kind == headersFrame && f.stream > h.latest:
			h.latest, h.newest = f.stream, nil
			if f.stream <= h.last {
				h.newest = &request{of: c}
				h.requests[f.stream] = h.newest
				more += h.newest.grow(requestBytes + fieldBytes(f.length))
			}
		case f.kind == resetFrame:
			more += h.reset(f.stream)
		case h.requests[f.stream] == nil: // of no request, or of one that has ended
		case f.kind == dataFrame:
			more += h.requests[f.stream].grow(dataBytes(f.length))
		case f.kind == continuesFrame:
			more += h.requests[f.stream].grow(fieldBytes(f.length))
		}
		if (f.kind == headersFrame || f.kind == continuesFrame) && f.flags&endsFields != 0 {
			h.isInFields = true
			return len(b) - len(rest) + h.skipFields(rest), more
		}
	}
	return len(b), more
}

// skipFields skips the fields of a request, and returns how many bytes of b belong to them.
func (h *holding) skipFields(b []byte) int {
	n := min(h.received.skipped, len(b))
	h.received.next(b[:n])
	h.isInFields = h.received.skipped > 0
	return n
}

// send returns by how much sent bytes change what the connection holds. h.mu must be locked.
func (h *holding) send(b []byte) (more int64) {
	for f, rest, found := h.sent.next(b); found; f, rest, found = h.sent.next(rest) {
		switch ends := f.flags&endsStream != 0; {
		case ends && (f.kind == headersFrame || f.kind == dataFrame):
			more += h.finish(f.stream)
		case f.kind == resetFrame:
			more += h.reset(f.stream)
		case f.kind == goAwayFrame:
			more += h.goAway(f.last)
		}
	}
	return more
}

// goAway ends the requests after the last that is answered, and counts no more of them: grpc-go keeps nothing of them.
func (h *holding) goAway(last uint32) (more int64) {
	h.last = last
	for stream := range h.requests {
		if stream > last {
			more += h.finish(stream)
		}
	}
	return more
}
