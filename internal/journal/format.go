package journal

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
)

const (
	magic            = "cljrnl" // the digit of the version and a line break follow
	magicBytes       = 8
	lengthEnd        = 12 // of the field with the length of the header
	programEnd       = 32 // of the field with the version of the program
	markBytes        = 8
	maxHeaderBytes   = 512 // of all versions, also later ones
	frameHeaderBytes = 40
	stampBytes       = 40
	lastPart         = 1 << 31

	// frameBytes is the approximate size of a frame: one write of that size is as fast as several
	// small ones, and the memory for it is negligible.
	frameBytes = 256 << 10
	// maxPayload bounds the payload of a frame, in bytes, and therefore an entry. The longest value
	// has 512 MiB.
	maxPayload = 1 << 30
)

// headerBytes is the size of the header in each version of the format.
var headerBytes = [...]int{1: 44, 2: 88}

// version is the version of the format that a Writer writes.
const version = len(headerBytes) - 1

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sum(p []byte) uint32 { return crc32.Checksum(p, castagnoli) }

// Header is the header of a segment. Version 1 of the format has only its last four fields.
type Header struct {
	Version  int    // of the format; Create sets it
	Program  string // the version of the program that wrote the segment, at most 20 bytes; "" if it is unknown
	Folder   uint64 // random, the same in all segments of a folder; 0 if it is unknown
	Previous Link   // where the previous segment ended; in the first segment, the caller decides its meaning
	Mark     uint64 // random, not 0
	Number   uint64 // number of the segment
	First    uint64 // the number of its first pass, above 0
	Synced   uint64 // the last pass that was known to be on the disk when the segment was created; 0 for none
}

// Link identifies a segment, and its passes up to one of them. The zero value means an unknown
// segment.
type Link struct {
	Mark uint64 // of the segment
	Sum  uint32 // of the headers of all frames of these passes, which contain the sums of the payloads
}

// valid reports whether First is later than Synced: a pass cannot be on the disk before it is
// written.
func (h Header) valid() bool { return h.First > h.Synced }

// size returns the size of the header in bytes.
func (h Header) size() int64 { return int64(headerBytes[h.Version]) }

func (h Header) bytes() []byte {
	size := headerBytes[version]
	p := fmt.Appendf(make([]byte, 0, size), "%s%d\n", magic, version)
	p = binary.BigEndian.AppendUint32(p, uint32(size))
	p = append(p, h.Program[:min(len(h.Program), programEnd-lengthEnd)]...)
	p = p[:programEnd]
	for _, field := range []uint64{h.Folder, h.Mark, h.Number, h.First, h.Synced, h.Previous.Mark} {
		p = binary.BigEndian.AppendUint64(p, field)
	}
	p = binary.BigEndian.AppendUint32(p, h.Previous.Sum)
	return binary.BigEndian.AppendUint32(p, sum(p))
}

// VersionError means that a segment has a later version of the format than this package knows.
type VersionError struct {
	Version int
	Program string // the version of the program that wrote the segment; "" if it is unknown
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("it has version %d of the format, and this program knows versions up to %d", e.Version, version)
}

var errHeaderDamaged = &Fault{Reason: "the header of the segment is damaged"}

// parseHeader parses a header. The error is a *VersionError or errHeaderDamaged.
func parseHeader(p []byte) (Header, error) {
	found, ok := versionOf(p)
	switch {
	case !ok:
		return Header{}, errHeaderDamaged
	case found < len(headerBytes):
		return parseVersion(p, found)
	}
	known := slices.Clone(p)
	for v := 1; v <= version; v++ { // if only the digit is wrong, it is damaged
		known[len(magic)] = '0' + byte(v)
		if _, err := parseVersion(known, v); err == nil {
			return Header{}, errHeaderDamaged
		}
	}
	return Header{}, &VersionError{Version: found, Program: programOf(p)}
}

// versionOf returns the version of a segment.
func versionOf(p []byte) (found int, ok bool) {
	if len(p) < magicBytes || string(p[:len(magic)]) != magic || p[magicBytes-1] != '\n' {
		return 0, false
	}
	found = int(p[len(magic)]) - '0'
	return found, found >= 1 && found <= 9
}

// programOf returns which program wrote a segment of a later version, if its header is intact.
func programOf(p []byte) string {
	if len(p) < programEnd {
		return ""
	}
	if size := int(binary.BigEndian.Uint32(p[magicBytes:])); size <= programEnd || !isIntact(p, size) {
		return ""
	}
	return string(bytes.TrimRight(p[lengthEnd:programEnd], "\x00"))
}

// isIntact reports whether a header of a given size ends with its checksum.
func isIntact(p []byte, size int) bool {
	return len(p) >= size && binary.BigEndian.Uint32(p[size-4:]) == sum(p[:size-4])
}

// parseVersion parses a header of a version of the format.
func parseVersion(p []byte, version int) (Header, error) {
	h := Header{Version: version}
	if !isIntact(p, headerBytes[version]) {
		return Header{}, errHeaderDamaged
	}
	rest := p[magicBytes:]
	next := func() (field uint64) {
		field, rest = binary.BigEndian.Uint64(rest), rest[8:]
		return field
	}
	if version > 1 {
		h.Program = string(bytes.TrimRight(p[lengthEnd:programEnd], "\x00"))
		rest = p[programEnd:]
		h.Folder = next()
	}
	h.Mark, h.Number, h.First, h.Synced = next(), next(), next(), next()
	if version > 1 {
		h.Previous.Mark = next()
		h.Previous.Sum = binary.BigEndian.Uint32(rest)
	}
	if !h.valid() {
		return Header{}, errHeaderDamaged
	}
	return h, nil
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
	if len(p) < frameHeaderBytes || binary.BigEndian.Uint64(p) != mark ||
		binary.BigEndian.Uint32(p[36:]) != sum(p[:36]) {
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
