package journal

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// File is the file of a segment, such as an *os.File. Sync may be implemented by fdatasync.
type File interface {
	io.WriterAt
	Truncate(size int64) error
	Sync() error
}

// Writer writes one segment. It must be used by one goroutine at a time.
//
// If a write fails, for example because the disk is full, the pass is abandoned. The caller may
// begin it again later, also with other entries; Begin truncates what was written of it. If a sync
// fails, it is unknown what is on the disk, and a second sync might succeed although data is lost.
// All later calls therefore return the same error, an ErrSync, and the caller must begin another
// segment.
type Writer struct {
	file     File
	mark     uint64
	end      int64  // offset at which the last complete pass ends
	at       int64  // offset of the next frame
	pass     uint64 // the open pass or, if there is none, the next one
	part     uint32
	synced   uint64
	sum      uint32 // of the headers of all frames up to end
	openSum  uint32 // of the headers of all frames so far
	buf      []byte // the next frame: space for its header, and the payload so far
	open     bool   // a pass has begun and not ended
	maxEntry int    // maximum size of an entry in bytes
	torn     bool   // the file may contain a part of an abandoned pass after end
	failed   error  // error of the first failed sync
}

// ErrSync means that a sync of the segment has failed, now or earlier.
var ErrSync = errors.New("a sync has failed")

var (
	errHeader = errors.New("journal: the first pass of a segment must follow the one that was synced")
	errOpen   = errors.New("journal: a pass is under way")
	errNoPass = errors.New("journal: no pass is under way")
	errLarge  = errors.New("journal: an entry is too large")
)

// Create begins a segment in an empty file. Its header is on the disk after the first sync. The caller
// gives the file its name after that, and syncs the folder.
func Create(file File, h Header) (*Writer, error) {
	if !h.valid() {
		return nil, errHeader
	}
	w := &Writer{
		file: file, mark: h.Mark, pass: h.First, synced: h.Synced, maxEntry: maxPayload - stampBytes,
	}
	begin := h.bytes()
	if _, err := file.WriteAt(begin, 0); err != nil {
		return nil, err
	}
	w.end = int64(len(begin))
	w.at = w.end
	w.buf = make([]byte, frameHeaderBytes, frameHeaderBytes+frameBytes)
	return w, nil
}

// Size returns the length of the segment up to its last complete pass.
func (w *Writer) Size() int64 { return w.end }

// Next returns the number of the open pass or, if there is none, of the next one.
func (w *Writer) Next() uint64 { return w.pass }

// Link returns the link to the segment up to its last complete pass.
func (w *Writer) Link() Link { return Link{w.mark, w.sum} }

// Synced returns the last pass that is known to be on the disk.
func (w *Writer) Synced() uint64 { return w.synced }

// Begin begins a pass.
func (w *Writer) Begin(stamp Stamp) error {
	switch {
	case w.failed != nil:
		return w.failed
	case w.open:
		return errOpen
	case w.torn:
		if err := w.file.Truncate(w.end); err != nil {
			return err
		}
		w.torn = false
	}
	w.open, w.at, w.part, w.openSum = true, w.end, 0, w.sum
	w.buf = stamp.append(w.buf[:frameHeaderBytes])
	return nil
}

// Append adds an entry, or several whole ones, to the pass. The bytes are copied. They are in one
// frame, and must not be longer than 1 GiB.
func (w *Writer) Append(entry []byte) error {
	switch {
	case !w.open:
		return errNoPass
	case len(entry) > w.maxEntry:
		w.Abandon()
		return errLarge
	}
	if len(w.buf)+len(entry) > frameBytes && len(w.buf) > frameHeaderBytes {
		if err := w.flush(false); err != nil {
			return err
		}
	}
	w.buf = append(w.buf, entry...)
	return nil
}

// End ends the pass. If sync is set, this pass and all earlier ones are on the disk when End
// returns nil.
func (w *Writer) End(sync bool) error {
	if !w.open {
		return errNoPass
	}
	if err := w.flush(true); err != nil {
		return err
	}
	w.open = false
	if sync {
		if err := w.file.Sync(); err != nil {
			w.failed = fmt.Errorf("%w: %w", ErrSync, err)
			return w.failed
		}
		w.synced = w.pass
	}
	w.end, w.sum = w.at, w.openSum
	w.pass++
	return nil
}

// Abandon ends the open pass, if there is one, without completing it. The next pass has its number.
func (w *Writer) Abandon() {
	w.torn = w.torn || w.open && w.part > 0
	w.open = false
}

// Close ends the segment with an empty pass, which records that the earlier passes are on the disk.
// It does not close the file.
func (w *Writer) Close(stamp Stamp) error {
	w.Abandon()
	if err := w.Begin(stamp); err != nil {
		return err
	}
	return w.End(true)
}

// flush writes the frame that is in the buffer.
func (w *Writer) flush(last bool) error {
	payload := w.buf[frameHeaderBytes:]
	f := frame{
		pass: w.pass, synced: w.synced, part: w.part, last: last, length: uint32(len(payload)), sum: sum(payload),
	}
	f.put(w.buf, w.mark)
	w.openSum = crc32.Update(w.openSum, castagnoli, w.buf[:frameHeaderBytes])
	n, err := w.file.WriteAt(w.buf, w.at)
	if err == nil && n < len(w.buf) {
		err = io.ErrShortWrite
	}
	w.at += int64(len(w.buf))
	w.part++
	w.buf = w.buf[:frameHeaderBytes]
	if err != nil {
		w.Abandon()
		return err
	}
	if cap(w.buf) > 2*frameBytes { // the memory of a large entry is not kept
		w.buf = make([]byte, frameHeaderBytes, frameHeaderBytes+frameBytes)
	}
	return nil
}
