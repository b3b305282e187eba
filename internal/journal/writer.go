package journal

import (
	"errors"
	"fmt"
	"io"
)

// File is what a segment is written to. An *os.File is one; Sync may be fdatasync.
type File interface {
	io.WriterAt
	Truncate(size int64) error
	Sync() error
}

// Writer writes one segment. It is for one goroutine at a time.
//
// When a write fails, as on a full disk, the pass is lost, and the caller may begin it again later,
// with what is then to be written: its remains are cut off first. When a sync has failed nothing
// says what is on the disk, and a second sync would say that all is well. So all later calls then
// return the same error, and the caller begins another segment, with everything that there is.
type Writer struct {
	file    File
	mark    uint64
	end     int64  // where the last whole pass ends
	at      int64  // where the next frame goes
	pass    uint64 // the one under way, or else the next
	part    uint32
	synced  uint64
	buf     []byte // the next frame: room for its head, and the payload so far
	open    bool   // a pass is under way
	largest int    // bytes of an entry
	torn    bool   // there may be more in the file than the whole passes
	failed  error  // of a sync
}

var (
	errHeader = errors.New("journal: the first pass of a segment must follow the one that was synced")
	errOpen   = errors.New("journal: a pass is under way")
	errNoPass = errors.New("journal: no pass is under way")
	errLarge  = errors.New("journal: an entry is too large")
)

// Create begins a segment in an empty file, and syncs its header. The caller syncs the folder.
func Create(file File, h Header) (*Writer, error) {
	if !h.valid() {
		return nil, errHeader
	}
	w := &Writer{
		file: file, mark: h.Mark, end: headerBytes, at: headerBytes, pass: h.First, synced: h.Synced,
		largest: maxPayload - stampBytes,
	}
	if _, err := file.WriteAt(h.bytes(), 0); err != nil {
		return nil, err
	}
	if err := file.Sync(); err != nil {
		return nil, err
	}
	w.buf = make([]byte, frameHead, frameHead+frameBytes)
	return w, nil
}

// Size is how long the segment is, up to its last whole pass.
func (w *Writer) Size() int64 { return w.end }

// Next is the number of the pass that is under way, or else of the next.
func (w *Writer) Next() uint64 { return w.pass }

// Synced is the last pass that is known to be on the disk.
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
	w.open, w.at, w.part = true, w.end, 0
	w.buf = stamp.append(w.buf[:frameHead])
	return nil
}

// Append adds an entry to the pass.
func (w *Writer) Append(entry []byte) error {
	switch {
	case !w.open:
		return errNoPass
	case len(entry) > w.largest:
		w.Abandon()
		return errLarge
	}
	if len(w.buf)+len(entry) > frameBytes && len(w.buf) > frameHead {
		if err := w.flush(false); err != nil {
			return err
		}
	}
	w.buf = append(w.buf, entry...)
	return nil
}

// End ends the pass. With sync, the pass and all before it are on the disk when it returns nil.
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
			w.failed = fmt.Errorf("journal: a sync has failed: %w", err)
			return w.failed
		}
		w.synced = w.pass
	}
	w.end = w.at
	w.pass++
	return nil
}

// Abandon drops the pass that is under way, if one is. It can be begun again.
func (w *Writer) Abandon() {
	w.torn = w.torn || w.open && w.part > 0
	w.open = false
}

// Close ends the segment with an empty pass, which says that the passes before it are on the disk.
// It does not close the file.
func (w *Writer) Close(stamp Stamp) error {
	w.Abandon()
	if err := w.Begin(stamp); err != nil {
		return err
	}
	return w.End(true)
}

// flush writes the frame.
func (w *Writer) flush(last bool) error {
	payload := w.buf[frameHead:]
	f := frame{
		pass: w.pass, synced: w.synced, part: w.part, last: last, length: uint32(len(payload)), sum: sum(payload),
	}
	f.put(w.buf, w.mark)
	n, err := w.file.WriteAt(w.buf, w.at)
	if err == nil && n < len(w.buf) {
		err = io.ErrShortWrite
	}
	w.at += int64(len(w.buf))
	w.part++
	w.buf = w.buf[:frameHead]
	if err != nil {
		w.Abandon()
		return err
	}
	if cap(w.buf) > 2*frameBytes { // a large entry was in it
		w.buf = make([]byte, frameHead, frameHead+frameBytes)
	}
	return nil
}
