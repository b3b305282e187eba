package memory

import (
	"iter"
	"math"
	"math/bits"

	"cellserver/internal/hold"
	"cellserver/internal/limit"
)

// heldKeys are the keys of a shard that have open holds. As with other keys, there is no pointer per key: a key and
// its book (package hold) are a record in pages of their own, which an index of their own finds.
//
// Most keys are held by few calls at a time, often by one. So when the last hold of a shard has ended, the shard keeps
// its index and a slot, which are two blocks of 4 KiB, rather than make them for each hold. FLUSHDB frees them.
//
// The record is of kind Bytes, and its value is the book. Its expiry is an instant before which none of the holds ends,
// and the bytes that say when other records were used have its place in order.
type heldKeys struct {
	index index
	pages pages
	order []ref // a heap of all keys, by their expiry
	spare ref   // the slot of the last key of the shard, after it was removed; otherwise 0

	// Memory for a step: the marks of a book with few, and the first form of a book.
	marks [4]hold.Mark
	form  [256]byte
}

// heldKey is a key that may have open holds, in a step. Its book is in its record. The record is where it was found
// until the holds of the shard change.
type heldKey struct {
	hold.Book
	hash     keyHash
	key      []byte
	record   record // nil if the key has no open holds
	position indexPosition
	bound    int64 // no hold ends before it
}

const atPlace = atKind + 1

// place returns the index in heldKeys.order.
func (r record) place() int {
	return int(r[atPlace]) | int(r[atPlace+1])<<8 | int(r[atPlace+2])<<16
}

func (r record) setPlace(n int) {
	r[atPlace], r[atPlace+1], r[atPlace+2] = byte(n), byte(n>>8), byte(n>>16)
}

// maxHeldKeys is the number of places, and so the largest number of keys with holds in a shard.
const maxHeldKeys = 1 << 24

// makeHolds returns the heldKeys of a shard, which it makes if there are none.
func (s *shard) makeHolds() *heldKeys {
	if s.holds == nil {
		s.holds = &heldKeys{index: index{pool: &s.store.pool}, pages: pages{pool: &s.store.pool, limit: maxPages}}
	}
	return s.holds
}

// len returns the number of keys.
func (h *heldKeys) len() int {
	if h == nil {
		return 0
	}
	return len(h.order)
}

// putAt puts a record at a place of the order.
func (h *heldKeys) putAt(place int, at ref) {
	h.order[place] = at
	h.pages.at(at).setPlace(place)
}

// fix moves the record at a place of the order to where it belongs, after its expiry has changed.
func (h *heldKeys) fix(place int) {
	at, n := h.order[place], len(h.order)
	expires := h.pages.at(at).expires()
	for parent := (place - 1) / 2; place > 0 && h.expires(parent) > expires; parent = (place - 1) / 2 {
		h.putAt(place, h.order[parent])
		place = parent
	}
	for child := 2*place + 1; child < n; child = 2*place + 1 {
		if child+1 < n && h.expires(child+1) < h.expires(child) {
			child++
		}
		if h.expires(child) >= expires {
			break
		}
		h.putAt(place, h.order[child])
		place = child
	}
	h.putAt(place, at)
}

func (h *heldKeys) expires(place int) int64 { return h.pages.at(h.order[place]).expires() }

// leave removes the record at a place from the order.
func (h *heldKeys) leave(place int) {
	last := len(h.order) - 1
	at := h.order[last]
	if h.order = h.order[:last]; cap(h.order) > 4*last+16 {
		h.order = append(make([]ref, 0, last), h.order...)
	}
	if place < last {
		h.putAt(place, at)
		h.fix(place)
	}
}

// first returns the record whose holds may end first, and an instant before which no hold of the shard ends.
func (h *heldKeys) first() (r record, bound int64) {
	if h.len() == 0 {
		return nil, math.MaxInt64
	}
	r = h.pages.at(h.order[0])
	return r, r.expires()
}

