package persist

import (
	"errors"
	"log/slog"
	"sync/atomic"

	"cellserver/internal/journal"
	"cellserver/internal/store"
)

// recorder writes passes and snapshots. It is used by one goroutine, the folder's loop.
//
// If passes were lost, because a sync has failed or because they were too large to be kept in
// memory, the journal has a gap: the recorder begins another segment, and the number of its first
// pass does not follow the number of the last. After a crash, a startup therefore does not load this
// segment, unless a snapshot has replaced everything before it. The recorder writes that snapshot
// as soon as it can.
type recorder struct {
	environment
	store  Store
	clock  store.Clock
	status *status
	log    *slog.Logger
	noSync *atomic.Bool

	openSegment              // the current segment
	completed   openSegment  // the complete previous segment, until the current one has its name
	unnamed     bool         // the current segment has its temporary name
	number      uint64       // the number of the last segment that has its name
	link        journal.Link // where the segment with that number ended, unless it is the current segment
	synced      uint64       // the last pass that a startup would load even after a power failure
	gap         bool         // passes were lost, and no snapshot has been written since
	retry       backoff      // of the attempts to begin a segment while there is a gap
	origin
	unsyncedNames

	unwritten    chunkBuffer  // chunks of failed passes, and of the current one
	attempts     int          // number of failed passes in a row
	previous     previousPass // the last pass that was written
	obsolete     []string     // files to be removed before the next segment begins
	unsyncedTail *segment     // the last segment of an earlier process, until it is truncated and synced
	segmentCount              // of the segments since the snapshot
	base         int64        // bytes of the snapshot

	compaction compaction
	results    chan result
}

// origin says which program writes into which folder, for the headers of segments.
type origin struct {
	program string // its version
	folder  uint64
}

// unsyncedNames says which changes of the folder may not be on the disk.
type unsyncedNames struct {
	unsyncedName    bool // a file was renamed
	unsyncedRemoval bool // files were removed
}

// segmentCount counts segments.
type segmentCount struct {
	segments int   // their number
	older    int64 // the bytes of all segments except the current one
}

// openSegment is a segment that is written to.
type openSegment struct {
	writer *journal.Writer // nil if the next pass must begin a segment
	file   file
	first  uint64 // number of its first pass, or of the next segment's first pass
}

// limits are bounds that tests make small. Sizes are in bytes.
type limits struct {
	unwritten   int   // size of failed passes that are kept in memory
	maxAttempts int   // failed passes in a row before they are lost
	maxJournal  int64 // a snapshot replaces segments that are larger than this
	minJournal  int64 // no snapshot replaces segments that are smaller than this
	maxSegments int   // if there are more segments than this, a snapshot replaces them
	syncEach    int64 // size of the parts in which a snapshot is synced
	rest        int64 // pace.rest of the goroutine that writes a snapshot
}

// A journal of 256 MiB is loaded in about a second, so a smaller one need not be replaced. The
// bound on segments is for a process that is restarted often, because each start begins a segment.
// With rests, 10 million keys are written in 6 to 7 seconds by a quarter of a core.
var defaultLimits = limits{
	unwritten: 64 << 20, maxAttempts: 10, maxJournal: 256 << 20, minJournal: 1 << 20, maxSegments: 32,
	syncEach: 1 << 20,
	rest:     3,
}

// backoff is the time between attempts, in ticks of a second. It doubles with each failure.
type backoff struct{ wait, left int }

const maxWait = 64 // ticks

func (b *backoff) tick() { b.left = max(b.left-1, 0) }

func (b *backoff) failed() {
	b.wait = min(max(2*b.wait, 1), maxWait)
	b.left = b.wait
}

// errGap means that the journal has a gap, so later passes cannot be loaded.
var errGap = errors.New("changes were lost, and no snapshot could be written since")

// errLater means that the next attempt to begin a segment is not due yet.
var errLater = errors.New("the next attempt is not due yet")

// tick writes a pass. The loop calls it once a second.
func (r *recorder) tick() {
	r.retry.tick()
	r.compaction.retry.tick()
	if r.pass(false) == nil {
		r.compact()
	}
}

