package journal

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
)

// Summary describes the content of a segment.
type Summary struct {
	Header
	Last  uint64 // number of the last complete pass; First-1 if there is none
	End   int64  // offset at which Last ends; 0 if even the header is incomplete
	Torn  int64  // bytes after End, to be truncated
	Stamp Stamp  // of Last

	sum    uint32 // of the headers of all frames up to Last
	before ending // without Last
}

// ending is where a pass ends.
type ending struct {
	last  uint64
	end   int64
	stamp Stamp
	sum   uint32
}

func (s Summary) ending() ending { return ending{s.Last, s.End, s.Stamp, s.sum} }

// Scan reads a segment of size bytes, and finds its complete passes. It returns a *Fault if a crash
// cannot explain the damage; the summary then describes the part before it. It returns a *VersionError
// if a newer program wrote the segment.
func Scan(file io.ReaderAt, size int64) (s Summary, err error) {
	begin := make([]byte, min(size, maxHeaderBytes))
	if err := readAt(file, begin, 0); err != nil {
		return s, err
	}
	h, err := parseHeader(begin)
	switch {
	case err == errHeaderDamaged && size <= int64(headerBytes[version]):
		return Summary{Torn: size}, nil
	case err != nil:
		return s, err
	}
	s = Summary{Header: h, Last: h.First - 1, End: h.size()}
	w := newWalker(file, size, h)
	var stamp Stamp
	for {
		offset := w.at
		f, payload, err := w.next()
		if err == io.EOF {
			break
		}
		var bad badFrame
		if errors.As(err, &bad) {
			return s.damaged(file, size, offset, w.pass, bad)
		}
		if err != nil {
			return s, err
		}
		if f.part == 0 {
			stamp = parseStamp(payload)
		}
		if f.last {
			s.before = s.ending()
			s.Last, s.End, s.Stamp, s.sum = f.pass, w.at, stamp, w.sum
		}
	}
	s.Torn = size - s.End
	return s, nil
}

// damaged determines whether a bad frame is a torn tail or a fault. offset is the position of the frame,
// and pass is its pass. A crash explains the bad frame, unless a later frame records that the pass
// was on the disk.
func (s Summary) damaged(file io.ReaderAt, size, offset int64, pass uint64, bad badFrame) (Summary, error) {
	s.Torn = size - s.End
	synced, err := findSynced(file, size, offset, s.Mark, pass)
	if err == nil && synced {
		err = &Fault{Offset: offset, Pass: pass, Reason: string(bad)}
	}
	return s, err
}

// searchBytes is the number of bytes that findSynced reads at once.
const searchBytes = 1 << 20

// findSynced searches, from an offset on, for the header of a frame that records that a pass was on
// the disk. The mark is random, so the content of an entry is not mistaken for a header.
func findSynced(file io.ReaderAt, size, offset int64, mark, pass uint64) (bool, error) {
	wanted := binary.BigEndian.AppendUint64(nil, mark)
	buf := make([]byte, min(searchBytes, size-offset))
	for ; size-offset >= frameHeaderBytes; offset += searchBytes - frameHeaderBytes + 1 {
		p := buf[:min(searchBytes, size-offset)]
		if err := readAt(file, p, offset); err != nil {
			return false, err
		}
		for at := 0; ; at++ {
			found := bytes.Index(p[at:], wanted)
			if found < 0 {
				break
			}
			at += found
			if f, ok := parseFrame(p[at:], mark); ok && f.synced >= pass {
				return true, nil
			}
		}
	}
	return false, nil
}

// Replay calls visit with the payload of each frame, up to the last pass of a summary, in order and
// without the stamp of the pass. The payload is valid until visit returns. Replay returns a *Fault
// if a frame is invalid, or if the last pass is not the summary's. A caller that knows that a
// file is complete therefore need not call Scan first: the summary then consists of the header, the
// last pass, and the size of the file as End.
func Replay(file io.ReaderAt, s Summary, visit func(pass uint64, stamp Stamp, payload []byte) error) error {
	w := newWalker(file, s.End, s.Header)
	var stamp Stamp
	for {
		offset := w.at
		f, payload, err := w.next()
		if err == io.EOF {
			return w.endsWith(s.Last)
		}
		var bad badFrame
		if errors.As(err, &bad) {
			return &Fault{Offset: offset, Pass: w.pass, Reason: string(bad)}
		}
		if err != nil {
			return err
		}
		if f.part == 0 {
			stamp, payload = parseStamp(payload), payload[stampBytes:]
		}
		if err := visit(f.pass, stamp, payload); err != nil {
			return err
		}
	}
}

