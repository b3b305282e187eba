package memory

import (
	"math/bits"
	"unsafe"
)

// Half of what a decision costs on a large table is waiting for memory: for the key's bucket, and
// then for its record. The lock of each step keeps the processor from starting the next one's loads
// meanwhile. So whoever has read several calls ahead tells us their keys, and we ask for all their
// buckets, then for all their records, before the first is wanted.
//
// To take each shard's lock for that would cost as much as the waiting. So we look without it, at
// what may be changing under our eyes: what is seen decides only which cache lines are asked for,
// and to ask for a wrong one does no harm.

// layout is where a shard's buckets and pages are, for those who look without its lock. It is made
// anew whenever either moves to other memory; there is none while the index moves from one size to
// another.
type layout struct {
	buckets buckets
	pages   []page // up to its capacity: pages that are added in place are seen too
}

// publishLayout publishes where things are now. To be called after whatever may have moved them.
func (s *shard) publishLayout() {
	shown := s.layout.Load()
	switch {
	case s.index.moving() || s.records == 0:
		if shown != nil {
			s.layout.Store(nil)
		}
	case shown == nil || shown.buckets.count != s.index.current.count || cap(shown.pages) != cap(s.pages.list):
		s.layout.Store(&layout{buckets: s.index.current, pages: s.pages.list[:cap(s.pages.list)]})
	}
}

// hashCache is what Prefetch worked out: the hashes of the keys that come next, so that each is hashed
// once.
type hashCache struct {
	keys  [16]hashedKey
	count int
	next  int // the one that is expected next
}

// hashedKey is a key that was hashed. It is known again by where it stands: as a number, so that
// nothing is kept alive.
type hashedKey struct {
	keyHash
	at     uintptr
	length int
}

func address(key []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(key))) }

// reset must come before the keys may change.
func (a *hashCache) reset() { a.count, a.next = 0, 0 }

// Prefetch brings the keys' records near.
func (v *view) Prefetch(keys [][]byte) {
	v.hashes.reset()
	db := v.existing()
	if db == nil {
		return
	}
	for first := 0; first < len(keys); first += len(v.hashes.keys) {
		piece := keys[first:min(first+len(v.hashes.keys), len(keys))]
		v.hashes.reset()
		for i, key := range piece {
			h := v.hash(key)
			v.hashes.keys[i] = hashedKey{h, address(key), len(key)}
			if n := db.shards[h.shard].layout.Load(); n != nil {
				prefetch(uintptr(unsafe.Pointer(n.buckets.at(n.buckets.bucketOf(h.position)))))
			}
		}
		for i := range piece {
			h := &v.hashes.keys[i].keyHash
			if n := db.shards[h.shard].layout.Load(); n != nil {
				n.prefetchRecords(h)
			}
		}
	}
	if len(keys) <= len(v.hashes.keys) {
		v.hashes.count = len(keys)
	}
}

const (
	lineBytes       = 64
	prefetchClasses = maxClass // units of a record that are asked for
)

// prefetchRecords asks for the records that a key may have: those of its tag in its first bucket.
// The bucket may be changing, or be a page by now that holds something else, so no number that is
// read from it is trusted; nor is a slice of a page, whose address and length may be of two
// different ones: the address is only a number here.
func (l *layout) prefetchRecords(h *keyHash) {
	if raceEnabled {
		return
	}
	b := l.buckets.at(l.buckets.bucketOf(h.position))
	for match := b.match(h.tag); match != 0; match &= match - 1 {
		at := uint32(b.ref(bits.TrailingZeros32(match))) - 1
		if n := at / unitsPerPage; int(n) < len(l.pages) {
			page := &l.pages[n]
			start := address(page.data) + uintptr(at%unitsPerPage*unitBytes)
			prefetch(start)
			for line := uintptr(lineBytes); line < uintptr(min(page.class, prefetchClasses))*unitBytes; line += lineBytes {
				prefetch(start + line)
			}
		}
	}
}