// pass writes a pass, and syncs it unless sync is false and NoSync is set. If the pass fails, its
// entries are kept in memory, and the next pass writes them too.
func (r *recorder) pass(sync bool) error {
	began := r.machine.Read()
	err := r.beginPass()
	sync = sync || r.compaction.stage == written || r.unnamed
	count := counter{}
	r.busy.Add(1)
	failed := r.store.Pass(func(entries []byte) error {
		count.add(entries)
		if r.writer != nil || !r.gap {
			r.unwritten.add(entries)
		}
		if err == nil {
			err = r.writer.Append(entries)
		}
		return nil // after an error too, so that the whole pass is kept in memory
	})
	r.busy.Add(-1)
	switch {
	case failed != nil:
		r.losePass()
		return r.failed(failed)
	case err == nil && !sync && (r.previous.synced || r.noSync.Load()) && r.previous.skip(&r.unwritten):
		r.writer.Abandon()
		r.passed(began, counter{}, r.previous.synced)
		return nil
	case err == nil:
		sync = sync || !r.noSync.Load()
		err = r.endPass(sync)
	}
	if err != nil {
		r.abandon(err)
		return r.failed(err)
	}
	r.previous.set(&r.unwritten, sync)
	if r.unsyncedName {
		if err := r.syncFolder(); err != nil {
			r.unwritten.clear() // the segment has them; only its name may not be on the disk
			return r.failed(err)
		}
	}
	r.passed(began, count, sync)
	return nil
}

// endPass ends a pass. A segment becomes a part of the journal when its first pass ends.
func (r *recorder) endPass(sync bool) error {
	err := r.writer.End(sync)
	if err == nil && r.unnamed {
		err = r.nameSegment()
	}
	return err
}

// passed reports a pass that succeeded.
func (r *recorder) passed(began store.Reading, count counter, synced bool) {
	r.unwritten.clear()
	r.attempts = 0
	if !r.gap {
		r.synced = r.writer.Synced()
		r.status.recovered(r.log)
	}
	r.status.passed(began, count, synced && !r.gap, r.size())
}

// beginPass begins a pass with the entries of failed passes.
func (r *recorder) beginPass() error {
	if err := r.checkInPlace(); err != nil {
		if r.writer != nil {
			r.losePass() // no startup would find the files that were written
		}
		return err
	}
	if r.writer == nil {
		if err := r.beginSegment(); err != nil {
			return err
		}
	} else if r.unsyncedName {
		if err := r.syncFolder(); err != nil {
			return err
		}
	}
	if err := r.writer.Begin(newStamp(r.clock, r.machine)); err != nil {
		return err
	}
	for _, chunk := range r.unwritten.chunks {
		if err := r.writer.Append(chunk); err != nil {
			return err
		}
	}
	return nil
}

// abandon ends a failed attempt to write a pass. The next attempt is made in the same segment, or, if a
// sync has failed, in another segment. The pass is lost in three cases: a sync has failed, and earlier
// passes were not synced, so they may not be on the disk either; the pass is too large to be kept in
// memory; or too many attempts have failed. In the last case, the loss makes a snapshot due, which may
// fit on a disk that is full of segments.
func (r *recorder) abandon(err error) {
	if !r.gap {
		r.attempts++
	}
	unsynced := errors.Is(err, journal.ErrSync) && !r.unnamed
	switch {
	case r.unwritten.full || r.attempts >= r.limits.maxAttempts || r.gap && r.unnamed || unsynced && !r.canRepeat():
		r.losePass()
	case r.unnamed:
		r.discardSegment()
	case unsynced:
		r.closeSegment(r.writer.Next())
	case r.writer != nil:
		r.writer.Abandon()
	}
}

// canRepeat reports whether the next segment can begin with a pass whose sync has failed: all passes
// before it are on the disk, and there are not too many segments.
func (r *recorder) canRepeat() bool {
	return !r.gap && r.writer.Synced()+1 == r.writer.Next() && !r.hasManySegments()
}

// failed reports a failure to write. errLater is not a new failure.
func (r *recorder) failed(err error) error {
	if err != errLater {
		r.status.failed(r.log, err)
	}
	return err
}

// close writes the last pass. It cancels a snapshot that is being written, unless the snapshot is necessary.
func (r *recorder) close() error {
	if r.mustCompact() {
		r.compactAtClose()
	}
	if r.compaction.stage == writing {
		r.compaction.cancel()
		r.snapshotWritten(<-r.results)
	}
	switch err := r.pass(true); {
	case err == errLater:
		return errGap
	case err != nil:
		return err
	}
	if r.compaction.stage == named {
		r.complete()
	}
	err := r.writer.Close(newStamp(r.clock, r.machine))
	if r.gap {
		err = errors.Join(err, errGap)
	}
	return errors.Join(err, r.file.Close())
}
