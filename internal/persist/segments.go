package persist

import (
	"errors"
	"math/rand/v2"

	"cellserver/internal/journal"
)

// beginSegment creates the next segment. If the journal has a gap, it returns errLater until the
// next attempt is due.
func (r *recorder) beginSegment() error {
	if r.gap && r.retry.left > 0 {
		return errLater
	}
	if err := r.prepare(); err != nil {
		return err
	}
	name := segmentName(r.number + 1)
	f, err := r.files.create(name)
	if err != nil {
		return err
	}
	w, err := journal.Create(f, journal.Header{
		Mark: rand.Uint64(), Number: r.number + 1, First: r.first, Synced: r.synced,
	})
	if err == nil {
		err = r.files.sync()
	}
	if err != nil {
		f.Close()
		r.obsolete = append(r.obsolete, name)
		return err
	}
	r.writer, r.file, r.number = w, f, r.number+1
	r.segments++
	return nil
}

// prepare makes the files on the disk such that the next segment continues them: it truncates the
// incomplete pass of an earlier process, and removes obsolete files.
func (r *recorder) prepare() error {
	for len(r.obsolete) > 0 {
		if err := removeIfPresent(r.files, r.obsolete[0]); err != nil {
			return err
		}
		r.obsolete = r.obsolete[1:]
	}
	if err := r.checkExclusive(); err != nil {
		return err
	}
	if r.unsyncedTail == nil {
		return r.files.sync()
	}
	f, err := r.files.edit(r.unsyncedTail.name)
	if err != nil {
		return err
	}
	defer f.Close()
	if r.unsyncedTail.Torn > 0 {
		if err := f.Truncate(r.unsyncedTail.End); err != nil {
			return err
		}
	}
	if err := f.Sync(); err != nil {
		return err
	}
	r.unsyncedTail = nil
	return r.files.sync()
}

// checkExclusive returns errForeign if another process has written segments, which it can do if the
// lock file was removed. They must not be overwritten.
func (r *recorder) checkExclusive() error {
	names, err := r.files.list()
	for _, name := range names {
		if segment, ok := parseSegmentName(name); ok && segment > r.number {
			return errForeign
		}
	}
	return err
}

// checkInPlace returns an error if the lock file, the current segment or the folder has been
// removed or replaced. No startup would find what is written then.
func (r *recorder) checkInPlace() error {
	relocked, err := r.ensureLocked()
	switch {
	case err != nil:
		return err
	case relocked:
		return errUnlocked
	case r.writer != nil:
		return r.files.checkIdentity(segmentName(r.number), r.file)
	}
	return nil
}

var (
	errUnlocked = errors.New("the lock file was removed")
	errForeign  = errors.New("another process has written into the folder")
)

// losePass begins a gap in the journal: a pass is lost, because the store does not repeat its
// entries. It ends the current segment, and omits the number of the lost pass.
func (r *recorder) losePass() {
	if r.writer == nil {
		r.first++
	} else {
		size := r.writer.Size()
		r.file.Truncate(size) // frees the space of an incomplete pass
		r.closeSegment(r.writer.Next() + 2)
		if r.gap { // there was a gap before this segment already, so it cannot be loaded
			r.obsolete = append(r.obsolete, segmentName(r.number))
			r.number, r.segments, r.older = r.number-1, r.segments-1, r.older-size
		}
	}
	r.gap = true
	r.attempts = 0
	r.previous.known = false
	r.unwritten.clear()
	r.compaction.cancel()
	r.retry.failed()
}

// closeSegment ends the use of the current segment. The next one begins with the pass numbered
// next.
func (r *recorder) closeSegment(next uint64) {
	r.older += r.writer.Size()
	r.file.Close() // its error does not matter: all passes that count have been synced
	r.writer, r.file, r.first = nil, nil, next
}

// size returns the size of the segments since the snapshot.
func (r *recorder) size() int64 {
	if r.writer == nil {
		return r.older
	}
	return r.older + r.writer.Size()
}
