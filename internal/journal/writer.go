package journal

import (
	"errors"
	"fmt"
	"io"
)

// File is the file of a segment, such as an *os.File. Sync may be implemented by fdatasync.
type File interface {
	io.WriterAt
	Truncate(size int64) error
	Sync() error
}

// Writer writes one segment. It is for one goroutine at a time.
//
// If a write fails, for example because the disk is full, the pass is lost. The caller may begin
// the pass again later, with its content of that time; Begin first cuts off the remains. If a sync
// fails, it is unknown what is on the disk, and a second sync might succeed nevertheless. So all
// later calls return the same error, an ErrSync, and the caller must begin another segment, with the
// whole content of the store.
type Writer struct {
	file    File
	mark    uint64
	end     int64  // offset at which the last complete pass ends
	at      int64  // offset of the next frame
	pass    uint64 // the open pass, otherwise the next one
	part    uint32
	synced  uint64
	buf     []byte // the next frame: space for its head, and the payload so far
	open    bool   // a pass has begun and not ended
	largest int    // maximum size of an entry in bytes
	torn    bool   // the file may contain a part of a pass after the complete ones
	failed  error  // error of the first failed sync
}

// ErrSync is the error of a segment of which a sync has failed.
var ErrSync = errors.New("a sync has failed")

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

// Size returns the length of the segment up to its last complete pass.
func (w *Writer) Size() int64 { return w.end }

// Next returns the number of the open pass, otherwise that of the next one.
func (w *Writer) Next() uint64 { return w.pass }

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
	w.end = w.at
	w.pass++
	return nil
}

// Abandon drops the open pass, if there is one. The pass can be begun again.
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
	if cap(w.buf) > 2*frameBytes { // it contained a large entry
		w.buf = make([]byte, frameHead, frameHead+frameBytes)
	}
	return nil
}
