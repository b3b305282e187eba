package grpcapi

import (
	"encoding/binary"
	"net"
)

// The parts of HTTP/2 (RFC 9113) that say which requests a connection has.
const (
	preface        = 24 // bytes before the first frame of a client
	frameHeader    = 9  // bytes
	dataFrame      = 0
	headersFrame   = 1
	resetFrame     = 3
	continuesFrame = 9    // continues the fields of headersFrame
	endsStream     = 0x01 // a flag of dataFrame and headersFrame
)

// frame is the header of a frame.
type frame struct {
	length      int // bytes after the header
	kind, flags byte
	stream      uint32
}

// frames finds the headers of frames in the bytes of one direction, in whatever parts the bytes come.
type frames struct {
	skipped int // bytes before the next header
	header  [frameHeader]byte
	filled  int // bytes of header
}

// next returns the next frame whose header is complete in b, and the bytes after the header. It returns false if there
// is none.
func (f *frames) next(b []byte) (next frame, rest []byte, found bool) {
	for len(b) > 0 {
		if f.skipped > 0 {
			n := min(f.skipped, len(b))
			f.skipped, b = f.skipped-n, b[n:]
			continue
		}
		n := copy(f.header[f.filled:], b)
		f.filled, b = f.filled+n, b[n:]
		if f.filled < frameHeader {
			break
		}
		h := &f.header
		next = frame{length: int(h[0])<<16 | int(h[1])<<8 | int(h[2]), kind: h[3], flags: h[4],
			stream: binary.BigEndian.Uint32(h[5:]) &^ (1 << 31)}
		f.filled, f.skipped = 0, next.length
		return next, b, true
	}
	return frame{}, nil, false
}

// watched is a connection whose frames are counted. It is above TLS.
type watched struct {
	net.Conn
	of *conn
}

// Read implements net.Conn. Frames count before grpc-go sees them.
func (c watched) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		if err := c.of.count(func(h *holding) int64 { return h.receive(b[:n]) }); err != nil {
			return 0, err
		}
	}
	return n, err
}

// Write implements net.Conn.
func (c watched) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if n > 0 {
		_ = c.of.count(func(h *holding) int64 { return h.send(b[:n]) }) // less than before, so there is no error
	}
	return n, err
}

// receive returns by how much received bytes change what the connection holds. h.mu must be locked.
func (h *holding) receive(b []byte) (more int64) {
	for f, rest, found := h.received.next(b); found; f, rest, found = h.received.next(rest) {
		switch {
		case f.kind == headersFrame && f.stream > h.latest:
			h.latest = f.stream
			more += h.grow(f.stream, requestBytes+fieldBytes(f.length))
		case f.kind == resetFrame:
			more += h.end(f.stream)
		case h.requests[f.stream] == 0: // of no request, or of one that has ended
		case f.kind == dataFrame:
			more += h.grow(f.stream, messageFactor*int64(f.length))
		case f.kind == continuesFrame:
			more += h.grow(f.stream, fieldBytes(f.length))
		}
	}
	return more
}

// send returns by how much sent bytes change what the connection holds. h.mu must be locked.
func (h *holding) send(b []byte) (more int64) {
	for f, rest, found := h.sent.next(b); found; f, rest, found = h.sent.next(rest) {
		ends := (f.kind == headersFrame || f.kind == dataFrame) && f.flags&endsStream != 0
		if ends || f.kind == resetFrame {
			more += h.end(f.stream)
		}
	}
	return more
}

func (h *holding) grow(stream uint32, bytes int64) int64 {
	h.requests[stream] += bytes
	return bytes
}

func (h *holding) end(stream uint32) int64 {
	bytes := h.requests[stream]
	delete(h.requests, stream)
	return -bytes
}

// fieldBytes returns the memory of the fields of a request in a frame of so many bytes.
func fieldBytes(length int) int64 { return min(fieldFactor*int64(length), maxFieldBytes) }
