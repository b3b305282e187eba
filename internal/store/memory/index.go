package memory

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// index finds a record by its key's hash. It is an array of buckets of one cache line each, in the
// order of the hash: of n buckets, bucket i holds the keys whose position (32 bits of the hash) is
// in [i*2^32/n, (i+1)*2^32/n).
//
// This order simplifies three things. The array may have any size, so it can grow by half instead
// of doubling. It grows bucket by bucket: the buckets of the old array below movedBuckets have been
// moved to the new one, and no call moves more than one. And SCAN needs no state, because its
// cursor is a position, which has the same meaning for every size.
//
// A bucket that is full continues in overflow buckets. At the load kept here (at most 9 of 12 slots
// on average) at most one bucket in six does.
type index struct {
	current      buckets
	old          buckets // the remainder of the previous array
	movedBuckets int     // the first buckets of old, which have been moved to current
	pool         *pool
	overflow     buckets // overflow buckets, numbered from 1
	overflowFree uint32  // head of the list of free overflow buckets
	expected     uint32  // the number of blocks that current will have at the end of a load; then 0
	overflowUsed int
}

// bucket is one cache line: 12 tags (8 bits of the hash; 0 marks a free slot), the number of the
// next overflow bucket, and 12 refs. Tags are compared eight at a time, so a search reads hardly
// any record but the right one.
type bucket [bucketBytes]byte

const (
	bucketBytes     = 64
	bucketSlots     = 12
	atNext          = 12
	atRefs          = 16
	bucketsPerBlock = pageBytes / bucketBytes
	loadPerBucket   = 9  // the average number of records per bucket at which the index grows
	maxLeap         = 16 // the largest factor by which the index grows at once, see expect
)

// keyHash is the hash of a key, split by use.
type keyHash struct {
	shard    uint32
	position uint32
	tag      byte // never 0
}

func splitHash(h uint64) keyHash {
	return keyHash{shard: uint32(h >> 56), position: uint32(h >> 16), tag: max(byte(h), 1)}
}

func (b *bucket) ref(slot int) ref    { return ref(binary.LittleEndian.Uint32(b[atRefs+4*slot:])) }
func (b *bucket) next() uint32        { return binary.LittleEndian.Uint32(b[atNext:]) }
func (b *bucket) setNext(n uint32)    { binary.LittleEndian.PutUint32(b[atNext:], n) }
func (b *bucket) clearSlot(slot int)  { b.set(slot, 0, 0) }
func (b *bucket) taken(slot int) bool { return b[slot] != 0 }

func (b *bucket) set(slot int, tag byte, r ref) {
	b[slot] = tag
	binary.LittleEndian.PutUint32(b[atRefs+4*slot:], uint32(r))
}

// match returns the slots with this tag as a bit set. All tags are compared at once.
func (b *bucket) match(tag byte) (slots uint32) {
	pattern := uint64(tag) * 0x0101010101010101
	first := binary.LittleEndian.Uint64(b[:8]) ^ pattern
	last := uint64(binary.LittleEndian.Uint32(b[8:12])^uint32(pattern)) | 0xffffffff00000000
	return zeroBytes(first) | zeroBytes(last)<<8
}

// zeroBytes sets bit i for each byte i of x that is zero, exactly. First it finds the high bit of
// each such byte (Hacker's Delight, 6-1); then a multiplication moves the eight bits next to one
// another.
func zeroBytes(x uint64) uint32 {
	const low7 = 0x7f7f7f7f7f7f7f7f
	high := ^((x&low7 + low7) | x | low7)
	return uint32(high >> 7 * 0x0102040810204080 >> 56)
}

// freeSlot returns the first free slot, or -1 if the bucket is full.
func (b *bucket) freeSlot() int {
	if free := b.match(0); free != 0 {
		return bits.TrailingZeros32(free)
	}
	return -1
}

// buckets is an array of buckets, made of blocks, so that it can grow and be freed one block at a
// time.
type buckets struct {
	count  int
	blocks []*block
}

func (a *buckets) at(n int) *bucket {
	return (*bucket)(a.blocks[n/bucketsPerBlock][n%bucketsPerBlock*bucketBytes:])
}

// bucketOf returns the number of the bucket that a position belongs to.
func (a *buckets) bucketOf(position uint32) int {
	return int(uint64(position) * uint64(a.count) >> 32)
}

// start returns the first position of bucket n; for n = count it is 2^32.
func (a *buckets) start(n int) uint64 {
	return (uint64(n)<<32 + uint64(a.count) - 1) / uint64(a.count)
}

// extend adds blocks until there are enough for bucket n.
func (a *buckets) extend(from *pool, n int) {
	for n/bucketsPerBlock >= len(a.blocks) {
		b := from.get()
		clear(b[:])
		a.blocks = append(a.blocks, b)
	}
}

// firstBucket returns the first bucket of the chain that a position belongs to at present.
func (x *index) firstBucket(position uint32) *bucket {
	if x.old.count > 0 {
		if n := x.old.bucketOf(position); n >= x.movedBuckets {
			return x.old.at(n)
		}
	}
	return x.current.at(x.current.bucketOf(position))
}

// nextBucket returns the overflow bucket that follows b, or nil if there is none.
func (x *index) nextBucket(b *bucket) *bucket {
	if n := b.next(); n != 0 {
		return x.overflow.at(int(n) - 1)
	}
	return nil
}

