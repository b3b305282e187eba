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
	mu      sync.Mutex // taken by lock and unlock
	last    int64      // the latest instant that a call came with: time does not run back in a shard
	by      int64      // who holds the lock, as his view is signed; in a line that every step writes to
	records int        // expired ones that were not swept yet included
	index   index
	layout  atomic.Pointer[layout] // what may be looked at without the lock
	holds   *meter.MaxCPUTime      // how long the lock is held; nil if nobody measures
	pages   pages

	logs   slab[entryLog]
	leases slab[leases]

	// Where a step has what it takes from a record, or is to put there (inline.go).
	ring    logRing
	entries []window.Entry
	few     lease.Few

	seed      maphash.Seed
	listeners *listeners
	database  int32
	swept     uint32 // page that the sweep looks at next

	tight    bool  // the step must not take memory: see View.WithoutGrowth
	lockedAt int64 // as holds counts
	expired  int64 // how many records have gone because their time was over
	moved    int64 // bytes of values that were copied
	lasting  int   // values that do not expire
	// A shard must fill whole cache lines, or its neighbour's lock lies on one of its own: a test
	// holds it to that.
}

// advance is the instant of a call that read the clock at now: never before an instant that this
// shard has seen. Two sessions read the clock by themselves, so the one that gets the lock second
// may have read it first.
func (s *shard) advance(now int64) int64 {
	s.last = max(s.last, now)
	return s.last
}

func (s *shard) hash(key []byte) hashed { return cut(maphash.Bytes(s.seed, key)) }

// place is where a record hangs in the index.
type place struct {
	bucket *bucket
	slot   int
}

// find is the record of a key, expired or not, and its place; nil if there is none.
func (s *shard) find(h hashed, key []byte) (record, place) {
	if s.records == 0 {
		return nil, place{}
	}
	for b := s.index.home(h.position); b != nil; b = s.index.following(b) {
		for match := b.match(h.tag); match != 0; match &= match - 1 {
			slot := bits.TrailingZeros32(match)
			if r := s.pages.at(b.ref(slot)); string(r.key()) == string(key) {
				return r, place{b, slot}
			}
		}
	}
	return nil, place{}
}

// see is find for who looks: a record that has expired goes, so that whoever listens hears of it as
// soon as anybody could know.
func (s *shard) see(h hashed, key []byte, now int64) (record, place) {
	r, p := s.find(h, key)
	if r != nil && r.expires() <= now {
		s.ended(h, key, p)
		return nil, place{}
	}
	return r, p
}

// ended removes a record that has expired, unless memory is short: then it stays, so that whatever
// its key holds next has a place.
func (s *shard) ended(h hashed, key []byte, p place) {
	if !s.isShort() {
		s.expireNow(h, key, p)
	}
}

// isShort says whether a new record may find no place: the step must not take memory, or the shard
// has hardly a page left.
func (s *shard) isShort() bool { return s.tight || !s.pages.haveRoom(fewPages) }

// expireNow removes a record that has expired.
func (s *shard) expireNow(h hashed, key []byte, p place) {
	s.tell(key, store.Expired)
	s.expired++
	s.remove(h, p)
}

// add makes the record of a key that has none; its expiry is for the caller to set.
func (s *shard) add(h hashed, key []byte, kind store.Kind) (record, error) {
	return s.addSized(h, key, kind, 0)
}

// addSized is add for a kind that has so many bytes more.
func (s *shard) addSized(h hashed, key []byte, kind store.Kind, more int) (record, error) {
	size := recordSize(len(key), kind) + more
	if s.isShort() {
		if r := s.again(h, key, kind, size); r != nil {
			return r, nil
		}
		if s.tight {
			return nil, store.ErrFull
		}
	}
	at, ok := s.pages.alloc(size)
	if !ok {
		return nil, store.ErrFull
	}
	r := s.pages.at(at)
	r.setKey(key)
	r.begin(kind, s.last)
	s.index.fit(s.records)
	s.index.move(s.rehash)
	s.index.insert(h, at)
	s.records++
	s.show()
	return r, nil
}

// again makes the record of a key that has expired, if there is one, that of a kind; where its slot
// is too small it goes, but while the step must not take memory.
func (s *shard) again(h hashed, key []byte, kind store.Kind, size int) record {
	r, p := s.find(h, key)
	switch {
	case r == nil:
		return nil
	case s.pages.room(p.bucket.ref(p.slot)) >= size:
		s.tell(key, store.Expired)
		s.expired++
		s.free(r)
		r.begin(kind, s.last)
		return r
	case !s.tight:
		s.expireNow(h, key, p)
	}
	return nil
}

func (s *shard) remove(h hashed, p place) {
	at := p.bucket.ref(p.slot)
	s.lasting -= s.pages.at(at).lasts()
	s.free(s.pages.at(at))
	s.pages.release(at)
	s.index.remove(s.index.home(h.position), p)
	s.records--
	s.index.fit(s.records)
	s.index.move(s.rehash)
	s.show()
}

func (s *shard) rehash(r ref) hashed { return s.hash(s.pages.at(r).key()) }

// throttle is one step of GCRA on one key.
func (s *shard) throttle(h hashed, key []byte, now int64, limit gcra.Limit, quantity int64,
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
		r.use(now)
	}
	o, next, err := limit.Outcome(now, tat, quantity, mode)
	if err != nil || next == tat {
		if r != nil && tat == 0 {
			s.ended(h, key, p)
		}
		return o, err
	}
	if tat != 0 && next > now { // the key has a live record: nearly always
		r.setExpires(next)
		if s.listeners.any() { // else it is not worth a call of a function
			s.tell(key, store.Changed)
		}
		return o, nil
	}
	return o, s.keep(h, key, r, p, now, next)
}

// keep stores a TAT: in the key's record, in a new one, or in none when the TAT says nothing (a
// refund, so there is a record).
func (s *shard) keep(h hashed, key []byte, r record, p place, now, tat int64) error {
	if tat <= now {
		s.tell(key, store.Deleted)
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
	s.tell(key, store.Created)
	return nil
}

// reclaim counts that a record's time is over, and is the record if it can be a throttle key's
// again, else nil. While memory is short it leaves that to again.
func (s *shard) reclaim(h hashed, r record, p place) record {
	if r.kind() != store.Throttle && s.isShort() {
		return nil
	}
	s.tell(r.key(), store.Expired)
	s.expired++
	if r.use(s.last); r.kind() == store.Throttle {
		return r
	}
	s.remove(h, p)
	return nil
}

// delete removes a key and says whether it was there. An expired record goes too, but was not
// there.
func (s *shard) delete(h hashed, key []byte, now int64) bool {
	now = s.advance(now)
	r, p := s.find(h, key)
	if r == nil {
		return false
	}
	if r.expires() <= now {
		s.expireNow(h, key, p)
		return false
	}
	s.tell(key, store.Deleted)
	s.remove(h, p)
	return true
}

func (s *shard) tell(key []byte, why store.Event) { s.listeners.tell(int(s.database), key, why, s.by) }

func (s *shard) bytes() int64 {
	return s.index.bytes() + s.pages.bytes + s.logs.bytes + s.logs.room() + s.leases.bytes + s.leases.room()
}
