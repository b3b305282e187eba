package memory

import (
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"

	"cellserver/internal/gcra"
	"cellserver/internal/lease"
	"cellserver/internal/limit"
	"cellserver/internal/meter"
	"cellserver/internal/quota"
	"cellserver/internal/store"
	"cellserver/internal/window"
)

// shard is a part of a database under one lock: an index by the keys' hashes, and pages of records.
// All methods require the lock, which the methods of view take.
type shard struct {
	// The fields that every step reads come first, in the first two cache lines and in the fourth,
	// which begins with changes.
	mu          sync.Mutex // use lock and unlock, which measure the time
	lastInstant int64      // the latest instant of any call: within a shard, time never runs backwards
	caller      int64      // the caller that holds the lock, for listeners; in a cache line that every step writes to
	records     int        // including expired ones that have not been removed yet
	listeners   *listeners
	layout      atomic.Pointer[layout] // what Prefetch reads without the lock
	lockTime    *meter.MaxCPUTime      // measures how long the lock is held; may be nil
	database    int32
	noGrowth    bool // the step must not allocate, see View.WithoutGrowth
	index       index
	changes     changes // which keys have changed, for passes
	pages       pages

	logs   slab[entryLog]
	leases slab[keyLeases]

	// Scratch memory for the entries and leases that a step reads from a record or writes to it
	// (inline.go).
	scratchRing    logRing
	scratchEntries []window.Entry
	scratchLeases  lease.Few

	seed      maphash.Seed
	store     *Store    // that the shard belongs to
	owner     *database // that the shard belongs to
	holds     *heldKeys // keys that have open holds; nil if there are none
	noExpiry  uint32    // number of values that do not expire
	nextSweep uint32    // the page that the sweep visits next
	lockedAt  int64     // result of lockTime.Start
	shardCounts

	// The size of a shard must be a multiple of the cache line, so that its neighbour's lock is not
	// on the same line. A test verifies that, and says how many bytes of padding this needs.
}

// shardCounts are counts for Usage alone.
type shardCounts struct {
	expiredCount int64 // number of records removed because they had expired
	sweptCount   int64 // number of expired records that were removed without a step on their keys
	copiedBytes  int64 // bytes of values that were copied under the lock
	kinds        kindCounts
}

// kindCounts are the numbers of records by their kind, below the next power of two so that the compiler knows
// that each kind has one.
type kindCounts [16]uint32

func (k *kindCounts) add(kind limit.Kind)    { k[kind%16]++ }
func (k *kindCounts) remove(kind limit.Kind) { k[kind%16]-- }

func (k *kindCounts) replace(before, after limit.Kind) {
	k.remove(before)
	k.add(after)
}

// advance returns the instant of a call that read the clock at now: not before any instant that the
// shard has seen. Two sessions read the clock independently, so the one that gets the lock second
// may have read it first.
func (s *shard) advance(now int64) int64 {
	s.lastInstant = max(s.lastInstant, now)
	return s.lastInstant
}

func (s *shard) hash(key []byte) keyHash { return splitHash(maphash.Bytes(s.seed, key)) }

// indexPosition is the position of a record in the index.
type indexPosition struct {
	bucket *bucket
	slot   int
}

// ref returns the record that is at the position.
func (p indexPosition) ref() ref { return p.bucket.ref(p.slot) }

// find returns the record of a key, expired or not, and its position; nil if there is none.
func (s *shard) find(h keyHash, key []byte) (record, indexPosition) {
	if s.records == 0 {
		return nil, indexPosition{}
	}
	for b := s.index.firstBucket(h.position); b != nil; b = s.index.nextBucket(b) {
		for match := b.match(h.tag); match != 0; match &= match - 1 {
			slot := bits.TrailingZeros32(match)
			if r := s.pages.at(b.ref(slot)); string(r.key()) == string(key) {
				return r, indexPosition{b, slot}
			}
		}
	}
	return nil, indexPosition{}
}

// findLive is find for operations that access the key. It removes the record if it has expired, so
// that listeners are notified as soon as any caller could notice.
func (s *shard) findLive(h keyHash, key []byte, now int64) (record, indexPosition) {
	r, p := s.find(h, key)
	if r != nil && s.isExpired(r.expires(), now) {
		s.removeExpired(h, key, p)
		return nil, indexPosition{}
	}
	return r, p
}

// removeExpired removes an expired record, unless memory is short: then the record stays, so that
// the next content of its key has a slot.
func (s *shard) removeExpired(h keyHash, key []byte, p indexPosition) {
	if !s.lowOnMemory() {
		s.expire(h, key, p)
	}
}

// lowOnMemory reports whether the allocation of a record might fail: the step must not allocate, or
// the shard has few page numbers left.
func (s *shard) lowOnMemory() bool { return s.noGrowth || !s.pages.canAdd(pagesPerStep) }

// expire removes an expired record and notifies the listeners.
func (s *shard) expire(h keyHash, key []byte, p indexPosition) {
	s.notify(key, store.Expired)
	s.expiredCount++
	s.remove(h, p)
}

// add creates the record of a key that has none. The caller must set its expiry.
func (s *shard) add(h keyHash, key []byte, kind limit.Kind) (record, ref, error) {
	return s.addSized(h, key, kind, 0)
}

