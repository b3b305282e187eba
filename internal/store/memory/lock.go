package memory

import (
	"math"
	"math/bits"
)

// lock takes the shard's lock. Whoever wants to know is told how long it is held.
func (s *shard) lock() {
	s.mu.Lock()
	if s.lockTime != nil {
		s.lockedAt = s.lockTime.Start()
	}
}

// unlock must come from the goroutine that locked.
func (s *shard) unlock() {
	if s.lockTime != nil {
		s.lockTime.Stop(s.lockedAt)
	}
	s.mu.Unlock()
}

// lockSet names the shards that a step on several keys takes: one bit a shard.
type lockSet [shards / 64]uint64

// lock takes the locks of the keys' shards, each once, in ascending order. It returns the instant
// of the step: one for all of its keys, so the latest that any of the shards has seen.
func (v *view) lock(keys [][]byte) (db *database, set lockSet, now int64) {
	for _, key := range keys {
		set.add(v.hash(key).shard)
	}
	db, now = v.lockShards(set)
	return db, set, now
}

// lockShards locks some shards of the selected database, which is made if need be. In a transaction
// they are locked already.
func (v *view) lockShards(set lockSet) (db *database, now int64) {
	if v.transaction != nil {
		db = v.ensure()
		v.transaction.requireLocked(db, set)
		return db, v.now
	}
	for {
		db = v.ensure()
		now = set.lock(db, v.now, v.caller, true)
		if v.existing() == db {
			return db, now
		}
		set.unlock(db, true) // it has another number by now
	}
}

func (v *view) unlock(db *database, set lockSet) {
	if v.transaction == nil {
		set.unlock(db, true)
	}
}

// allShards names all.
var allShards = func() (set lockSet) {
	for i := range set {
		set[i] = math.MaxUint64
	}
	return set
}()

func (set *lockSet) add(shard uint32) { set[shard/64] |= 1 << (shard % 64) }

func (set *lockSet) has(shard uint32) bool { return set[shard/64]>>(shard%64)&1 != 0 }

// measuredShard is the shard that has the hold of all of them measured, none if another database's is:
// one step's locks are one hold.
func (set *lockSet) measuredShard(holds bool) uint32 {
	if !holds {
		return shards
	}
	for word, bitmap := range set {
		if bitmap != 0 {
			return uint32(word*64 + bits.TrailingZeros64(bitmap))
		}
	}
	return shards
}

// lock takes the locks for a caller, and returns the instant of the step: not before now, nor
// before what any of the shards has seen.
func (set *lockSet) lock(db *database, now, caller int64, holds bool) int64 {
	measured := set.measuredShard(holds)
	for word, bitmap := range set {
		for ; bitmap != 0; bitmap &= bitmap - 1 {
			n := uint32(word*64 + bits.TrailingZeros64(bitmap))
			s := &db.shards[n]
			if n == measured {
				s.lock()
			} else {
				s.mu.Lock()
			}
			s.caller, now = caller, max(now, s.lastInstant)
		}
	}
	return now
}

func (set *lockSet) unlock(db *database, holds bool) {
	measured := set.measuredShard(holds)
	for word, bitmap := range set {
		for ; bitmap != 0; bitmap &= bitmap - 1 {
			n := uint32(word*64 + bits.TrailingZeros64(bitmap))
			if n == measured {
				db.shards[n].unlock()
			} else {
				db.shards[n].mu.Unlock()
			}
		}
	}
}
