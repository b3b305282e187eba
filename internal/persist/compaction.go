package persist

import (
	"errors"
	"sync/atomic"
	"time"

	"cellserver/internal/journal"
)

// compaction is the replacement of the segments by a snapshot. It has three steps. A crash during
// any step leaves a folder that can be loaded:
//
//  1. A new segment begins with a pass, so the older segments are complete.
//  2. A goroutine writes all keys to a temporary file, and syncs it. Passes continue meanwhile.
//  3. The next pass is synced. Now the snapshot is valid, because the passes in the new segment
//     include all changes since its first key was read, so the file is renamed. When the new name is
//     on the disk, the older files are removed.
type compaction struct {
	stage     stage
	requested bool         // by a client
	needed    bool         // the next startup would refuse the folder without a snapshot
	fresh     bool         // the current segment was begun by step 1, and no snapshot is valid yet
	retry     backoff      // after a failure
	began     int64        // ns, on the clock of elapsed
	number    uint64       // of the first segment that is loaded after the snapshot
	replaces  segmentCount // the segments before number
	synced    uint64       // the last pass that was synced when the snapshot got its name
	size      int64        // bytes of the file that was written
	canceled  *atomic.Bool // set to end the goroutine that writes the snapshot
	hurry     atomic.Bool  // set to make it write as fast as it can
}

type stage uint8

const (
	idle    stage = iota
	writing       // step 2
	written       // step 2 has ended, and the next synced pass makes the snapshot valid
	named         // the snapshot has its name, which may not be on the disk yet
)

// result is the result of writing a snapshot.
type result struct {
	size int64
	err  error
}

var errCanceled = errors.New("the snapshot was canceled")

// cancel cancels a snapshot. The goroutine that writes it ends soon, and its result is ignored.
func (c *compaction) cancel() {
	c.fresh = false
	if c.stage != idle {
		c.canceled.Store(true)
	}
	if c.stage == written {
		c.stage = idle
	}
}

// compact begins or completes a compaction, if that is due. It is called after a pass has been
// written.
func (r *recorder) compact() {
	switch {
	case r.compaction.stage == written:
		r.publish()
	case r.compaction.stage == named:
		r.complete()
	case r.compaction.stage == idle && r.wantsSnapshot():
		r.beginSnapshot()
	}
}

func (r *recorder) wantsSnapshot() bool {
	c := &r.compaction
	if c.requested {
		return true
	}
	return c.retry.left == 0 && (r.mustCompact() || r.isLarge() || r.segments > r.limits.maxSegments)
}

// mustCompact reports whether the process must not end without a snapshot. Otherwise, the next
// startup would not load the journal, or short-lived processes would leave ever more segments,
// because none lives until a snapshot is due.
func (r *recorder) mustCompact() bool {
	return r.gap || r.compaction.needed || r.hasManySegments()
}

// hasManySegments reports whether the next startup would take long to load the segments.
func (r *recorder) hasManySegments() bool { return r.segments > 4*r.limits.maxSegments }

// isLarge reports whether the segments should be replaced because of their size: they are twice as
// large as the snapshot, and larger than maxJournal. On a small disk, they must be replaced while
// there is still space for a snapshot, so they also are large if they exceed the free space.
func (r *recorder) isLarge() bool {
	size := r.size()
	if size <= 2*r.base || size < r.limits.minJournal {
		return false
	}
	return size > r.limits.maxJournal || size > r.files.free()
}

// beginSnapshot begins to write a snapshot, which will replace all segments before the current one.
func (r *recorder) beginSnapshot() {
	c := &r.compaction
	c.requested = false
	if !r.gap && !c.fresh && r.segments <= r.limits.maxSegments { // with so many segments, the current one is short
		if err := r.changeSegment(); err != nil {
			r.compactionFailed(err)
			return
		}
	}
	c.stage, c.fresh, c.canceled = writing, true, &atomic.Bool{}
	c.began = elapsed(r.machine.Read())
	r.status.compacting(c.began)
	c.number, c.replaces = r.number, segmentCount{segments: r.segments - 1, older: r.older}
	header := r.newHeader()
	header.Number, header.First, header.Synced = r.number, r.first, r.first-1
	header.Previous.Mark = r.writer.Link().Mark
	canceled := c.canceled
	r.launch(func() {
		size, err := r.writeSnapshot(header, canceled)
		r.results <- result{size, err}
	})
}

// changeSegment ends the current segment, and begins another one with a pass. If that fails, for
// example because the disk has no space for another file, the current segment continues.
func (r *recorder) changeSegment() error {
	if err := r.prepare(); err != nil {
		return err
	}
	f, err := r.files.create(segmentTemporary)
	if err != nil {
		return err
	}
	if err := r.writer.Close(newStamp(r.clock, r.machine)); err != nil {
		f.Close()
		r.abandon(err)
		return r.failed(err)
	}
	r.synced = r.writer.Synced()
	r.completed, r.openSegment = r.openSegment, openSegment{first: r.writer.Next()}
	if err := r.useSegment(f); err != nil {
		r.openSegment, r.completed = r.completed, openSegment{}
		return err
	}
	return r.pass(true)
}

