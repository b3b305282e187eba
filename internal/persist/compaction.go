package persist

import (
	"errors"
	"math/rand/v2"
	"sync/atomic"

	"cellserver/internal/journal"
)

// compaction is the replacement of the segments by a snapshot. It has three steps, each of which
// leaves a folder that a start can use:
//
//  1. A new segment begins, with a pass. What the older segments contain is complete.
//  2. All keys are written to a temporary file, which is synced. Meanwhile, passes go on.
//  3. The next pass is synced. Only then is the snapshot valid, because its keys are of different
//     instants, and it gets its name. When that is on the disk, the older files are removed.
type compaction struct {
	stage     stage
	requested bool    // by a client
	fresh     bool    // the current segment has begun for a snapshot that is not valid yet
	retry     backoff // after a failure
	began     int64
	size      int64        // of the file that was written
	canceled  *atomic.Bool // of the goroutine that writes
}

type stage uint8

const (
	idle    stage = iota
	writing       // a goroutine writes the temporary file
	written       // it is complete, and the next synced pass makes it valid
)

// result is how the writing of a snapshot ended.
type result struct {
	size int64
	err  error
}

var errCanceled = errors.New("the snapshot was given up")

// cancel gives up a snapshot. The goroutine that writes it ends soon, and its result is ignored.
func (c *compaction) cancel() {
	c.fresh = false
	if c.stage != idle {
		c.canceled.Store(true)
	}
	if c.stage == written {
		c.stage = idle
	}
}

// compact begins or completes a compaction, if that is due. It is called after a pass.
func (r *recorder) compact() {
	switch {
	case r.compaction.stage == written:
		r.publish()
	case r.compaction.stage == idle && r.wantsSnapshot():
		r.beginSnapshot()
	}
}

func (r *recorder) wantsSnapshot() bool {
	c := &r.compaction
	if c.requested {
		return true
	}
	return c.retry.left == 0 && (r.detached || r.isLarge() || r.segments > r.limits.segments)
}

// isLarge reports whether it is time to replace the segments. On a small disk, that is sooner: when
// as much is still free.
func (r *recorder) isLarge() bool {
	size := r.size()
	if size <= 2*r.base || size < r.limits.small {
		return false
	}
	return size > r.limits.journal || size > r.files.free()
}

// beginSnapshot begins to write a snapshot that replaces all segments before the current one.
func (r *recorder) beginSnapshot() {
	c := &r.compaction
	c.requested = false
	if !r.detached && !c.fresh {
		if err := r.changeSegment(); err != nil {
			r.compactionFailed(err)
			return
		}
	}
	c.stage, c.fresh, c.canceled = writing, true, &atomic.Bool{}
	c.began = elapsed(r.machine.Read())
	r.status.compacting(c.began)
	header := journal.Header{Mark: rand.Uint64(), Number: r.number, First: r.first, Synced: r.first - 1}
	canceled := c.canceled
	r.launch(func() {
		size, err := r.writeSnapshot(header, canceled)
		r.results <- result{size, err}
	})
}

// changeSegment ends the current segment, and begins another with a pass.
func (r *recorder) changeSegment() error {
	if err := r.writer.Close(newStamp(r.clock, r.machine)); err != nil {
		r.abandon(err)
		return r.failed(err)
	}
	r.synced = r.writer.Synced()
	r.closeSegment(r.writer.Next())
	return r.pass(true)
}

// writeSnapshot writes the temporary file, in a goroutine of its own.
func (r *recorder) writeSnapshot(header journal.Header, canceled *atomic.Bool) (size int64, err error) {
	f, err := r.files.create(temporaryName)
	if err != nil {
		return 0, err
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if err != nil {
			r.files.remove(temporaryName) // it may take the space that passes need
		}
	}()
	w, err := journal.Create(f, header)
	if err != nil {
		return 0, err
	}
	if err := w.Begin(newStamp(r.clock, r.machine)); err != nil {
		return 0, err
	}
	unsynced := int64(0)
	err = r.store.Snapshot(func(entries []byte) error {
		if canceled.Load() {
			return errCanceled
		}
		// Passes must not wait for a long sync of this file, so it is synced in parts.
		if unsynced += int64(len(entries)); unsynced > r.limits.syncEach {
			unsynced = 0
			if err := f.Sync(); err != nil {
				return err
			}
		}
		return w.Append(entries)
	})
	if err != nil {
		return 0, err
	}
	err = w.End(true)
	return w.Size(), err
}

// snapshotWritten is called with the result of writeSnapshot.
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

// publish gives the snapshot its name. The pass before has been synced.
func (r *recorder) publish() {
	c := &r.compaction
	name := snapshotName(r.number, r.writer.Synced())
	if err := r.files.rename(temporaryName, name); err != nil {
		r.compactionFailed(err)
		return
	}
	if err := r.files.sync(); err != nil { // the older files stay, and are valid too
		r.compactionFailed(err)
		return
	}
	c.stage, c.fresh, c.retry, r.retry = idle, false, backoff{}, backoff{}
	r.base, r.older, r.segments = c.size, 0, 1
	r.synced, r.detached = r.writer.Synced(), false
	duration := elapsed(r.machine.Read()) - c.began
	r.status.compactionEnded(duration, nil)
	r.status.compacted(r.base, r.size())
	r.status.recovered(r.log)
	r.log.Info("a snapshot was written", "bytes", c.size, "ms", duration/1e6)
	if err := r.removeOlder(name); err != nil {
		r.log.Warn("files that a snapshot has replaced cannot be removed", "error", err)
	}
}

// removeOlder removes what a snapshot has replaced. What cannot be removed now is removed by the
// next compaction, or at the next start.
func (r *recorder) removeOlder(newest string) error {
	names, err := r.files.list()
	for _, name := range names {
		segment, isSegment := parseSegmentName(name)
		_, _, isSnapshot := parseSnapshotName(name)
		if isSegment && segment < r.number || isSnapshot && name != newest {
			err = errors.Join(err, removeIfPresent(r.files, name))
		}
	}
	return err
}

// compactionFailed ends a compaction that has failed. It is tried again, in the same segment.
func (r *recorder) compactionFailed(err error) {
	c := &r.compaction
	c.stage = idle
	c.retry.failed()
	if r.status.compactionEnded(0, err) {
		r.log.Error("a snapshot cannot be written, it is tried again", "error", err)
	}
}

// attach completes the snapshot without which passes cannot be used, before the process ends.
func (r *recorder) attach() {
	for range 2 { // the first may have been given up
		r.retry.left, r.compaction.retry.left = 0, 0
		if r.compaction.stage != writing && r.pass(true) == nil {
			r.compact()
		}
		if r.compaction.stage == writing {
			r.snapshotWritten(<-r.results)
		}
		if !r.detached {
			return
		}
	}
}
