package memory

import (
	"cmp"
	"iter"
	"math"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
)

// block is a unit of memory. Pages and the index are made of blocks.
type block [pageBytes]byte

// pool allocates blocks from memory that the system provides in chunks, outside Go's heap. In the
// heap, the garbage collector would sweep this memory, in which it has nothing to find, piece by
// piece on behalf of allocating goroutines, for milliseconds; and it would return it to the system
// at times of its own, not when the keys are gone.
//
// The pool's lock is taken last, while a shard is locked, and only for a push or a pop.
type pool struct {
	mu sync.Mutex
	// Blocks that were put back and are still in memory. They are lists of lists, so that no long
	// list is ever copied under the lock.
	free        [][]*block
	freeCount   int          // number of blocks in free
	chunks      []*chunk     // sorted by address
	lowest      int          // the chunks before this one have no cold block
	usedCount   int          // blocks in use
	heap        int64        // bytes of chunks that are in Go's heap, on systems where they must be
	garbage     atomic.Int64 // bytes in Go's heap that keys have used and left, since the start
	nextChunk   *chunk       // the next element of chunks, if it has been mapped already
	wakePrepare chan struct{}

	mappings *mappings
}

// hugePage is the size of a huge page in bytes. With huge pages, a step on a large table, which
// reads three places that are in no cache, takes two thirds of the time.
const hugePage = 2 << 20

// chunk is memory that was mapped at once. Its cold blocks are not in memory; they read as zeros
// when they are touched.
type chunk struct {
	memory    []byte
	cold      blockSet
	coldCount int  // number of cold blocks
	huge      bool // the system was advised to use huge pages for it
	populated uint // one bit per huge page: it is in memory, or being brought there
}

// mappings is the memory that the system provides. It is unmapped only when nothing refers to the
// store any more, because Prefetch, which takes no lock, may look at a block long after it was
// freed.
type mappings struct{ list [][]byte }

func (m *mappings) unmap() {
	for _, mapping := range m.list {
		unmap(mapping)
	}
}

const (
	// chunkBytes is the size of a chunk. It takes only address space until it is touched.
	chunkBytes  = 16 << 20
	chunkBlocks = chunkBytes / pageBytes
	// maxFree is the number of free blocks to keep for reuse, 1 MiB, but at most one for each that
	// is in use. Each call of trim returns half of the blocks beyond this number to the system, so
	// that a table whose size varies causes little work.
	maxFree = 256
	// hugeBlocks is the number of blocks in a huge page.
	hugeBlocks = hugePage / pageBytes
)

// get returns a block with undefined content.
func (p *pool) get() *block {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.usedCount++
	if p.freeCount > 0 {
		return p.pop()
	}
	for p.lowest < len(p.chunks) && p.chunks[p.lowest].coldCount == 0 {
		p.lowest++
	}
	if p.lowest == len(p.chunks) && !p.extend() {
		return new(block) // the heap may have memory left, or end the process
	}
	b, n := p.chunks[p.lowest].take()
	if n%hugeBlocks == hugeBlocks/2 {
		select {
		case p.wakePrepare <- struct{}{}:
		default: // prepare has been woken already, or is not running
		}
	}
	return b
}

// prepare brings huge pages into memory before they are needed. The system clears the two megabytes
// of a huge page when it is first touched; that takes a millisecond or more, during which a shard
// would be locked.
func (p *pool) prepare(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-p.wakePrepare:
			populate(p.nextHugePage())
		}
	}
}

// nextHugePage returns the memory of the huge page that will be needed next, or nil if it is
// populated.
func (p *pool) nextHugePage() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.chunks[p.lowest:] {
		if !c.huge && c.coldCount < chunkBlocks {
			continue // it is used in pieces
		}
		if huge := c.firstCold(); huge >= 0 {
			return c.claimHugePage(huge)
		}
	}
	if p.nextChunk == nil {
		if p.nextChunk = p.chunk(); p.nextChunk == nil {
			return nil
		}
	}
	return p.nextChunk.claimHugePage(0)
}

// claimHugePage returns the memory of a huge page and marks it as populated, or returns nil if it
// is already.
func (c *chunk) claimHugePage(huge int) []byte {
	if c.populated>>huge&1 != 0 {
		return nil
	}
	c.populated |= 1 << huge
	c.requestHugePages()
	return c.memory[huge*hugePage : (huge+1)*hugePage]
}