// ReadHeader reads the header of a segment, and the stamp of its first pass; began is false if the
// file ends before that. It verifies only the header. The error may be a *Fault or a *VersionError.
func ReadHeader(file io.ReaderAt, size int64) (h Header, stamp Stamp, began bool, err error) {
	begin := make([]byte, min(size, maxHeaderBytes))
	if err := readAt(file, begin, 0); err != nil {
		return h, stamp, false, err
	}
	if h, err = parseHeader(begin); err != nil {
		return h, stamp, false, err
	}
	rest := begin[h.size():]
	if len(rest) < frameHeaderBytes+stampBytes {
		return h, stamp, false, nil
	}
	f, ok := parseFrame(rest, h.Mark)
	if !ok || f.length < stampBytes {
		return h, stamp, false, nil
	}
	return h, parseStamp(rest[frameHeaderBytes:]), true, nil
}

// badFrame is the reason why a frame is invalid.
type badFrame string

func (b badFrame) Error() string { return string(b) }

// walker reads the frames in order, and checks that none is missing.
type walker struct {
	in     *bufio.Reader
	at     int64 // offset of the next frame
	size   int64
	mark   uint64
	pass   uint64 // of the next frame
	part   uint32 // of the next frame
	synced uint64 // of the previous frame
	sum    uint32 // of the headers of all frames so far
	head   [frameHeaderBytes]byte
	buf    []byte
}

func newWalker(file io.ReaderAt, size int64, h Header) *walker {
	rest := io.NewSectionReader(file, h.size(), max(size-h.size(), 0))
	return &walker{
		in: bufio.NewReaderSize(rest, int(min(size, 64<<10))), at: h.size(), size: size,
		mark: h.Mark, pass: h.First, synced: h.Synced,
	}
}

// next reads a frame. The payload is valid until the next call. The error is io.EOF at the end of
// the file, and a badFrame if the bytes are not a frame, or not the expected one.
func (w *walker) next() (f frame, payload []byte, err error) {
	rest := w.size - w.at
	switch {
	case rest <= 0:
		return f, nil, io.EOF
	case rest < frameHeaderBytes:
		return f, nil, badFrame("the frame is cut off")
	}
	if _, err := io.ReadFull(w.in, w.head[:]); err != nil {
		return f, nil, unexpected(err)
	}
	f, ok := parseFrame(w.head[:], w.mark)
	switch {
	case !ok:
		return f, nil, badFrame("the header of the frame is damaged")
	case f.pass != w.pass || f.part != w.part || f.synced < w.synced || f.synced >= f.pass:
		return f, nil, badFrame("it is not the expected frame")
	case int64(f.length) > rest-frameHeaderBytes:
		return f, nil, badFrame("the frame is cut off")
	case f.length > maxPayload || f.part == 0 && f.length < stampBytes:
		return f, nil, badFrame("the length of the frame is invalid")
	}
	if uint32(cap(w.buf)) < f.length {
		w.buf = make([]byte, f.length)
	}
	payload = w.buf[:f.length]
	if _, err := io.ReadFull(w.in, payload); err != nil {
		return f, nil, unexpected(err)
	}
	if sum(payload) != f.sum {
		return f, nil, badFrame("the payload is damaged")
	}
	w.advance(f)
	return f, payload, nil
}

func (w *walker) advance(f frame) {
	w.at += frameHeaderBytes + int64(f.length)
	w.synced = f.synced
	w.sum = crc32.Update(w.sum, castagnoli, w.head[:])
	if w.part++; f.last {
		w.pass, w.part = w.pass+1, 0
	}
}

// endsWith checks, at the end of the file, that the last pass is complete, and has the given
// number.
func (w *walker) endsWith(last uint64) error {
	if w.part > 0 || w.pass != last+1 {
		return &Fault{Offset: w.at, Reason: "the segment ends too early"}
	}
	return nil
}

// readAt reads len(p) bytes at an offset.
func readAt(file io.ReaderAt, p []byte, offset int64) error {
	n, err := file.ReadAt(p, offset)
	if n == len(p) {
		return nil
	}
	return unexpected(err)
}

// unexpected replaces io.EOF, for a file that is shorter than the size that the caller has given.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
