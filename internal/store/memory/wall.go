package memory

import (
	"sync"
	"sync/atomic"
	"time"

	"cellserver/internal/form"
	"cellserver/internal/limit"
	"cellserver/internal/store"
)

// wallClock is the wall clock by which calendar quotas begin and end their windows. It is a
// function of the instants of the store, so that all steps of a transaction see one time. It
// differs from the clock of the machine in two ways. It notices only after wallInterval that the
// machine's was set, because comparing two clocks takes ten times as long as reading one. And it
// never runs back: if the machine's clock is set back, it stands still until that has caught up,
// and no window comes twice.
type wallClock struct {
	clock      store.Clock
	comparing  sync.Mutex
	comparedAt atomic.Int64 // the instant of the last comparison
	offset     atomic.Int64 // to be added to an instant
	floor      atomic.Int64 // Unix nanoseconds: the latest time that was seen before the clock was set back
}

// wallInterval is the time between two comparisons of the clocks, while there are calls of quotas.
const wallInterval = int64(time.Millisecond)

func newWallClock(clock store.Clock) *wallClock {
	w := &wallClock{clock: clock}
	w.comparedAt.Store(clock.Now())
	w.offset.Store(clock.Offset())
	return w
}

// unix returns the Unix time of an instant in nanoseconds, by the wall clock of the machine. Times
// to wait count from there.
func (w *wallClock) unix(instant int64) int64 {
	if w.isOld(instant) {
		w.compare(instant)
	}
	return instant + w.offset.Load()
}

// latest returns the latest time that any caller has seen on the wall clock until an instant.
func (w *wallClock) latest(instant int64) int64 {
	return max(w.unix(instant), w.floor.Load())
}

// isOld reports whether the clocks were compared too long before an instant.
func (w *wallClock) isOld(instant int64) bool {
	passed := instant - w.comparedAt.Load()
	return passed >= wallInterval || passed <= -wallInterval
}

// compare compares the clocks, unless another goroutine just has. Clock.Offset rounds to
// milliseconds, so a difference of one is none.
func (w *wallClock) compare(instant int64) {
	w.comparing.Lock()
	defer w.comparing.Unlock()
	if !w.isOld(instant) {
		return
	}
	seen := w.comparedAt.Load() + wallInterval // by any caller, because later ones came here
	w.comparedAt.Store(instant)
	before, offset := w.offset.Load(), w.clock.Offset()
	if difference := offset - before; -wallInterval <= difference && difference <= wallInterval {
		return
	}
	if offset < before {
		w.floor.Store(max(w.floor.Load(), seen+before)) // before the offset, which latest reads first
	}
	w.offset.Store(offset)
}

// onStore returns the instant of a Unix time that lies ahead. It is before store.Never.
func (w *wallClock) onStore(unix int64) int64 {
	offset := w.offset.Load()
	if offset <= 0 && unix > store.Never-1+offset {
		return store.Never - 1
	}
	return unix - offset
}

// expiryOf returns what a record with a state has in place of its expiry; see record.expires.
func expiryOf(state *form.State) int64 {
	if state.Kind == limit.Quota {
		return -state.Expires()
	}
	return state.Expires()
}

// isExpired reports whether an expiry of a record, or the result of expiryOf, has passed. For all
// kinds but quotas it is an instant above 0; the expiry of a quota is negative, and thus passes the
// first test.
func (s *shard) isExpired(expiry, now int64) bool {
	return expiry <= now && (expiry >= 0 || s.hasEnded(-expiry, now))
}

// hasEnded reports whether the window of a quota has ended. It is not inlined, so that isExpired is.
//
//go:noinline
func (s *shard) hasEnded(end, now int64) bool { return s.store.wall.latest(now) >= end }

// expiry returns the instant, on the clock of the store, at which a live record expires.
func (s *shard) expiry(r record) int64 {
	if e := r.expires(); e >= 0 {
		return e
	}
	return s.store.wall.onStore(-r.expires())
}

// entry returns the record's entry at an instant. An expired record counts as absent.
func (s *shard) entry(r record, now int64) store.Entry {
	if r == nil || s.isExpired(r.expires(), now) {
		return store.Entry{}
	}
	return store.Entry{Kind: r.kind(), Expires: s.expiry(r)}
}