// firstCold returns the first huge page whose blocks are all cold, or -1 if there is none.
func (c *chunk) firstCold() int {
	for huge := range chunkBlocks / hugeBlocks {
		if c.isCold(huge) {
			return huge
		}
	}
	return -1
}

// isCold reports whether all blocks of a huge page are cold.
func (c *chunk) isCold(huge int) bool {
	for _, cold := range c.cold[huge*hugeBlocks/64 : (huge+1)*hugeBlocks/64] {
		if cold != math.MaxUint64 {
			return false
		}
	}
	return true
}

// requestHugePages advises the system to use huge pages for a chunk that is used, or about to be
// used, as a whole.
func (c *chunk) requestHugePages() {
	if !c.huge && (c.coldCount == chunkBlocks || c.coldCount == 1) {
		c.huge = true
		adviseHuge(c.memory, true)
	}
}

// extend adds a chunk. It returns false if the system has no memory.
func (p *pool) extend() bool {
	c := p.nextChunk
	if p.nextChunk = nil; c == nil {
		c = p.chunk()
	}
	if c == nil {
		return false
	}
	p.lowest, _ = p.search((*block)(c.memory))
	p.chunks = slices.Insert(p.chunks, p.lowest, c)
	return true
}

// chunk maps a new chunk. It returns nil if the system has no memory.
func (p *pool) chunk() *chunk {
	memory, mapping := newChunk(chunkBytes)
	if memory == nil {
		return nil
	}
	if mapping == nil {
		p.heap += chunkBytes
	}
	p.mappings.list = append(p.mappings.list, mapping)
	c := &chunk{memory: memory, coldCount: chunkBlocks}
	c.cold.add(0, chunkBlocks)
	return c
}

// search returns the index of the chunk that a block belongs to, or if there is none where it would
// be inserted.
func (p *pool) search(b *block) (n int, ok bool) {
	return slices.BinarySearchFunc(p.chunks, address(b[:]), func(c *chunk, at uintptr) int {
		switch base := address(c.memory); {
		case base > at:
			return 1
		case at-base >= chunkBytes:
			return -1
		}
		return 0
	})
}

// take returns the first of a chunk's cold blocks and its number. There must be one.
func (c *chunk) take() (b *block, n int) {
	c.requestHugePages()
	c.coldCount--
	n = c.cold.first()
	return (*block)(c.memory[n*pageBytes:]), n
}

// number returns the number of a block in its chunk; it is chunkBlocks or more for blocks of chunks
// after this one.
func (c *chunk) number(b *block) int { return int((address(b[:]) - address(c.memory)) / pageBytes) }