// addSized is like add for a kind whose records have extra bytes after their value.
func (s *shard) addSized(h keyHash, key []byte, kind limit.Kind, extra int) (record, ref, error) {
	size := recordSize(len(key), kind) + extra
	if s.lowOnMemory() {
		if at := s.reuseExpired(h, key, kind, size); at != 0 {
			return s.pages.at(at), at, nil
		}
		if s.noGrowth {
			return nil, 0, store.ErrFull
		}
	}
	at, ok := s.pages.alloc(size)
	if !ok {
		return nil, 0, store.ErrFull
	}
	r := s.pages.at(at)
	r.setKey(key)
	r.reset(kind, s.lastInstant)
	s.kinds.add(kind)
	s.index.resizeIfNeeded(s.records)
	s.index.moveBucket(s.rehash)
	s.index.insert(h, at)
	s.records++
	s.publishLayout()
	return r, at, nil
}

// reuseExpired reuses the expired record of a key, if there is one, for a record of a kind. If its
// slot is too small the record is removed, unless the step must not allocate. It returns 0 if no
// record was reused.
func (s *shard) reuseExpired(h keyHash, key []byte, kind limit.Kind, size int) ref {
	r, p := s.find(h, key)
	switch {
	case r == nil:
		return 0
	case s.pages.slotSize(p.ref()) >= size:
		s.notify(key, store.Expired)
		s.expiredCount++
		s.freeState(r)
		s.kinds.replace(r.kind(), kind)
		r.reset(kind, s.lastInstant)
		return p.ref()
	case !s.noGrowth:
		s.expire(h, key, p)
	}
	return 0
}

func (s *shard) remove(h keyHash, p indexPosition) {
	at := p.ref()
	r := s.pages.at(at)
	s.noteRemoval(r)
	s.noExpiry -= r.noExpiry()
	s.kinds.remove(r.kind())
	s.freeState(r)
	s.pages.release(at)
	s.index.remove(s.index.firstBucket(h.position), p)
	s.records--
	s.index.resizeIfNeeded(s.records)
	s.index.moveBucket(s.rehash)
	s.publishLayout()
}

func (s *shard) rehash(r ref) keyHash { return s.hash(s.pages.at(r).key()) }

// throttle makes one step of GCRA on one key.
func (s *shard) throttle(h keyHash, key []byte, now int64, rate gcra.Limit, quantity int64,
	mode quota.Mode) (gcra.Outcome, error) {
	if rate.Blocks(quantity, mode) {
		return gcra.Outcome{Limited: true, Retry: quota.Never}, nil
	}
	now = s.advance(now)
	r, p := s.find(h, key)
	var tat int64
	if r != nil && r.expires() > now {
		if r.kind() != limit.Throttle {
			return gcra.Outcome{}, store.ErrWrongKind
		}
		tat = r.expires()
		r.touch(now)
	} else if r != nil && !s.isExpired(r.expires(), now) {
		return gcra.Outcome{}, store.ErrWrongKind // a calendar quota
	}
	o, next, err := rate.Outcome(now, tat, quantity, mode)
	if err != nil || next == tat {
		if r != nil && tat == 0 {
			s.removeExpired(h, key, p)
		}
		return o, err
	}
	if tat != 0 && next > now { // there is a live record: by far the most frequent case
		r.setExpires(next)
		if s.listeners.any() { // saves a function call
			s.changed(r, p.ref(), key, store.Changed)
		}
		return o, nil
	}
	return o, s.storeTAT(h, key, r, p, now, next)
}

// storeTAT stores a TAT in the key's record, or in a new one. If the TAT is not after now, as after
// a refund, it removes the record, which must exist.
func (s *shard) storeTAT(h keyHash, key []byte, r record, p indexPosition, now, tat int64) error {
	if tat <= now {
		s.notify(key, store.Deleted)
		s.remove(h, p)
		return nil
	}
	var at ref
	if r != nil && s.reclaim(h, r, p) {
		at = p.ref()
	} else {
		var err error
		if r, at, err = s.add(h, key, limit.Throttle); err != nil {
			return err
		}
	}
	r.setExpires(tat)
	if s.listeners.any() {
		s.changed(r, at, key, store.Created)
	}
	return nil
}

// reclaim handles an expired record of a key to which CL.THROTTLE writes. It notifies the
// listeners. A Throttle record can be reused, and the result is true. Any other record is removed;
// but if memory is short, such a record is left to reuseExpired.
func (s *shard) reclaim(h keyHash, r record, p indexPosition) (reuse bool) {
	if r.kind() != limit.Throttle && s.lowOnMemory() {
		return false
	}
	s.notify(r.key(), store.Expired)
	s.expiredCount++
	if r.touch(s.lastInstant); r.kind() == limit.Throttle {
		return true
	}
	s.remove(h, p)
	return false
}

// delete removes a key and reports whether it existed. An expired record is removed too, but did
// not exist.
func (s *shard) delete(h keyHash, key []byte, now int64) bool {
	now = s.advance(now)
	s.dropHolds(key)
	r, p := s.find(h, key)
	if r == nil {
		return false
	}
	if s.isExpired(r.expires(), now) {
		s.expire(h, key, p)
		return false
	}
	s.notify(key, store.Deleted)
	s.remove(h, p)
	return true
}

func (s *shard) notify(key []byte, event store.Event) {
	s.listeners.notify(int(s.database), key, event, s.caller)
}

// changed handles the change of a record, or its creation: it notes the record for the next pass,
// and notifies the listeners.
func (s *shard) changed(r record, at ref, key []byte, event store.Event) {
	if s.changes.tracked != nil {
		s.changes.mark(s, r, at)
	}
	if all := s.listeners.all.Load(); all != nil && len(*all) > 0 {
		s.notify(key, event)
	}
}

func (s *shard) bytes() int64 {
	return s.index.bytes() + s.pages.bytes + s.logs.bytes + s.logs.overhead() + s.leases.bytes + s.leases.overhead() +
		s.changes.bytes() + s.holds.bytes()
}
