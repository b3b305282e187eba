package memory

import (
	"math"
	"slices"
	"sync"

	"cellserver/internal/store"
)

// DefaultMaxHolds is the largest number of open holds of a store by default.
const DefaultMaxHolds = 1_000_000

// holdQueue knows which shards have the holds that end first. If there are more than max holds, these holds lapse
// before their time, so that dead clients never keep living ones from making holds. They lapse after the step that made
// one too many has unlocked its shards, because the key with the first hold may be in any shard. The shard knows which
// of its keys it is (heldKeys).
//
// The queue's lock may be taken while shards are locked. Nothing is locked while it is held.
type holdQueue struct {
	mu        sync.Mutex
	max       int
	scratch   bool // there is no queue: see Scratch
	open      int
	least     int64 // no hold ends before it
	databases map[*database]*heldShards
	counts    store.HoldCounts
	ending    sync.Mutex // held while endHolds makes a hold lapse; taken before the locks of shards
}

// heldShards are the shards of a database with open holds.
type heldShards struct {
	open   int           // holds
	bounds [shards]int64 // no hold of the shard ends before it; math.MaxInt64 if there is none
}

func newHeldShards() *heldShards {
	h := new(heldShards)
	for i := range h.bounds {
		h.bounds[i] = math.MaxInt64
	}
	return h
}

// update follows a step that has changed the holds of a shard, which is locked. There are more of them now by a number,
// which may be negative: then it is added to count, unless count is nil.
func (q *holdQueue) update(s *shard, number uint32, more int, count *int64) {
	if q.scratch {
		return
	}
	_, bound := s.holds.first()
	q.mu.Lock()
	defer q.mu.Unlock()
	if count != nil {
		*count -= int64(more)
	}
	all := q.databases[s.owner]
	if all == nil {
		if all = newHeldShards(); q.databases == nil {
			q.databases = map[*database]*heldShards{}
		}
		q.databases[s.owner] = all
	}
	q.open += more
	all.open += more
	all.bounds[number] = bound
	q.least = min(q.least, bound)
}

// flush forgets all keys of a database at once. The shards of the database must be locked and without holds.
func (q *holdQueue) flush(db *database) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if all := q.databases[db]; all != nil {
		q.open -= all.open
		delete(q.databases, db)
	}
}

// next returns the shard whose holds end first, if there are too many holds, or if one of its holds may have lapsed by
// now.
func (q *holdQueue) next(now int64) *shard {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.open <= q.max && q.least > now {
		return nil
	}
	var first *shard
	q.least = math.MaxInt64
	for db, all := range q.databases {
		for i, bound := range all.bounds {
			if bound < q.least {
				first, q.least = &db.shards[i], bound
			}
		}
	}
	if q.open <= q.max && q.least > now {
		return nil
	}
	return first
}

// holdsPerCall and holdsPerSweep bound the keys that a call and the sweep look at to end holds.
const holdsPerCall, holdsPerSweep = 1000, 100_000

// tooMany reports whether there are too many holds.
func (q *holdQueue) tooMany() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.open > q.max
}

// endHolds ends the holds that have lapsed by now and, while there are too many holds, the ones that end first. It
// looks at a bounded number of keys; the sweep does the rest. The caller must not have locked a shard.
func (m *Store) endHolds(now int64, most int) {
	for range most {
		m.holds.ending.Lock()
		s := m.holds.next(now)
		if s != nil {
			m.endFirst(now, s)
		}
		m.holds.ending.Unlock()
		if s == nil {
			return
		}
	}
}

// endFirst ends holds of the key of a shard whose holds may end first, or raises the bound of this key.
func (m *Store) endFirst(now int64, s *shard) {
	s.lock()
	defer s.unlock()
	r, bound := s.holds.first()
	if r == nil {
		return // the last hold was settled meanwhile
	}
	key := slices.Clone(r.key())
	k := s.held(s.hash(key), key, s.advance(now))
	if k.record == nil || k.bound > bound {
		return
	}
	if first, _ := k.Ends(); first > bound {
		k.bound = first
		s.keepHolds(&k, 0, nil)
	} else if m.holds.tooMany() {
		s.lapseEarly(&k)
	}
}

// Holds implements store.HoldCounter.
func (m *Store) Holds() store.HoldCounts {
	q := &m.holds
	q.mu.Lock()
	defer q.mu.Unlock()
	counts := q.counts
	counts.Open = q.open
	return counts
}
