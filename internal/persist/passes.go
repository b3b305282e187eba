package persist

import (
	"errors"
	"log/slog"
	"sync/atomic"

	"cellserver/internal/journal"
	"cellserver/internal/store"
)

// recorder writes passes and snapshots. It belongs to one goroutine, the folder's loop.
//
// If passes were lost, because a sync has failed or because they became too large to be kept in
// memory, the recorder is detached: it begins another segment, whose first pass has a number that
// does not follow the last. A start after a crash therefore does not use this segment, until a
// snapshot has replaced everything before it.
type recorder struct {
	environment
	store  Store
	clock  store.Clock
	status *status
	log    *slog.Logger
	noSync *atomic.Bool

	writer   *journal.Writer // of the current segment; nil if it has to be begun
	file     file            // of the current segment
	number   uint64          // of the current segment; if there is none, of the last one
	first    uint64          // the first pass of the current segment, or of the next one
	synced   uint64          // the last pass that is on the disk, and that a start would use
	detached bool
	retry    backoff // of the attempts to end that

	kept     kept     // chunks of failed passes, and of the current one
	attempts int      // number of failed passes in a row
	previous previous // the last pass that was written
	obsolete []string // files to be removed before the next segment begins
	tail     *segment // the last segment of an earlier process, until it has been cut and synced
	older    int64    // size of the segments before the current one, since the snapshot
	segments int      // number of segments since the snapshot
	base     int64    // size of the snapshot

	compaction compaction
	results    chan result
}

// limits are bounds that tests make small.
type limits struct {
	keep     int   // bytes of failed passes
	attempts int   // number of attempts to write them
	journal  int64 // size of the segments at which they may be replaced by a snapshot
	small    int64 // and below which they are never replaced
	segments int   // number of segments at which they are
	syncEach int64 // bytes of a snapshot after which it is synced
}

// A journal of 256 MiB is loaded in about a second, so a smaller one is not replaced. A process that
// is restarted again and again, and so begins many segments, replaces them sooner.
var defaultLimits = limits{
	keep: 64 << 20, attempts: 10, journal: 256 << 20, small: 1 << 20, segments: 32, syncEach: 32 << 20,
}

// backoff is the time between attempts, in ticks. It doubles with each failure.
type backoff struct{ wait, left int }

const longestWait = 64

func (b *backoff) tick() { b.left = max(b.left-1, 0) }

func (b *backoff) failed() {
	b.wait = min(max(2*b.wait, 1), longestWait)
	b.left = b.wait
}

// errDetached means that passes cannot be used until a snapshot has been written.
var errDetached = errors.New("changes were lost, and no snapshot could be written since")

// errLater means that the next attempt is not due yet.
var errLater = errors.New("the next attempt is not due yet")

// tick is called once a second.
func (r *recorder) tick() {
	r.retry.tick()
	r.compaction.retry.tick()
	if r.pass(false) == nil {
		r.compact()
	}
}

// pass writes a pass. If that fails, what the pass contains is kept and written by the next one.
func (r *recorder) pass(sync bool) error {
	began := r.machine.Read()
	sync = sync || r.compaction.stage == written
	err := r.beginPass()
	count := counter{}
	failed := r.store.Pass(func(entries []byte) error {
		count.add(entries)
		if r.writer != nil || !r.detached {
			r.kept.add(entries)
		}
		if err == nil {
			err = r.writer.Append(entries)
		}
		return nil // whatever happens to the file, the pass is collected as a whole
	})
	switch {
	case failed != nil:
		r.lose()
		return r.failed(failed)
	case err == nil && !sync && (r.previous.synced || r.noSync.Load()) && r.previous.repeatedBy(&r.kept):
		r.writer.Abandon()
		r.passed(began, counter{}, r.previous.synced)
		return nil
	case err == nil:
		sync = sync || !r.noSync.Load()
		err = r.writer.End(sync)
	}
	if err != nil {
		r.abandon(err)
		return r.failed(err)
	}
	r.previous.set(&r.kept, sync)
	r.passed(began, count, sync)
	return nil
}

// passed reports a pass that succeeded.
func (r *recorder) passed(began store.Reading, count counter, synced bool) {
	r.kept.clear()
	r.attempts = 0
	if !r.detached {
		r.synced = r.writer.Synced()
		r.status.recovered(r.log)
	}
	r.status.passed(began, count, synced && !r.detached, r.size())
}

// beginPass begins a pass with what was kept of failed ones.
func (r *recorder) beginPass() error {
	if err := r.inPlace(); err != nil {
		if r.writer != nil {
			r.lose() // no start would find what was written
		}
		return err
	}
	if r.writer == nil {
		if err := r.beginSegment(); err != nil {
			return err
		}
	}
	if err := r.writer.Begin(newStamp(r.clock, r.machine)); err != nil {
		return err
	}
	for _, chunk := range r.kept.chunks {
		if err := r.writer.Append(chunk); err != nil {
			return err
		}
	}
	return nil
}

// abandon ends an attempt to write a pass. The next one can be made in the same segment, unless a
// sync has failed, or the pass is too large to be written again. If many attempts fail, a snapshot
// may fit where the pass does not, because it makes room by replacing the segments.
func (r *recorder) abandon(err error) {
	if !r.detached {
		r.attempts++
	}
	switch {
	case errors.Is(err, journal.ErrSync) || r.kept.full || r.attempts >= r.limits.attempts:
		r.lose()
	case r.writer != nil:
		r.writer.Abandon()
	}
}

// failed reports a failure to write.
func (r *recorder) failed(err error) error {
	if err != errLater {
		r.status.failed(r.log, err)
	}
	return err
}

// close writes the last pass. A running snapshot is given up, unless it is needed because passes
// were lost.
func (r *recorder) close() error {
	if r.detached {
		r.attach()
	}
	if r.compaction.stage == writing {
		r.compaction.cancel()
		r.snapshotWritten(<-r.results)
	}
	switch err := r.pass(true); {
	case err == errLater:
		return errDetached
	case err != nil:
		return err
	}
	err := r.writer.Close(newStamp(r.clock, r.machine))
	if r.detached {
		err = errors.Join(err, errDetached)
	}
	return errors.Join(err, r.file.Close())
}
