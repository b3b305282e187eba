package memory

import (
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"

	"cellserver/internal/gcra"
	"cellserver/internal/lease"
	"cellserver/internal/meter"
	"cellserver/internal/quota"
	"cellserver/internal/store"
	"cellserver/internal/window"
)

// shard is a part of a database under one lock: an index of the keys' hashes, and pages of records.
// Its methods need the lock, which the store's methods take.
type shard struct {
	// What every step reads comes first, in two cache lines.
	mu          sync.Mutex // taken by lock and unlock
	lastInstant int64      // the latest instant that a call came with: time does not run back in a shard
	caller      int64      // who holds the lock, as his view is signed; in a line that every step writes to
	records     int        // expired ones that were not swept yet included
	index       index
	layout      atomic.Pointer[layout] // what may be looked at without the lock
	lockTime    *meter.MaxCPUTime      // how long the lock is held; nil if nobody measures
	pages       pages

	logs   slab[entryLog]
	leases slab[keyLeases]

	// Where a step has what it takes from a record, or is to put there (inline.go).
	scratchRing    logRing
	scratchEntries []window.Entry
	scratchLeases  lease.Few

	seed      maphash.Seed
	listeners *listeners
	database  int32
	nextSweep uint32 // page that the sweep looks at next

	noGrowth     bool  // the step must not take memory: see View.WithoutGrowth
	lockedAt     int64 // as holds counts
	expiredCount int64 // how many records have gone because their time was over
	copiedBytes  int64 // bytes of values that were copied
	noExpiry     int   // values that do not expire
	// A shard must fill whole cache lines, or its neighbour's lock lies on one of its own: a test
	// holds it to that.
}

// advance is the instant of a call that read the clock at now: never before an instant that this
// shard has seen. Two sessions read the clock by themselves, so the one that gets the lock second
// may have read it first.
func (s *shard) advance(now int64) int64 {
	s.lastInstant = max(s.lastInstant, now)
	return s.lastInstant
}

func (s *shard) hash(key []byte) keyHash { return splitHash(maphash.Bytes(s.seed, key)) }

// indexPosition is where a record hangs in the index.
type indexPosition struct {
	bucket *bucket
	slot   int
}

// find is the record of a key, expired or not, and its place; nil if there is none.
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

// findLive is find for who looks: a record that has expired goes, so that whoever listens hears of it as
// soon as anybody could know.
func (s *shard) findLive(h keyHash, key []byte, now int64) (record, indexPosition) {
	r, p := s.find(h, key)
	if r != nil && r.expires() <= now {
		s.removeExpired(h, key, p)
		return nil, indexPosition{}
	}
	return r, p
}

// removeExpired removes a record that has expired, unless memory is short: then it stays, so that whatever
// its key holds next has a place.
func (s *shard) removeExpired(h keyHash, key []byte, p indexPosition) {
	if !s.lowOnMemory() {
		s.expire(h, key, p)
	}
}

// lowOnMemory says whether a new record may find no place: the step must not take memory, or the shard
// has hardly a page left.
func (s *shard) lowOnMemory() bool { return s.noGrowth || !s.pages.canAdd(pagesPerStep) }

// expire removes a record that has expired.
func (s *shard) expire(h keyHash, key []byte, p indexPosition) {
	s.notify(key, store.Expired)
	s.expiredCount++
	s.remove(h, p)
}

// add makes the record of a key that has none; its expiry is for the caller to set.
func (s *shard) add(h keyHash, key []byte, kind store.Kind) (record, error) {
	return s.addSized(h, key, kind, 0)
}

// addSized is add for a kind that has so many bytes more.
func (s *shard) addSized(h keyHash, key []byte, kind store.Kind, more int) (record, error) {
	size := recordSize(len(key), kind) + more
	if s.lowOnMemory() {
		if r := s.reuseExpired(h, key, kind, size); r != nil {
			return r, nil
		}
		if s.noGrowth {
			return nil, store.ErrFull
		}
	}
	at, ok := s.pages.alloc(size)
	if !ok {
		return nil, store.ErrFull
	}
	r := s.pages.at(at)
	r.setKey(key)
	r.reset(kind, s.lastInstant)
	s.index.resizeIfNeeded(s.records)
	s.index.moveBucket(s.rehash)
	s.index.insert(h, at)
	s.records++
	s.publishLayout()
	return r, nil
}