// writeSnapshot writes the temporary file. It runs in its own goroutine.
func (r *recorder) writeSnapshot(header journal.Header, canceled *atomic.Bool) (size int64, err error) {
	f, err := r.files.create(temporaryName)
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			_ = f.Truncate(0) // passes may need the space; the file remains, as in discardSegment
		}
		err = errors.Join(err, f.Close())
	}()
	w, err := journal.Create(f, header)
	if err != nil {
		return 0, err
	}
	if err := w.Begin(newStamp(r.clock, r.machine)); err != nil {
		return 0, err
	}
	unsynced := int64(0)
	pace := pace{machine: r.machine, sleep: r.sleep, rest: r.limits.rest, hurry: &r.compaction.hurry, busy: r.busy}
	pace.begin()
	defer pace.end()
	err = r.store.Snapshot(func(entries []byte) error {
		if canceled.Load() {
			return errCanceled
		}
		// The file is synced in parts, because a long sync would delay the syncs of passes.
		if unsynced += int64(len(entries)); unsynced > r.limits.syncEach {
			unsynced = 0
			if err := f.Sync(); err != nil {
				return err
			}
		}
		if err := w.Append(entries); err != nil {
			return err
		}
		pace.after()
		return nil
	})
	if err != nil {
		return 0, err
	}
	err = w.End(true)
	return w.Size(), err
}

// snapshotWritten is called by the loop with the result of writeSnapshot.
func (r *recorder) snapshotWritten(s result) {
	c := &r.compaction
	switch {
	case c.canceled.Load():
		c.stage = idle
		r.status.compactionEnded(0, errCanceled)
	case s.err != nil:
		r.compactionFailed(s.err)
	default:
		c.stage, c.size = written, s.size
		if r.pass(true) == nil {
			r.compact()
		}
	}
}

// publish renames the snapshot, after a pass that makes it valid has been synced.
func (r *recorder) publish() {
	c := &r.compaction
	c.synced = r.writer.Synced()
	if err := r.files.rename(temporaryName, snapshotName(c.number, c.synced)); err != nil {
		r.compactionFailed(err)
		return
	}
	c.stage, r.unsyncedName = named, true
	r.retry, r.synced, r.gap = backoff{}, c.synced, false
	if err := r.syncFolder(); err != nil { // the older files remain, and the next pass syncs the folder
		r.status.failed(r.log, err)
		return
	}
	r.status.recovered(r.log)
	r.complete()
}

// complete ends a compaction when the name of the snapshot is on the disk: it removes the files that the
// snapshot replaces.
func (r *recorder) complete() {
	c := &r.compaction
	c.stage, c.fresh, c.needed, c.retry = idle, false, false, backoff{}
	r.base, r.older, r.segments = c.size, r.older-c.replaces.older, r.segments-c.replaces.segments
	duration := elapsed(r.machine.Read()) - c.began
	r.status.compactionEnded(duration, nil)
	r.status.compacted(r.base, r.size())
	r.log.Info("a snapshot was written", "bytes", c.size, "ms", duration/1e6)
	if err := r.removeOlder(snapshotName(c.number, c.synced)); err != nil {
		r.log.Warn("files that a snapshot has replaced cannot be removed", "error", err)
	}
}

// removeOlder removes the files that a snapshot has replaced. Files that it cannot remove must be
// removed before the next segment begins: a startup that finds them together with that segment takes
// them for a backup.
func (r *recorder) removeOlder(newest string) error {
	r.unsyncedRemoval = true
	names, err := r.files.list()
	for _, name := range names {
		segment, isSegment := parseSegmentName(name)
		_, _, isSnapshot := parseSnapshotName(name)
		if isSegment && segment < r.compaction.number || isSnapshot && name != newest {
			failed := r.removeInParts(name)
			if failed != nil {
				r.obsolete = append(r.obsolete, name)
			}
			err = errors.Join(err, failed)
		}
	}
	return err
}

// The space of a file is freed in parts of freedAtOnce bytes, with rests of freeingRest. Freeing 256 MiB
// takes the system 80 ms, in which nothing else runs on the core.
const (
	freedAtOnce = 2 << 20
	freeingRest = 3 * time.Millisecond
)

// removeInParts removes a file, and then frees its space in a goroutine. If the process ends before that,
// the system frees the rest.
func (r *recorder) removeInParts(name string) error {
	f, err := r.files.edit(name)
	if err != nil {
		return removeIfPresent(r.files, name)
	}
	size, err := f.Size()
	err = errors.Join(err, removeIfPresent(r.files, name))
	if err != nil || size <= freedAtOnce {
		return errors.Join(err, f.Close())
	}
	r.launch(func() {
		for ; err == nil && size > 0; size -= freedAtOnce {
			err = f.Truncate(max(size-freedAtOnce, 0))
			r.sleep(freeingRest)
		}
		_ = f.Close() // the file has no name any more
	})
	return nil
}

// compactionFailed ends a compaction that has failed. A later one uses the same segment.
func (r *recorder) compactionFailed(err error) {
	c := &r.compaction
	c.stage = idle
	c.retry.failed()
	if r.status.compactionEnded(0, err) {
		r.log.Error("a snapshot cannot be written; it will be tried again", "error", err)
	}
}

// compactAtClose writes a snapshot that is necessary before the process ends.
func (r *recorder) compactAtClose() {
	r.compaction.hurry.Store(true)
	for range 2 { // the first snapshot may have been canceled
		r.retry.left, r.compaction.retry.left = 0, 0
		if r.compaction.stage != writing && r.pass(true) == nil {
			r.compact()
		}
		if r.compaction.stage == writing {
			r.snapshotWritten(<-r.results)
		}
		if !r.mustCompact() {
			return
		}
	}
}
