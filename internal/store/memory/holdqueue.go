package memory

import (
	"container/heap"
	"sync"
	"sync/atomic"

	"cellserver/internal/store"
)

// DefaultMaxHolds is the largest number of open holds of a store by default.
const DefaultMaxHolds = 1_000_000

// holdQueue knows when the open holds of all databases end. Beyond max, the hold that ends first lapses before its
// time, so that clients that have died never keep living ones from making holds. That hold may be in a shard that is
// not locked, so its ticket says that it has lapsed, and its key finds out when it is next used, or from the sweep.
//
// The lock is taken within the locks of shards. Nothing is locked within it.
type holdQueue struct {
	mu      sync.Mutex
	max     int
	tickets tickets
	ended   []*ticket // that have lapsed early, for the sweep
	counts  store.HoldCounts
}

// ticket is the place of an open hold in the queue.
type ticket struct {
	ends  int64
	place int         // index in the queue; -1 if it has left
	early atomic.Bool // it has lapsed before its time
	db    *database
	key   string // protected by the lock of the queue: a key may be renamed
}

// tickets is a heap of tickets, by their end.
type tickets []*ticket

func (t tickets) Len() int           { return len(t) }
func (t tickets) Less(i, j int) bool { return t[i].ends < t[j].ends }

func (t tickets) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].place, t[j].place = i, j
}

func (t *tickets) Push(x any) {
	one := x.(*ticket)
	one.place = len(*t)
	*t = append(*t, one)
}

func (t *tickets) Pop() any {
	last := (*t)[len(*t)-1]
	(*t)[len(*t)-1] = nil
	*t = (*t)[:len(*t)-1]
	last.place = -1
	return last
}

// add adds a hold.
func (q *holdQueue) add(t *ticket) {
	q.mu.Lock()
	defer q.mu.Unlock()
	heap.Push(&q.tickets, t)
	for len(q.tickets) > q.max {
		first := heap.Pop(&q.tickets).(*ticket)
		first.early.Store(true)
		q.ended = append(q.ended, first)
		q.counts.Early++
	}
}

// leave removes a hold, and counts it.
func (q *holdQueue) leave(t *ticket, count *int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if count != nil {
		*count++
	}
	if t.place >= 0 {
		heap.Remove(&q.tickets, t.place)
	}
}

// move changes the key of a hold.
func (q *holdQueue) move(t *ticket, db *database, key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t.db, t.key = db, key
}

// flush removes all holds of a database.
func (q *holdQueue) flush(db *database) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.tickets) == 0 {
		return
	}
	kept := q.tickets[:0]
	for _, t := range q.tickets {
		if t.db == db {
			t.place = -1
			continue
		}
		t.place = len(kept)
		kept = append(kept, t)
	}
	clear(q.tickets[len(kept):])
	q.tickets = kept
	heap.Init(&q.tickets)
}

// next returns the key of a hold that has lapsed by now, for the sweep.
func (q *holdQueue) next(now int64) (db *database, key string, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := len(q.ended); n > 0 {
		t := q.ended[n-1]
		q.ended = q.ended[:n-1]
		return t.db, t.key, true
	}
	if len(q.tickets) > 0 && q.tickets[0].ends <= now {
		t := heap.Pop(&q.tickets).(*ticket)
		return t.db, t.key, true
	}
	return nil, "", false
}

// Holds implements store.HoldCounter.
func (m *Store) Holds() store.HoldCounts {
	q := &m.holds
	q.mu.Lock()
	defer q.mu.Unlock()
	counts := q.counts
	counts.Open = len(q.tickets)
	return counts
}

// settled counts a hold that was settled.
func (q *holdQueue) settled() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.counts.Settled++
}
