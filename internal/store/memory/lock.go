package memory

import (
	"math"
	"math/bits"
)

// lock takes the shard's lock, and starts to measure how long it is held if lockTime is set.
func (s *shard) lock() {
	s.mu.Lock()
	if s.lockTime != nil {
		s.lockedAt = s.lockTime.Start()
	}
}

// unlock must be called by the goroutine that called lock, because the time is measured per thread.
func (s *shard) unlock() {
	if s.lockTime != nil {
		s.lockTime.Stop(s.lockedAt)
	}
	s.mu.Unlock()
}

// lockSet is a set of shards that a step on several keys locks, one bit per shard.
type lockSet [shards / 64]uint64

// lock locks the shards of the keys, each once, in ascending order. It returns the instant of the
// step, which is the same for all keys: the latest that any of the shards has seen.
func (v *viewState) lock(keys [][]byte) (db *database, set lockSet, now int64) {
	for _, key := range keys {
		set.add(v.hash(key).shard)
	}
	db, now = v.lockShards(set)
	return db, set, now
}

// lockShards locks shards of the selected database, which it creates if it does not exist. In a
// transaction they are locked already.
func (v *viewState) lockShards(set lockSet) (db *database, now int64) {
	if v.transaction != nil {
		db = v.ensure()
		v.transaction.requireLocked(db, set)
		return db, v.now
	}
	for {
		db = v.ensure()
		now = set.lock(db, v.now, v.caller, true)
		if v.existing() == db {
			v.beginStep(db, &set)
			return db, now
		}
		set.unlock(db, true) // databases were swapped meanwhile
	}
}

func (v *viewState) unlock(db *database, set lockSet) {
	if v.transaction == nil {
		v.endStep()
		set.unlock(db, true)
	}
}

// allShards contains every shard.
var allShards = func() (set lockSet) {
	for i := range set {
		set[i] = math.MaxUint64
	}
	return set
}()

func (set *lockSet) add(shard uint32) { set[shard/64] |= 1 << (shard % 64) }

func (set *lockSet) has(shard uint32) bool { return set[shard/64]>>(shard%64)&1 != 0 }

// lock locks the shards on behalf of a caller. It returns the instant of the step: not before now,
// nor before any instant that the shards have seen. If measure is set, the lock of the first shard is measured. One
// is enough, because a step holds all of its locks for the same time; of a step on several databases, only one set
// is measured.
func (set *lockSet) lock(db *database, now, caller int64, measure bool) int64 {
	for word, bitmap := range set {
		for ; bitmap != 0; bitmap &= bitmap - 1 {
			s := &db.shards[word*64+bits.TrailingZeros64(bitmap)]
			if measure {
				s.lock()
			} else {
				s.mu.Lock()
			}
			s.caller, now, measure = caller, max(now, s.lastInstant), false
		}
	}
	return now
}

func (set *lockSet) unlock(db *database, measure bool) {
	for word, bitmap := range set {
		for ; bitmap != 0; bitmap &= bitmap - 1 {
			s := &db.shards[word*64+bits.TrailingZeros64(bitmap)]
			if measure {
				s.unlock()
			} else {
				s.mu.Unlock()
			}
			measure = false
		}
	}
}
