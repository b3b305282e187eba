package memory

import (
	"runtime/debug"
	"time"

	"cellserver/internal/store"
)

// An expired record counts as absent, and is removed when its key is accessed; otherwise it takes
// memory until the sweep removes it. The sweep goes through the whole table at an even pace: a
// slice of every shard each SweepInterval, the whole in sweepRound. So whether or not there are
// writes, a record is removed at most about one round after it expired (a table that grows
// meanwhile makes the round a little longer), and the memory follows the number of keys that are
// live or expired recently, at any insert rate. A slice costs about 3 ns per record, so ten million
// keys take 0.6 % of a core. (Redis, in expire.c, samples keys at random instead; up to a quarter
// of its keys may be expired at any time.)
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
		case <-m.wakeSweep:
			m.flushed.release(&m.pool)
		case <-ticker.C:
			if !m.sweepOff.Load() {
				m.Sweep()
			}
		}
	}
}

// SetSweeping switches the periodic sweep on or off. It is for tests.
func (m *Store) SetSweeping(on bool) { m.sweepOff.Store(!on) }

// Sweep removes the expired records of the next slice of every shard, 1/50 of it, and returns how
// many it removed. The store calls it periodically unless Options say otherwise.
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
	m.tokens.sweep(now)
	m.endHolds(now, holdsPerSweep)
	m.returnMemory()
	return removed
}

// returnMemory returns to the system the memory of keys that are gone. When nothing is left to
// return, after a large amount, it also has Go's heap return memory, because the lists of pages and
// blocks were there.
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

// sweepSlice sweeps the next pages of a shard. It takes the lock for one page at a time, so that no
// client waits longer than that takes.
func (s *shard) sweepSlice(now int64) (removed int) {
	for left := s.slice(); left > 0; left-- {
		removed += s.sweepPage(now)
	}
	return removed
}

// slice returns the number of pages in a slice: one more than a fiftieth, so that pages added
// meanwhile do not make the round longer. Of an empty shard it frees the index and returns 0.
func (s *shard) slice() int {
	s.lock()
	defer s.unlock()
	if s.records == 0 {
		s.dropIndex()
		return 0
	}
	return len(s.pages.list)/slicesPerRound + 1
}

// dropIndex frees the index of an empty shard.
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
	s.index.moveBucket(s.rehash) // completes the resize of an index that is not written to any more
	s.publishLayout()
	if int(s.nextSweep) >= len(s.pages.list) {
		s.nextSweep = 0
	}
	if len(s.pages.list) == 0 {
		return 0
	}
	s.pages.each(int(s.nextSweep), func(at ref, r record) {
		if s.isExpired(r.expires(), now) {
			s.expireRecord(at, r)
			removed++
		}
	})
	s.sweptCount += int64(removed)
	s.nextSweep++
	return removed
}

// expireRecord removes an expired record. It finds the position in the index by the ref, so that no
// keys need be compared.
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
