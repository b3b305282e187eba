package memory

import (
	"runtime/debug"
	"time"

	"cellserver/internal/store"
)

// An expired record is absent to every reader, and goes when one asks for it; else it takes room
// until the sweep comes by. The sweep goes round the whole table at an even pace, a slice of every
// shard each SweepInterval, once in sweepRound: so a record is gone about one round after it
// expired at the latest (a table that grows meanwhile makes the round a little longer), whether or
// not anybody writes. The memory it takes therefore follows the keys that are live or expired of
// late, at any insert rate. (Redis samples keys at random instead, expire.c: its table may hold up
// to a quarter of expired keys for any time. A slice costs about 3 ns a record, so ten million keys
// take 0.6 % of a core.)
const (
	// SweepInterval is the time between two slices.
	SweepInterval  = 100 * time.Millisecond
	sweepRound     = 5 * time.Second
	slicesPerRound = int(sweepRound / SweepInterval)
)

func (m *Store) sweepEvery(interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-m.stop:
			return
		case <-ticker.C:
			if !m.sweepOff.Load() {
				m.Sweep()
			}
		}
	}
}

// SetSweeping starts the store's own sweeping, or stops it. For tests.
func (m *Store) SetSweeping(on bool) { m.sweepOff.Store(!on) }

// Sweep looks through the next slice of every shard, 1/50 of it, and removes what has expired. It
// returns how many records went. The store calls it by itself unless Options say otherwise.
func (m *Store) Sweep() (removed int) {
	m.sweepMu.Lock()
	defer m.sweepMu.Unlock()
	now := m.clock.Now()
	for n := range m.databases {
		if db := m.database(n); db != nil {
			for i := range db.shards {
				removed += db.shards[i].sweepSlice(now)
			}
		}
	}
	m.returnMemory()
	return removed
}

// returnMemory returns to the system what the keys that have gone held. When that comes to an end, and
// was much, Go's heap follows: the lists of pages and blocks were there.
func (m *Store) returnMemory() {
	const much = 16 << 20 / pageBytes
	m.flushed.release(&m.pool)
	if blocks := m.pool.trim(); blocks > 0 {
		m.returnedBlocks += blocks
	} else if m.returnedBlocks > much {
		m.returnedBlocks = 0
		debug.FreeOSMemory()
	}
}

// sweepSlice sweeps a shard's next pages. The lock is taken for one page at a time: nobody waits
// longer than that takes.
func (s *shard) sweepSlice(now int64) (removed int) {
	for left := s.slice(); left > 0; left-- {
		removed += s.sweepPage(now)
	}
	return removed
}

// slice is the number of pages of a slice. One more than a fiftieth, so that pages added on the way
// do not make a round longer. Of an empty shard it is none, and the index goes.
func (s *shard) slice() int {
	s.lock()
	defer s.unlock()
	if s.records == 0 {
		s.dropIndex()
		return 0
	}
	return len(s.pages.list)/slicesPerRound + 1
}

// dropIndex gives the index of an empty shard back.
func (s *shard) dropIndex() {
	if s.index.current.count == 0 {
		return
	}
	for _, blocks := range s.index.detachBlocks() {
		s.index.pool.put(blocks...)
	}
}

func (s *shard) sweepPage(now int64) (removed int) {
	s.lock()
	defer s.unlock()
	s.caller = 0
	now = s.advance(now)
	s.index.moveBucket(s.rehash) // an index that nobody writes to comes to the end of its move too
	s.publishLayout()
	if int(s.nextSweep) >= len(s.pages.list) {
		s.nextSweep = 0
	}
	if len(s.pages.list) == 0 {
		return 0
	}
	s.pages.each(int(s.nextSweep), func(at ref, r record) {
		if r.expires() <= now {
			s.expireRecord(at, r)
			removed++
		}
	})
	s.nextSweep++
	return removed
}

// expireRecord removes a record that has expired. Its place is found by its ref: no key need be compared.
func (s *shard) expireRecord(at ref, r record) {
	s.notify(r.key(), store.Expired)
	s.expiredCount++
	h := s.hash(r.key())
	for b := s.index.firstBucket(h.position); b != nil; b = s.index.nextBucket(b) {
		for slot := range bucketSlots {
			if b.ref(slot) == at && b.taken(slot) {
				s.remove(h, indexPosition{b, slot})
				return
			}
		}
	}
}