// find finds the open holds of a key.
func (h *heldKeys) find(hash keyHash, key []byte) (k heldKey) {
	k.hash, k.key = hash, key
	if h.len() == 0 {
		return k
	}
	for b := h.index.firstBucket(hash.position); b != nil; b = h.index.nextBucket(b) {
		for match := b.match(hash.tag); match != 0; match &= match - 1 {
			slot := bits.TrailingZeros32(match)
			if r := h.pages.at(b.ref(slot)); string(r.key()) == string(key) {
				k.record, k.position, k.bound = r, indexPosition{b, slot}, r.expires()
				k.Book = h.book(k.position.ref())
				return k
			}
		}
	}
	return k
}

// book returns the book of a record. It has the capacity of the slot.
func (h *heldKeys) book(at ref) hold.Book {
	r := h.pages.at(at)
	begin := r.atValue() + valueBytes[limit.Bytes]
	return hold.Of(r[begin:begin+len(r.bytes()):h.pages.slotSize(at)], h.marks[:])
}

// all visits the keys, with their books.
func (h *heldKeys) all() iter.Seq2[[]byte, hold.Book] {
	return func(yield func([]byte, hold.Book) bool) {
		if h == nil {
			return
		}
		for _, at := range h.order {
			if !yield(h.pages.at(at).key(), h.book(at)) {
				return
			}
		}
	}
}

// put writes the book of a key, which may be in its record already. It returns false if there is no room: beyond 2^24
// keys or 32 GiB. rehash is as in index.moveBucket.
func (h *heldKeys) put(k *heldKey, rehash func(ref) keyHash) bool {
	size := recordSize(len(k.key), limit.Bytes) + len(k.Bytes())
	if k.record != nil && h.fits(k.position.ref(), size) {
		h.write(k.position.ref(), k)
		h.fix(k.record.place())
		return true
	}
	at, ok := h.alloc(size)
	if !ok {
		return false
	}
	added := h.pages.at(at)
	added.setKind(limit.Bytes)
	added.setKey(k.key)
	h.write(at, k) // before the slot is freed in which the book may be
	if k.record != nil {
		h.replace(k.position, at)
		return true
	}
	if len(h.order) == maxHeldKeys {
		h.pages.release(at)
		return false
	}
	h.index.resizeIfNeeded(len(h.order))
	h.index.moveBucket(rehash)
	h.index.insert(k.hash, at)
	h.order = append(h.order, at)
	h.fix(len(h.order) - 1)
	return true
}

// alloc returns a slot for a record: the spare one if it fits.
func (h *heldKeys) alloc(size int) (at ref, ok bool) {
	if at, h.spare = h.spare, 0; at != 0 {
		if h.fits(at, size) {
			return at, true
		}
		h.pages.release(at)
	}
	return h.pages.alloc(roomy(size))
}

// fits reports whether a slot is right for a record: large enough, and not much larger.
func (h *heldKeys) fits(at ref, size int) bool {
	slot := h.pages.slotSize(at)
	return size <= slot && slot <= size+size/4+unitBytes
}

func (h *heldKeys) write(at ref, k *heldKey) {
	r := h.pages.at(at)
	r.setExpires(k.bound)
	r.setBytes(k.Bytes())
}

// replace puts a record in the place of the one at a position.
func (h *heldKeys) replace(p indexPosition, at ref) {
	old := p.ref()
	place := h.pages.at(old).place()
	h.putAt(place, at)
	p.bucket.set(p.slot, p.bucket[p.slot], at)
	h.pages.release(old)
	h.fix(place)
}

// roomy returns the size of a slot for a record. A long record has room to grow, so that its book is not copied each
// time.
func roomy(size int) int {
	if size > maxClass*unitBytes {
		size += size / 8
	}
	return size
}

// remove removes a key that has a record.
func (h *heldKeys) remove(k *heldKey, rehash func(ref) keyHash) {
	at := k.position.ref()
	h.leave(k.record.place())
	h.index.remove(h.index.firstBucket(k.hash.position), k.position)
	if h.len() == 0 && h.pages.slotSize(at) <= maxClass*unitBytes {
		h.spare = at
	} else {
		h.pages.release(at)
	}
	h.index.resizeIfNeeded(len(h.order))
	h.index.moveBucket(rehash)
}

func (h *heldKeys) bytes() int64 {
	if h == nil {
		return 0
	}
	return h.index.bytes() + h.pages.bytes + int64(cap(h.order))*4
}
