package persist

import (
	"errors"
	"math/rand/v2"

	"cellserver/internal/journal"
)

// beginSegment creates the file of the next segment, under a temporary name: it becomes a part of the
// journal when its first pass is on the disk. If the journal has a gap, beginSegment returns errLater
// until the next attempt is due.
func (r *recorder) beginSegment() error {
	if r.gap && r.retry.left > 0 {
		return errLater
	}
	if err := r.prepare(); err != nil {
		return err
	}
	f, err := r.files.create(segmentTemporary)
	if err != nil {
		return err
	}
	return r.useSegment(f)
}

// useSegment makes an empty file, with the temporary name, the current segment.
func (r *recorder) useSegment(f file) error {
	h := r.newHeader()
	h.Number, h.First, h.Synced, h.Previous = r.number+1, r.first, r.synced, r.link
	if r.completed.writer != nil {
		h.Previous = r.completed.writer.Link()
	}
	w, err := journal.Create(f, h)
	if err != nil {
		f.Close()
		return err
	}
	r.writer, r.file, r.unnamed = w, f, true
	return nil
}

// newHeader returns the header of a segment or a snapshot, without its place in the journal.
func (r *recorder) newHeader() journal.Header {
	return journal.Header{Program: r.program, Folder: r.folder, Mark: rand.Uint64()}
}

// nameSegment gives the current segment its name, after its first pass has been synced. From then on,
// a startup finds it. If the folder cannot be synced then, later passes try the sync again.
func (r *recorder) nameSegment() error {
	if err := r.files.rename(segmentTemporary, segmentName(r.number+1)); err != nil {
		return err
	}
	r.number++
	r.segments++
	r.unnamed, r.unsyncedName = false, true
	if c := r.completed; c.writer != nil {
		r.older += c.writer.Size()
		c.file.Close() // its error does not matter: all its passes have been synced
		r.completed = openSegment{}
	}
	return nil
}

// discardSegment ends the use of a segment without a name, and continues the completed one, if there
// is one.
func (r *recorder) discardSegment() {
	// The file remains for the next segment. If it were removed, names would change twice before the folder
	// is synced, and a crash might leave this file under the next segment's name.
	_ = r.file.Truncate(0) // frees the space
	r.file.Close()
	if r.unnamed = false; r.completed.writer == nil {
		r.completed.first = r.first
	}
	r.openSegment, r.completed = r.completed, openSegment{}
}

// syncFolder syncs the folder, if files may have been renamed or removed since the last time.
func (r *recorder) syncFolder() error {
	if !r.unsyncedName && !r.unsyncedRemoval {
		return nil
	}
	err := r.files.sync()
	if err == nil {
		r.unsyncedName, r.unsyncedRemoval = false, false
	}
	return err
}

// prepare makes sure that the next segment continues the files on the disk: it truncates the
// incomplete pass of an earlier process, and removes obsolete files.
func (r *recorder) prepare() error {
	if err := r.syncFolder(); err != nil { // the files that replace the obsolete ones must be on the disk
		return err
	}
	if r.compaction.stage == named {
		r.complete()
	}
	for len(r.obsolete) > 0 {
		if err := removeIfPresent(r.files, r.obsolete[0]); err != nil {
			return err
		}
		r.obsolete, r.unsyncedRemoval = r.obsolete[1:], true
	}
	if err := r.checkExclusive(); err != nil {
		return err
	}
	if err := r.syncTail(); err != nil {
		return err
	}
	return r.syncFolder()
}

// syncTail truncates the incomplete pass of an earlier process, and syncs the file.
func (r *recorder) syncTail() error {
	if r.unsyncedTail == nil {
		return nil
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
	return nil
}

// checkExclusive returns errForeign if another process has written segments, which it can do if the
// lock file was removed. These segments must not be overwritten.
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
// removed or replaced. No startup would find passes that are written then.
func (r *recorder) checkInPlace() error {
	relocked, err := r.ensureLocked()
	switch {
	case err != nil:
		return err
	case relocked:
		return errUnlocked
	case r.unnamed:
		return r.files.checkIdentity(segmentTemporary, r.file)
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
	if r.unnamed {
		r.discardSegment()
	}
	if r.writer == nil {
		r.first += 2 // the pass with this number may be on the disk, although its sync has failed
	} else {
		size, before := r.writer.Size(), r.link
		r.file.Truncate(size) // frees the space of an incomplete pass
		r.closeSegment(r.writer.Next() + 2)
		if r.gap { // there is a gap before this segment already, so it cannot be loaded
			r.obsolete = append(r.obsolete, segmentName(r.number))
			r.number, r.segments, r.older, r.link = r.number-1, r.segments-1, r.older-size, before
		}
	}
	r.gap = true
	r.attempts = 0
	r.previous.known = false
	r.unwritten.clear()
	r.compaction.cancel()
	r.retry.failed()
}

// closeSegment ends the use of the current segment. The next segment begins with the pass numbered
// next.
func (r *recorder) closeSegment(next uint64) {
	r.older += r.writer.Size()
	r.link = r.writer.Link()
	r.file.Close() // its error does not matter: all passes that count have been synced
	r.openSegment = openSegment{first: next}
}

// size returns the size of the segments since the snapshot.
func (r *recorder) size() int64 {
	if r.writer == nil {
		return r.older
	}
	return r.older + r.writer.Size()
}
