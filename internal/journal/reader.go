package journal

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
)

// Summary is what a segment holds.
type Summary struct {
	Header
	Last  uint64 // the last whole pass; First-1 if there is none
	End   int64  // where it ends; 0 if not even the header is whole
	Torn  int64  // bytes behind End, to be cut off
	Stamp Stamp  // of Last
}

// Scan reads a segment of a size, and tells how far it is whole. The error is a *Fault if something
// else than a crash has damaged it; then the summary says what lies before the fault.
func Scan(file io.ReaderAt, size int64) (s Summary, err error) {
	begin := make([]byte, min(size, headerBytes))
	if err := readAt(file, begin, 0); err != nil {
		return s, err
	}
	h, ok := parseHeader(begin)
	switch {
	case !ok && size > headerBytes:
		return s, &Fault{Reason: "the header of the segment is damaged"}
	case !ok:
		return Summary{Torn: size}, nil
	}
	s = Summary{Header: h, Last: h.First - 1, End: headerBytes}
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
			s.Last, s.End, s.Stamp = f.pass, w.at, stamp
		}
	}
	s.Torn = size - s.End
	return s, nil
}

// damaged tells a torn tail from a fault. The frame at the offset, in a pass, is bad: a crash
// explains that, unless a frame behind it says that the pass was on the disk.
func (s Summary) damaged(file io.ReaderAt, size, offset int64, pass uint64, bad badFrame) (Summary, error) {
	s.Torn = size - s.End
	synced, err := findSynced(file, size, offset, s.Mark, pass)
	if err == nil && synced {
		err = &Fault{Offset: offset, Pass: pass, Reason: string(bad)}
	}
	return s, err
}

// searchBytes are searched at once for a frame.
const searchBytes = 1 << 20

// findSynced looks from an offset on, byte by byte, for the head of a frame that says that a pass
// was on the disk. The random mark keeps it from taking an entry's bytes for one.
func findSynced(file io.ReaderAt, size, offset int64, mark, pass uint64) (bool, error) {
	wanted := binary.BigEndian.AppendUint64(nil, mark)
	buf := make([]byte, min(searchBytes, size-offset))
	for ; size-offset >= frameHead; offset += searchBytes - frameHead + 1 {
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

// Replay calls visit with the payload of each frame of the whole passes that a summary lists, in
// their order, without the stamp of the pass. The payload is lent until visit returns. Replay
// verifies everything again; a *Fault means that the file is no longer as Scan has read it.
func Replay(file io.ReaderAt, s Summary, visit func(pass uint64, stamp Stamp, payload []byte) error) error {
	w := newWalker(file, s.End, s.Header)
	var stamp Stamp
	for {
		offset := w.at
		f, payload, err := w.next()
		if err == io.EOF {
			return nil
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

// badFrame says what is wrong with a frame.
type badFrame string

func (b badFrame) Error() string { return string(b) }

// walker reads frame after frame, and sees to it that none is missing.
type walker struct {
	in     *bufio.Reader
	at     int64
	size   int64
	mark   uint64
	pass   uint64 // of the next frame
	part   uint32
	synced uint64
	head   [frameHead]byte
	buf    []byte
}

func newWalker(file io.ReaderAt, size int64, h Header) *walker {
	rest := io.NewSectionReader(file, headerBytes, max(size-headerBytes, 0))
	return &walker{
		in: bufio.NewReaderSize(rest, int(min(size, 64<<10))), at: headerBytes, size: size,
		mark: h.Mark, pass: h.First, synced: h.Synced,
	}
}

// next reads a frame, whose payload is lent until the next call. At the end of the file the error
// is io.EOF; a badFrame is of what is no frame, or not the one that is due.
func (w *walker) next() (f frame, payload []byte, err error) {
	rest := w.size - w.at
	switch {
	case rest <= 0:
		return f, nil, io.EOF
	case rest < frameHead:
		return f, nil, badFrame("the frame is cut off")
	}
	if _, err := io.ReadFull(w.in, w.head[:]); err != nil {
		return f, nil, unexpected(err)
	}
	f, ok := parseFrame(w.head[:], w.mark)
	switch {
	case !ok:
		return f, nil, badFrame("the head of the frame is damaged")
	case f.pass != w.pass || f.part != w.part || f.synced < w.synced || f.synced >= f.pass:
		return f, nil, badFrame("it is not the frame that is due")
	case int64(f.length) > rest-frameHead:
		return f, nil, badFrame("the frame is cut off")
	case f.length > maxPayload || f.part == 0 && f.length < stampBytes:
		return f, nil, badFrame("no frame has such a length")
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
	w.at += frameHead + int64(f.length)
	w.synced = f.synced
	if w.part++; f.last {
		w.pass, w.part = w.pass+1, 0
	}
}

// readAt reads all of p.
func readAt(file io.ReaderAt, p []byte, offset int64) error {
	n, err := file.ReadAt(p, offset)
	if n == len(p) {
		return nil
	}
	return unexpected(err)
}

// unexpected is of a file that is shorter than it is said to be.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
