package store

import "math/bits"

// Half of what a decision costs on a large table is waiting for memory: for the key's bucket, and then for its record. The
// lock of each step keeps the processor from starting the next one's loads meanwhile. So whoever has read several calls ahead
// tells us their keys, and we ask for all their buckets, then for all their records, before the first is wanted.

// Foresee brings the keys' records near.
func (v *view) Foresee(keys [][]byte) {
	db := v.inUse()
	if db == nil {
		return
	}
	for first := 0; first < len(keys); first += len(v.foreseen) {
		piece := keys[first:min(first+len(v.foreseen), len(keys))]
		for i, key := range piece {
			v.foreseen[i] = v.hash(key)
			db.shards[v.foreseen[i].shard].foreseeBucket(v.foreseen[i])
		}
		for i := range piece {
			db.shards[v.foreseen[i].shard].foreseeRecord(v.foreseen[i])
		}
	}
}

// foreseeBucket asks for the bucket that a key belongs to. Nobody waits for a lock here: it is only about time.
func (s *shard) foreseeBucket(h hashed) {
	if !s.mu.TryLock() {
		return
	}
	if s.records > 0 {
		prefetch(&s.index.home(h.position)[0])
	}
	s.mu.Unlock() // not deferred, which would cost as much as the rest; nothing here can panic
}

// foreseeRecord asks for the records that a key may have: those of its tag in the first bucket.
func (s *shard) foreseeRecord(h hashed) {
	if !s.mu.TryLock() {
		return
	}
	if s.records > 0 {
		b := s.index.home(h.position)
		for match := b.match(h.tag); match != 0; match &= match - 1 {
			prefetch(&s.pages.at(b.ref(bits.TrailingZeros32(match)))[0])
		}
	}
	s.mu.Unlock()
}
