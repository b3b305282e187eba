package grpcapi

import "encoding/binary"

// The parts of HTTP/2 (RFC 9113) that say which requests a connection has.
const (
	preface        = 24 // bytes before the first frame of a client
	frameHeader    = 9  // bytes
	dataFrame      = 0
	headersFrame   = 1
	resetFrame     = 3
	goAwayFrame    = 7    // says which stream is the last that is answered
	continuesFrame = 9    // continues the fields of headersFrame
	endsStream     = 0x01 // a flag of dataFrame and headersFrame
	endsFields     = 0x04 // a flag of headersFrame and continuesFrame
	lastStream     = 4    // bytes of the stream in goAwayFrame
)

// frame is the header of a frame.
type frame struct {
	length      int // bytes after the header
	kind, flags byte
	stream      uint32
	last        uint32 // of goAwayFrame
}

// frames finds the headers of frames in the bytes of one direction, in whatever parts the bytes come.
type frames struct {
	skipped int // bytes before the next header
	header  [frameHeader + lastStream]byte
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
		n := copy(f.header[f.filled:f.needed()], b)
		f.filled, b = f.filled+n, b[n:]
		if f.filled < f.needed() {
			continue
		}
		h := &f.header
		next = frame{length: f.length(), kind: h[3], flags: h[4], stream: binary.BigEndian.Uint32(h[5:]) &^ (1 << 31)}
		if f.filled > frameHeader {
			next.last = binary.BigEndian.Uint32(h[frameHeader:]) &^ (1 << 31)
		}
		f.filled, f.skipped = 0, next.length-(f.filled-frameHeader)
		return next, b, true
	}
	return frame{}, nil, false
}

// needed returns the number of bytes of header that are needed.
func (f *frames) needed() int {
	if f.filled >= frameHeader && f.header[3] == goAwayFrame && f.length() >= lastStream {
		return frameHeader + lastStream
	}
	return frameHeader
}

func (f *frames) length() int { return int(f.header[0])<<16 | int(f.header[1])<<8 | int(f.header[2]) }