// put frees blocks. A long list is copied before the lock is taken.
func (p *pool) put(blocks ...*block) {
	if len(blocks) > shortList {
		blocks = slices.Clone(blocks)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.usedCount -= len(blocks)
	p.push(blocks)
}

// shortList bounds the lists whose blocks are added to an existing list; longer lists are kept as
// they are.
const shortList = 64

// push adds blocks to free. A long list then belongs to the pool.
func (p *pool) push(blocks []*block) {
	p.freeCount += len(blocks)
	if len(blocks) > shortList {
		p.free = append(p.free, blocks)
		return
	}
	for len(blocks) > 0 {
		last := len(p.free) - 1
		if last < 0 || len(p.free[last]) == cap(p.free[last]) {
			p.free = append(p.free, make([]*block, 0, shortList))
			last++
		}
		n := min(len(blocks), cap(p.free[last])-len(p.free[last]))
		p.free[last] = append(p.free[last], blocks[:n]...)
		blocks = blocks[n:]
	}
}

// pop removes a block from free. There must be one.
func (p *pool) pop() *block {
	last := len(p.free) - 1
	list := p.free[last]
	b := list[len(list)-1]
	p.freeCount--
	if p.free[last] = list[:len(list)-1]; len(list) == 1 {
		p.free = p.free[:last]
	}
	return b
}

// trim returns half of the free blocks beyond maxFree to the system, and reports how many. It must
// not be called concurrently.
func (p *pool) trim() int {
	excess := p.excess()
	for i := 0; i < len(excess); {
		c := p.chunkOf(excess[i])
		if c == nil {
			i++ // allocated from the heap, so the garbage collector frees it
			continue
		}
		var cold blockSet
		for ; i < len(excess) && c.number(excess[i]) < chunkBlocks; i++ {
			cold.add(c.number(excess[i]), 1)
		}
		p.splitHugePages(c)
		p.release(c, cold)
	}
	if len(excess) > 0 {
		p.releaseUnused()
	}
	return len(excess)
}

// releaseUnused returns the memory of chunks that were populated for a table that has stopped
// growing, and are not in use.
func (p *pool) releaseUnused() {
	p.mu.Lock()
	var unused []*chunk
	for _, c := range append(p.chunks[p.lowest:len(p.chunks):len(p.chunks)], p.nextChunk) {
		if c != nil && c.populated != 0 && c.coldCount == chunkBlocks {
			unused = append(unused, c)
		}
	}
	p.mu.Unlock()
	for _, c := range unused {
		p.splitHugePages(c)
	}
}

// excess removes from free the blocks that trim is to return, and sorts them. The blocks with the
// lowest addresses are kept, so that what is in use stays together.
func (p *pool) excess() []*block {
	p.mu.Lock()
	lists, most := p.free, min(maxFree, p.usedCount)
	if p.freeCount <= most {
		p.mu.Unlock()
		return nil
	}
	p.free, p.freeCount = nil, 0
	p.mu.Unlock()

	warm := slices.Concat(lists...)
	slices.SortFunc(warm, func(a, b *block) int { return cmp.Compare(address(a[:]), address(b[:])) })
	keep := len(warm) - (len(warm)-most+1)/2
	p.mu.Lock()
	defer p.mu.Unlock()
	p.push(slices.Clone(warm[:keep]))
	return warm[keep:]
}

// chunkOf returns the chunk of a block, or nil if it is in the heap.
func (p *pool) chunkOf(b *block) *chunk {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n, ok := p.search(b); ok {
		return p.chunks[n]
	}
	return nil
}

// splitHugePages advises the system against huge pages for a chunk, because otherwise the system
// would bring back huge pages from which single blocks had been returned. Cold blocks may be
// in memory as parts of huge pages; these are returned first.
func (p *pool) splitHugePages(c *chunk) {
	p.mu.Lock()
	was, cold := c.huge, c.cold
	if was {
		c.huge, c.populated, c.cold, c.coldCount = false, 0, blockSet{}, 0
		adviseHuge(c.memory, false)
	}
	p.mu.Unlock()
	if was {
		p.release(c, cold)
	}
}

// release returns blocks of a chunk to the system and makes them cold. They must not be in free, so
// that they cannot be allocated meanwhile.
func (p *pool) release(c *chunk, blocks blockSet) {
	for first, n := range blocks.runs() {
		discard(c.memory[first*pageBytes : (first+n)*pageBytes])
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range blocks {
		c.cold[i] |= blocks[i]
		c.coldCount += bits.OnesCount64(blocks[i])
	}
	if n, ok := p.search((*block)(c.memory)); ok {
		p.lowest = min(p.lowest, n)
	}
}

// blockSet is a set of the blocks of a chunk, one bit each.
type blockSet [chunkBlocks / 64]uint64

func (s *blockSet) has(n int) bool { return s[n/64]>>(n%64)&1 != 0 }

// add adds count blocks, starting with n.
func (s *blockSet) add(n, count int) {
	for ; count > 0; n, count = n+1, count-1 {
		s[n/64] |= 1 << (n % 64)
	}
}

// first removes and returns the lowest block. There must be one.
func (s *blockSet) first() int {
	word := 0
	for s[word] == 0 {
		word++
	}
	n := word*64 + bits.TrailingZeros64(s[word])
	s[word] &= s[word] - 1
	return n
}

// runs iterates over runs of adjacent blocks: the first block, and the number of blocks.
func (s *blockSet) runs() iter.Seq2[int, int] {
	return func(yield func(first, count int) bool) {
		for n := 0; n < chunkBlocks; n++ {
			count := 0
			for n+count < chunkBlocks && s.has(n+count) {
				count++
			}
			if count > 0 && !yield(n, count) {
				return
			}
			n += count
		}
	}
}