// insert adds a record, whose key must not be in the index yet.
func (x *index) insert(h keyHash, r ref) {
	b := x.firstBucket(h.position)
	for {
		if slot := b.freeSlot(); slot >= 0 {
			b.set(slot, h.tag, r)
			return
		}
		next := x.nextBucket(b)
		if next == nil {
			next = x.addOverflow(b)
		}
		b = next
	}
}

// remove removes a record from the chain that starts at home, and puts the last record of the chain
// in its place. So all buckets of a chain but the last are full, and there are no more of them than
// necessary, however keys come and go.
func (x *index) remove(home *bucket, p indexPosition) {
	tail, before := home, (*bucket)(nil)
	for next := x.nextBucket(tail); next != nil; next = x.nextBucket(tail) {
		tail, before = next, tail
	}
	last := tail.freeSlot() - 1
	if last < 0 {
		last = bucketSlots - 1 // the bucket is full
	}
	p.bucket.set(p.slot, tail[last], tail.ref(last))
	tail.clearSlot(last)
	if last == 0 && before != nil {
		x.freeChain(before)
		before.setNext(0)
	}
}

// addOverflow appends an empty bucket to b.
func (x *index) addOverflow(b *bucket) *bucket {
	if x.overflowFree == 0 {
		first := x.overflow.count
		x.overflow.extend(x.pool, first)
		x.overflow.count += bucketsPerBlock
		for n := x.overflow.count; n > first; n-- {
			x.overflow.at(n - 1).setNext(x.overflowFree)
			x.overflowFree = uint32(n)
		}
	}
	n := x.overflowFree
	next := x.overflow.at(int(n) - 1)
	x.overflowFree = next.next()
	x.overflowUsed++
	clear(next[:])
	b.setNext(n)
	return next
}

// freeChain frees the overflow buckets that follow b, which must be empty. The caller must clear
// the link in b.
func (x *index) freeChain(b *bucket) {
	for n := b.next(); n != 0; {
		o := x.overflow.at(int(n) - 1)
		following := o.next()
		o.setNext(x.overflowFree)
		x.overflowFree = n
		x.overflowUsed--
		n = following
	}
	if x.overflowUsed == 0 {
		x.pool.put(x.overflow.blocks...)
		x.overflow = buckets{}
		x.overflowFree = 0
	}
}

// resizeIfNeeded starts to resize the index if the number of records requires it. It grows at a
// load of 9 of 12 slots, and shrinks at less than a quarter of that, so that the two do not
// alternate.
func (x *index) resizeIfNeeded(records int) {
	if x.moving() {
		return
	}
	full := x.current.count * loadPerBucket
	switch blocks := len(x.current.blocks); {
	case blocks == 0:
		x.current.count = bucketsPerBlock * max(min(int(x.expected), maxLeap), 1)
		x.current.extend(x.pool, x.current.count-1)
	case records >= full:
		x.resize(max(blocks+max(blocks/2, 1), min(int(x.expected), maxLeap*blocks)))
	case records < full/4 && blocks > max(int(x.expected), 1):
		x.resize(records*3/2/(loadPerBucket*bucketsPerBlock) + 1)
	}
}

// expect announces about how many records will be inserted, so that the index need not grow step by
// step, which would take a third of the time of a load. A wrong number costs no more than maxLeap
// times the memory that the records need.
func (x *index) expect(records uint64) {
	const perBlock = loadPerBucket * bucketsPerBlock
	x.expected = uint32((min(records, math.MaxInt32) + perBlock - 1) / perBlock)
}

// resize starts a new array. Its blocks are created as buckets are moved, so that no call has to
// clear all of them.
func (x *index) resize(blocks int) {
	x.old, x.movedBuckets = x.current, 0
	x.current = buckets{blocks: make([]*block, 0, blocks), count: blocks * bucketsPerBlock}
}

func (x *index) moving() bool { return x.old.count > 0 }

// moveBucket moves the next bucket of the old array to the current one. rehash returns the hash of
// a record's key.
func (x *index) moveBucket(rehash func(ref) keyHash) {
	if !x.moving() {
		return
	}
	from := x.old.at(x.movedBuckets)
	x.movedBuckets++ // from here on firstBucket returns buckets of the current array
	x.current.extend(x.pool, x.current.bucketOf(uint32(x.old.start(x.movedBuckets)-1)))
	for b := from; b != nil; b = x.nextBucket(b) {
		for slot := range bucketSlots {
			if b.taken(slot) {
				r := b.ref(slot)
				x.insert(rehash(r), r)
			}
		}
	}
	x.freeChain(from)
	if x.movedBuckets%bucketsPerBlock == 0 {
		// The block stays in the list, because Prefetch may read the list without the lock.
		x.pool.put(x.old.blocks[x.movedBuckets/bucketsPerBlock-1])
	}
	if x.movedBuckets == x.old.count {
		x.old, x.movedBuckets = buckets{}, 0
	}
}

// detachBlocks empties the index and returns its blocks.
func (x *index) detachBlocks() [3][]*block {
	old := x.old.blocks[x.movedBuckets/bucketsPerBlock:] // the earlier ones have been freed
	left := [3][]*block{x.current.blocks, x.overflow.blocks, old}
	*x = index{pool: x.pool}
	return left
}

func (x *index) bytes() int64 {
	blocks := len(x.current.blocks) + len(x.overflow.blocks) + len(x.old.blocks)
	return int64(blocks-x.movedBuckets/bucketsPerBlock) * pageBytes
}
