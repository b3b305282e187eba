package journal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

const (
	magic       = "cljrnl1\n"
	markBytes   = 8
	headerBytes = 44 // of a segment
	frameHead   = 40 // of a frame, before its payload
	stampBytes  = 40
	lastPart    = 1 << 31

	// frameBytes is about how large a frame is made: a write of that size costs a disk what several
	// smaller ones would, and memory for it is nothing.
	frameBytes = 256 << 10
	// maxPayload bounds a frame, and so an entry: values have 512 MiB at most.
	maxPayload = 1 << 30
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sum(p []byte) uint32 { return crc32.Checksum(p, castagnoli) }

// Header begins a segment.
type Header struct {
	Mark   uint64 // random
	Number uint64 // of the segment
	First  uint64 // the number of its first pass, above 0
	Synced uint64 // the last pass that was known to be on the disk when the segment was made; 0 is none
}

// valid: passes are counted from 1, and none is on the disk before it is written.
func (h Header) valid() bool { return h.First > h.Synced }

func (h Header) bytes() []byte {
	p := make([]byte, 0, headerBytes)
	p = append(p, magic...)
	p = binary.BigEndian.AppendUint64(p, h.Mark)
	p = binary.BigEndian.AppendUint64(p, h.Number)
	p = binary.BigEndian.AppendUint64(p, h.First)
	p = binary.BigEndian.AppendUint64(p, h.Synced)
	return binary.BigEndian.AppendUint32(p, sum(p))
}

// parseHeader is false if the bytes are no header as it was written.
func parseHeader(p []byte) (h Header, ok bool) {
	if len(p) < headerBytes || string(p[:len(magic)]) != magic ||
		binary.BigEndian.Uint32(p[headerBytes-4:]) != sum(p[:headerBytes-4]) {
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

// Stamp says when a pass was made, by every clock that may be needed to tell how much time has
// passed when it is read.
type Stamp struct {
	Boot   [16]byte // which boot of the machine
	Uptime int64    // ns since then, CLOCK_BOOTTIME
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

// frame is what the first bytes of a frame say.
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

// parseFrame is false if the bytes are not the first of a frame of this segment, as they were
// written.
func parseFrame(p []byte, mark uint64) (f frame, ok bool) {
	if len(p) < frameHead || binary.BigEndian.Uint64(p) != mark || binary.BigEndian.Uint32(p[36:]) != sum(p[:36]) {
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

// Fault says that something is wrong that no crash explains.
type Fault struct {
	Offset int64  // where the bad frame begins
	Pass   uint64 // the pass that is lost; those after it are lost with it. 0: all
	Reason string
}

func (f *Fault) Error() string {
	if f.Pass == 0 {
		return fmt.Sprintf("at byte %d: %s", f.Offset, f.Reason)
	}
	return fmt.Sprintf("at byte %d, in pass %d: %s, and later passes follow", f.Offset, f.Pass, f.Reason)
}
