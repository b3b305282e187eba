package memory

import (
	"container/heap"
	"math"
	"sync"

	"cellserver/internal/store"
)

// DefaultMaxHolds is the largest number of open holds of a store by default.
const DefaultMaxHolds = 1_000_000

// holdQueue knows which keys have the holds that end first. If there are more than max holds, these holds lapse before
// their time, so that dead clients never keep living ones from making holds. They lapse after the step that made one
// too many has unlocked its shards, because the key with the first hold may be in any shard.
//
// The queue's lock may be taken while shards are locked. Nothing is locked while it is held.
type holdQueue struct {
	mu      sync.Mutex
	max     int
	scratch bool // there is no queue: see Scratch
	open    int
	// databases has the keys of each database, so that FLUSHALL need not look through a million.
	databases map[*database]*heldKeys
	counts    store.HoldCounts
	ending    sync.Mutex // held while endHolds makes a hold lapse; taken before the locks of shards
}

// heldKeys is a heap of the keys of a database that have open holds, by their bounds.
type heldKeys struct {
	keys []*keyHolds
	open int // holds
}

// holder is the place of a key with open holds in the queue. The lock of the queue guards place. The other fields
// change only while both the queue and the shard are locked, so either lock is enough to read them.
type holder struct {
	db    *database
	key   string
	bound int64 // no hold of the key ends before that
	place int32 // index in the heap; -1 if the key is not in it
}

func (q *heldKeys) Len() int           { return len(q.keys) }
func (q *heldKeys) Less(i, j int) bool { return q.keys[i].bound < q.keys[j].bound }

func (q *heldKeys) Swap(i, j int) {
	q.keys[i], q.keys[j] = q.keys[j], q.keys[i]
	q.keys[i].place, q.keys[j].place = int32(i), int32(j)
}

func (q *heldKeys) Push(x any) {
	k := x.(*keyHolds)
	k.place = int32(len(q.keys))
	q.keys = append(q.keys, k)
}

func (q *heldKeys) Pop() any {
	last := q.keys[len(q.keys)-1]
	q.keys[len(q.keys)-1] = nil
	q.keys = q.keys[:len(q.keys)-1]
	last.place = -1
	return last
}

// opened adds a hold to a key.
func (q *holdQueue) opened(k *keyHolds, ends int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if k.place < 0 {
		k.bound = ends
		q.push(k, 1)
		return
	}
	q.count(k.db, 1)
	if ends < k.bound {
		q.setBound(k, ends)
	}
}

// push adds a key that has a number of holds.
func (q *holdQueue) push(k *keyHolds, holds int) {
	if q.databases == nil {
		q.databases = map[*database]*heldKeys{}
	}
	if q.databases[k.db] == nil {
		q.databases[k.db] = new(heldKeys)
	}
	heap.Push(q.databases[k.db], k)
	q.count(k.db, holds)
}

func (q *holdQueue) count(db *database, holds int) {
	q.open += holds
	q.databases[db].open += holds
}

func (q *holdQueue) setBound(k *keyHolds, bound int64) {
	k.bound = bound
	heap.Fix(q.databases[k.db], int(k.place))
}

// closed removes a number of holds of a key, and the key from the queue if no hold is left. It adds 1 to count, unless
// count is nil.
func (q *holdQueue) closed(k *keyHolds, holds, left int, count *int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if count != nil {
		*count++
	}
	if q.scratch {
		return
	}
	if q.count(k.db, -holds); left == 0 {
		heap.Remove(q.databases[k.db], int(k.place))
	}
}

// passed says that no hold of a key ends before an instant.
func (q *holdQueue) passed(k *keyHolds, bound int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.setBound(k, bound)
}

// move changes the key of open holds.
func (q *holdQueue) move(k *keyHolds, db *database, key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if k.db == db || q.scratch {
		k.db, k.key = db, key
		return
	}
	q.count(k.db, -len(k.Open))
	heap.Remove(q.databases[k.db], int(k.place))
	k.db, k.key = db, key
	q.push(k, len(k.Open))
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

// next returns the key with the least bound, if there are too many holds, or if a hold of the key may have lapsed by
// now.
func (q *holdQueue) next(now int64) (k *keyHolds, db *database, key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	least := int64(math.MaxInt64)
	for _, all := range q.databases {
		if len(all.keys) > 0 && (k == nil || all.keys[0].bound < least) {
			k, least = all.keys[0], all.keys[0].bound
		}
	}
	if k == nil || least > now && q.open <= q.max {
		return nil, nil, ""
	}
	return k, k.db, k.key
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
		k, db, key := m.holds.next(now)
		if k != nil {
			m.endFirst(now, k, db, key)
		}
		m.holds.ending.Unlock()
		if k == nil {
			return
		}
	}
}

// endFirst ends holds of the key that is next, or raises its bound.
func (m *Store) endFirst(now int64, next *keyHolds, db *database, key string) {
	name := []byte(key)
	s := &db.shards[m.hash(name).shard]
	s.lock()
	defer s.unlock()
	if s.holds[key] != next {
		return // the key was renamed meanwhile, or has no hold any more
	}
	bound := next.bound
	k := s.held(name, s.advance(now))
	if k == nil {
		return
	}
	first := k.first()
	if ends := k.Open[first].Ends; ends > bound {
		m.holds.passed(k, ends)
	} else if m.holds.tooMany() {
		s.lapse(name, k, first)
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

// settled counts a hold that was settled.
func (q *holdQueue) settled() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.counts.Settled++
}
