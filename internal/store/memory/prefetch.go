package memory

import (
	"math"
	"math/bits"
	"unsafe"
)

// On a large table, half of the time of a decision is waiting for memory: for the key's bucket, and
// then for its record. The lock of each step keeps the processor from starting the loads of the
// next one meanwhile. So a session that has read several calls ahead passes their keys to Prefetch,
// which requests all their buckets, and then all their records, before the first is needed.
//
// Locking each shard for that would take as long as the waiting. Prefetch therefore reads without
// locks what other goroutines may be changing. What it reads decides only which cache lines are
// requested, and requesting a wrong one does no harm.

// layout holds the addresses of the buckets and pages of a shard, for readers without its lock. A
// new layout is published whenever buckets or pages move to other memory; while the index is being
// resized there is none.
type layout struct {
	buckets buckets
	pages   []page // up to the capacity, so that pages appended in place are visible
}

// publishLayout publishes the current layout. It must be called after everything that may have
// moved buckets or pages.
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

// hashCache holds the hashes of the next keys, which Prefetch has computed, so that each key is
// hashed only once. There is room for 16 calls with two keys each.
type hashCache struct {
	keys  [32]hashedKey
	count int
	next  int // index of the key that is expected next
}

// hashedKey is a key that was hashed. It is recognized by its address, which is stored as a number
// so that it keeps nothing alive.
type hashedKey struct {
	at       uintptr
	position uint32
	length   uint16 // of a longer key, the other fields are 0
	shard    uint8
	tag      byte
}

func hashed(h keyHash, key []byte) hashedKey {
	if len(key) > math.MaxUint16 {
		return hashedKey{}
	}
	return hashedKey{address(key), h.position, uint16(len(key)), uint8(h.shard), h.tag}
}

func (f *hashedKey) hash() keyHash { return keyHash{uint32(f.shard), f.position, f.tag} }

func address(key []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(key))) }

// reset must be called before the bytes of the keys may change.
func (a *hashCache) reset() { a.count, a.next = 0, 0 }

// Prefetch requests the cache lines of the keys' buckets and records.
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
			v.hashes.keys[i] = hashed(h, key)
			if n := db.shards[h.shard].layout.Load(); n != nil {
				prefetch(uintptr(unsafe.Pointer(n.buckets.at(n.buckets.bucketOf(h.position)))))
			}
		}
		for i := range piece {
			h := v.hashes.keys[i].hash()
			if n := db.shards[h.shard].layout.Load(); n != nil {
				n.prefetchRecords(&h)
			}
		}
	}
	if len(keys) <= len(v.hashes.keys) {
		v.hashes.count = len(keys)
	}
}

// prefetch requests the first cache line of a record. The reference may be out of date.
func (p *pages) prefetch(at ref) {
	if n := (uint32(at) - 1) / unitsPerPage; int(n) < len(p.list) {
		prefetch(address(p.list[n].data) + uintptr((uint32(at)-1)%unitsPerPage*unitBytes))
	}
}

const (
	lineBytes       = 64
	prefetchClasses = maxClass // units of a record that are prefetched
)

// prefetchRecords requests the records that a key may have: those with its tag in its first bucket.
// The bucket may be changing, or be reused as a page by now, so no number read from it is trusted.
// The slice of a page is not trusted either, because its address and its length may belong to two
// different slices: the address is used only as a number.
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
			end := uintptr(min(page.class, prefetchClasses)) * unitBytes
			for line := uintptr(lineBytes); line < end; line += lineBytes {
				prefetch(start + line)
			}
		}
	}
}