// reuseExpired makes the record of a key that has expired, if there is one, that of a kind; where its slot
// is too small it goes, but while the step must not take memory.
func (s *shard) reuseExpired(h keyHash, key []byte, kind store.Kind, size int) record {
	r, p := s.find(h, key)
	switch {
	case r == nil:
		return nil
	case s.pages.slotSize(p.bucket.ref(p.slot)) >= size:
		s.notify(key, store.Expired)
		s.expiredCount++
		s.freeState(r)
		r.reset(kind, s.lastInstant)
		return r
	case !s.noGrowth:
		s.expire(h, key, p)
	}
	return nil
}

func (s *shard) remove(h keyHash, p indexPosition) {
	at := p.bucket.ref(p.slot)
	s.noExpiry -= s.pages.at(at).noExpiry()
	s.freeState(s.pages.at(at))
	s.pages.release(at)
	s.index.remove(s.index.firstBucket(h.position), p)
	s.records--
	s.index.resizeIfNeeded(s.records)
	s.index.moveBucket(s.rehash)
	s.publishLayout()
}

func (s *shard) rehash(r ref) keyHash { return s.hash(s.pages.at(r).key()) }

// throttle is one step of GCRA on one key.
func (s *shard) throttle(h keyHash, key []byte, now int64, limit gcra.Limit, quantity int64,
	mode quota.Mode) (gcra.Outcome, error) {
	if limit.Blocks(quantity, mode) {
		return gcra.Outcome{Limited: true, Retry: quota.Never}, nil
	}
	now = s.advance(now)
	r, p := s.find(h, key)
	var tat int64
	if r != nil && r.expires() > now {
		if r.kind() != store.Throttle {
			return gcra.Outcome{}, store.ErrWrongKind
		}
		tat = r.expires()
		r.touch(now)
	}
	o, next, err := limit.Outcome(now, tat, quantity, mode)
	if err != nil || next == tat {
		if r != nil && tat == 0 {
			s.removeExpired(h, key, p)
		}
		return o, err
	}
	if tat != 0 && next > now { // the key has a live record: nearly always
		r.setExpires(next)
		if s.listeners.any() { // else it is not worth a call of a function
			s.notify(key, store.Changed)
		}
		return o, nil
	}
	return o, s.storeTAT(h, key, r, p, now, next)
}

// storeTAT stores a TAT: in the key's record, in a new one, or in none when the TAT says nothing (a
// refund, so there is a record).
func (s *shard) storeTAT(h keyHash, key []byte, r record, p indexPosition, now, tat int64) error {
	if tat <= now {
		s.notify(key, store.Deleted)
		s.remove(h, p)
		return nil
	}
	if r != nil && r.expires() <= now {
		r = s.reclaim(h, r, p)
	}
	if r == nil {
		var err error
		if r, err = s.add(h, key, store.Throttle); err != nil {
			return err
		}
	}
	r.setExpires(tat)
	s.notify(key, store.Created)
	return nil
}

// reclaim counts that a record's time is over, and is the record if it can be a throttle key's
// again, else nil. While memory is short it leaves that to again.
func (s *shard) reclaim(h keyHash, r record, p indexPosition) record {
	if r.kind() != store.Throttle && s.lowOnMemory() {
		return nil
	}
	s.notify(r.key(), store.Expired)
	s.expiredCount++
	if r.touch(s.lastInstant); r.kind() == store.Throttle {
		return r
	}
	s.remove(h, p)
	return nil
}

// delete removes a key and says whether it was there. An expired record goes too, but was not
// there.
func (s *shard) delete(h keyHash, key []byte, now int64) bool {
	now = s.advance(now)
	r, p := s.find(h, key)
	if r == nil {
		return false
	}
	if r.expires() <= now {
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

func (s *shard) bytes() int64 {
	return s.index.bytes() + s.pages.bytes + s.logs.bytes + s.logs.overhead() + s.leases.bytes + s.leases.overhead()
}
