package journal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

const (
	magic              = "cljrnl1\n"
	markBytes          = 8
	segmentHeaderBytes = 44
	frameHeaderBytes   = 40
	stampBytes         = 40
	lastPart           = 1 << 31

	// frameBytes is the approximate size of a frame: one write of that size is as fast as several
	// small ones, and the memory for it is negligible.
	frameBytes = 256 << 10
	// maxPayload bounds the payload of a frame, in bytes, and therefore an entry. The longest value
	// has 512 MiB.
	maxPayload = 1 << 30
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sum(p []byte) uint32 { return crc32.Checksum(p, castagnoli) }

// Header is the header of a segment.
type Header struct {
	Mark   uint64 // random
	Number uint64 // number of the segment
	First  uint64 // the number of its first pass, above 0
	Synced uint64 // the last pass that was known to be on the disk when the segment was created; 0 for none
}

// valid reports whether First is later than Synced: a pass cannot be on the disk before it is
// written.
func (h Header) valid() bool { return h.First > h.Synced }

func (h Header) bytes() []byte {
	p := make([]byte, 0, segmentHeaderBytes)
	p = append(p, magic...)
	p = binary.BigEndian.AppendUint64(p, h.Mark)
	p = binary.BigEndian.AppendUint64(p, h.Number)
	p = binary.BigEndian.AppendUint64(p, h.First)
	p = binary.BigEndian.AppendUint64(p, h.Synced)
	return binary.BigEndian.AppendUint32(p, sum(p))
}

// parseHeader parses a header. It returns false if the bytes are not a valid header.
func parseHeader(p []byte) (h Header, ok bool) {
	if len(p) < segmentHeaderBytes || string(p[:len(magic)]) != magic ||
		binary.BigEndian.Uint32(p[segmentHeaderBytes-4:]) != sum(p[:segmentHeaderBytes-4]) {
		return h, false
	}
	h = Header{
		Mark:   binary.BigEndian.Uint64(p[8:]),
		Number: binary.BigEndian.Uint64(p[16:]),
		First:  binary.BigEndian.Uint64(p[24:]),
		Synced: binary.BigEndian.Uint64(p[32:]),
	}
	return h, h.valid()
}

// Stamp is the time at which a pass began, by every clock that a reader may need to compute how
// much time has passed since.
type Stamp struct {
	Boot   [16]byte // identifier of the machine's boot
	Uptime int64    // ns since that boot, CLOCK_BOOTTIME
	Wall   int64    // Unix ns
	Clock  int64    // ns on the store's clock
}

func (s Stamp) append(p []byte) []byte {
	p = append(p, s.Boot[:]...)
	p = binary.BigEndian.AppendUint64(p, uint64(s.Uptime))
	p = binary.BigEndian.AppendUint64(p, uint64(s.Wall))
	return binary.BigEndian.AppendUint64(p, uint64(s.Clock))
}

func parseStamp(p []byte) (s Stamp) {
	copy(s.Boot[:], p)
	s.Uptime = int64(binary.BigEndian.Uint64(p[16:]))
	s.Wall = int64(binary.BigEndian.Uint64(p[24:]))
	s.Clock = int64(binary.BigEndian.Uint64(p[32:]))
	return s
}

// frame is the header of a frame.
type frame struct {
	pass   uint64
	synced uint64
	part   uint32
	last   bool
	length uint32
	sum    uint32 // of the payload
}

func (f frame) put(p []byte, mark uint64) {
	part := f.part
	if f.last {
		part |= lastPart
	}
	binary.BigEndian.PutUint64(p, mark)
	binary.BigEndian.PutUint64(p[8:], f.pass)
	binary.BigEndian.PutUint64(p[16:], f.synced)
	binary.BigEndian.PutUint32(p[24:], part)
	binary.BigEndian.PutUint32(p[28:], f.length)
	binary.BigEndian.PutUint32(p[32:], f.sum)
	binary.BigEndian.PutUint32(p[36:], sum(p[:36]))
}

// parseFrame parses the header of a frame. It returns false if the bytes do not begin with a valid
// header of a frame of this segment.
func parseFrame(p []byte, mark uint64) (f frame, ok bool) {
	if len(p) < frameHeaderBytes || binary.BigEndian.Uint64(p) != mark || binary.BigEndian.Uint32(p[36:]) != sum(p[:36]) {
		return f, false
	}
	part := binary.BigEndian.Uint32(p[24:])
	return frame{
		pass:   binary.BigEndian.Uint64(p[8:]),
		synced: binary.BigEndian.Uint64(p[16:]),
		part:   part &^ lastPart,
		last:   part&lastPart != 0,
		length: binary.BigEndian.Uint32(p[28:]),
		sum:    binary.BigEndian.Uint32(p[32:]),
	}, true
}

// Fault reports damage that a crash cannot explain.
type Fault struct {
	Offset int64  // where the bad frame begins
	Pass   uint64 // the first lost pass, after which all are lost; 0 if the whole segment is lost
	Reason string
}

func (f *Fault) Error() string {
	if f.Pass == 0 {
		return fmt.Sprintf("at byte %d: %s", f.Offset, f.Reason)
	}
	return fmt.Sprintf("at byte %d, in pass %d: %s, and later passes follow", f.Offset, f.Pass, f.Reason)
}
