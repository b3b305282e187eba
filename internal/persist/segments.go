package persist

import (
	"errors"
	"math/rand/v2"

	"cellserver/internal/journal"
)

// beginSegment begins the next segment.
func (r *recorder) beginSegment() error {
	if r.detached && r.retry.left > 0 {
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

// prepare makes sure that the next segment continues what is on the disk: it cuts off the torn end
// of the segment before, and removes files that a later start must not find.
func (r *recorder) prepare() error {
	for len(r.obsolete) > 0 {
		if err := removeIfPresent(r.files, r.obsolete[0]); err != nil {
			return err
		}
		r.obsolete = r.obsolete[1:]
	}
	if err := r.alone(); err != nil {
		return err
	}
	if r.tail == nil {
		return r.files.sync()
	}
	f, err := r.files.edit(r.tail.name)
	if err != nil {
		return err
	}
	defer f.Close()
	if r.tail.Torn > 0 {
		if err := f.Truncate(r.tail.End); err != nil {
			return err
		}
	}
	if err := f.Sync(); err != nil {
		return err
	}
	r.tail = nil
	return r.files.sync()
}

// alone checks that no other process has used the folder while its lock was lost. Its files must not
// be overwritten.
func (r *recorder) alone() error {
	names, err := r.files.list()
	for _, name := range names {
		if segment, ok := parseSegmentName(name); ok && segment > r.number {
			return errForeign
		}
	}
	return err
}

// inPlace checks that the folder and the current segment have not been removed or replaced.
func (r *recorder) inPlace() error {
	again, err := r.hold()
	switch {
	case err != nil:
		return err
	case again:
		return errUnlocked
	case r.writer != nil:
		return r.files.has(segmentName(r.number), r.file)
	}
	return nil
}

var (
	errUnlocked = errors.New("the lock file was removed")
	errForeign  = errors.New("another process has written into the folder")
)

// lose ends the current segment, because the store does not repeat what was in a pass. The number
// of the next pass leaves out the lost one.
func (r *recorder) lose() {
	if r.writer == nil {
		r.first++
	} else {
		size := r.writer.Size()
		r.file.Truncate(size) // a part of a pass may take the space that is missing
		r.closeSegment(r.writer.Next() + 2)
		if r.detached { // no start would use this segment
			r.obsolete = append(r.obsolete, segmentName(r.number))
			r.number, r.segments, r.older = r.number-1, r.segments-1, r.older-size
		}
	}
	r.detached = true
	r.attempts = 0
	r.previous.known = false
	r.kept.clear()
	r.compaction.cancel()
	r.retry.failed()
}

// closeSegment ends the use of the current segment. The next begins with pass next.
func (r *recorder) closeSegment(next uint64) {
	r.older += r.writer.Size()
	r.file.Close() // what matters has been synced
	r.writer, r.file, r.first = nil, nil, next
}

// size returns the size of the segments since the snapshot.
func (r *recorder) size() int64 {
	if r.writer == nil {
		return r.older
	}
	return r.older + r.writer.Size()
}
