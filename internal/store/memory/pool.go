package memory

import (
	"cmp"
	"iter"
	"math"
	"math/bits"
	"slices"
	"sync"
)

// block is the piece of memory that pages and the index are made of.
type block [pageBytes]byte

// pool is where the blocks come from, and go to: memory that the system gives in chunks, outside of
// Go's heap. The garbage collector would have nothing to look for in it, and yet sweep it piece by
// piece, for milliseconds, in whoever asks for the next one; and it would give it back to the
// system when it sees fit, not when the keys have gone.
//
// A pool's lock is taken last, while a shard's is held, and only for a push or a pop.
type pool struct {
	mu sync.Mutex
	// Blocks that were put back and are still in memory. They are lists of lists, so that no long
	// list is ever copied under the lock.
	free        [][]*block
	freeCount   int      // how many these are
	chunks      []*chunk // by address
	lowest      int      // the chunks before this one have no cold block
	usedCount   int      // blocks that are out
	heap        int64    // bytes of chunks that are in Go's heap, where no other memory is asked for
	nextChunk   *chunk   // that will be the next of chunks, if there is one already
	wakePrepare chan struct{}

	mappings *mappings
}

// hugePage is what the processor maps at once if the system lets it, in bytes: a step on a large
// table, which touches memory at three places that no cache holds, then takes two thirds of the
// time.
const hugePage = 2 << 20

// chunk is memory that the system gave at once. The system has its cold blocks: they are zeroes for
// whoever touches them.
type chunk struct {
	memory    []byte
	cold      blockSet
	coldCount int  // how many are cold
	huge      bool // the system was asked to make huge pages of it
	populated uint // a bit a huge page: it is in memory, or on its way
}

// mappings are what the system gave. They go when the store does: that is when nothing refers to it
// any more, for whoever looks without a lock may look at a block that is long somebody else's.
type mappings struct{ list [][]byte }

func (m *mappings) unmap() {
	for _, mapping := range m.list {
		unmap(mapping)
	}
}

const (
	// chunkBytes is what the system is asked for at once: of the address space, until it is
	// touched.
	chunkBytes  = 16 << 20
	chunkBlocks = chunkBytes / pageBytes
	// maxFree is how many blocks are kept for whoever needs one next, 1 MiB, but one for each that
	// is used at most. Of those beyond it, half are given back to the system each time that trim is
	// called: so a table that breathes makes it little work.
	maxFree = 256
	// hugeBlocks are the blocks of a huge page.
	hugeBlocks = hugePage / pageBytes
)

// get is a block, of which the bytes may be anything.
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
		return new(block) // Go's heap may have some, or end the process
	}
	b, n := p.chunks[p.lowest].take()
	if n%hugeBlocks == hugeBlocks/2 {
		select {
		case p.wakePrepare <- struct{}{}:
		default: // it was said before, or there is nobody to tell
		}
	}
	return b
}

// prepare brings huge pages into memory before they are wanted: the system clears two megabytes for
// whoever touches one first, which takes a millisecond or more, and would be done while a shard is
// locked.
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

// nextHugePage is the memory of the huge page that will be wanted next, if it is not near.
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

// claimHugePage is the memory of a huge page that is to be brought near; nothing if it is.
func (c *chunk) claimHugePage(huge int) []byte {
	if c.populated>>huge&1 != 0 {
		return nil
	}
	c.populated |= 1 << huge
	c.requestHugePages()
	return c.memory[huge*hugePage : (huge+1)*hugePage]
}

// firstCold is the first huge page of which all blocks are cold, -1 if there is none.
func (c *chunk) firstCold() int {
	for huge := range chunkBlocks / hugeBlocks {
		if c.isCold(huge) {
			return huge
		}
	}
	return -1
}

// isCold says whether all blocks of a huge page are cold.
func (c *chunk) isCold(huge int) bool {
	for _, cold := range c.cold[huge*hugeBlocks/64 : (huge+1)*hugeBlocks/64] {
		if cold != math.MaxUint64 {
			return false
		}
	}
	return true
}

// requestHugePages asks for huge pages, if a chunk is used as a whole, or about to be.
func (c *chunk) requestHugePages() {
	if !c.huge && (c.coldCount == chunkBlocks || c.coldCount == 1) {
		c.huge = true
		adviseHuge(c.memory, true)
	}
}

// extend adds a chunk, if the system has one.
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

// chunk asks the system for one, nil if it has none.
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

// search finds the chunk that a block is of; without ok, where it would stand.
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

// take is the first of a chunk's cold blocks, and its number; there must be one.
func (c *chunk) take() (b *block, n int) {
	c.requestHugePages()
	c.coldCount--
	n = c.cold.first()
	return (*block)(c.memory[n*pageBytes:]), n
}

// number is which of a chunk's blocks b is: of another chunk that lies behind it, none.
func (c *chunk) number(b *block) int { return int((address(b[:]) - address(c.memory)) / pageBytes) }

// put takes blocks back. A long list of them is copied before the lock is taken.
func (p *pool) put(blocks ...*block) {
	if len(blocks) > shortList {
		blocks = slices.Clone(blocks)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.usedCount -= len(blocks)
	p.push(blocks)
}

// shortList is how many blocks are added to a list that there is; more are one of their own.
const shortList = 64

// push keeps blocks. A long list is the pool's from then on.
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

// pop takes a block that is kept; there must be one.
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

// trim gives the system back half of what is kept beyond maxWarm, and says how many blocks that
// was. It is for one goroutine at a time.
func (p *pool) trim() int {
	excess := p.excess()
	for i := 0; i < len(excess); {
		c := p.chunkOf(excess[i])
		if c == nil {
			i++ // it was of Go's heap, and is the collector's
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

// releaseUnused gives back what was brought near for a table that does not grow any more: in chunks
// that nobody has begun to use.
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

// excess takes out what trim is to give back, in order. The lowest stay, close together.
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

// chunkOf is the chunk of a block, nil if it has none.
func (p *pool) chunkOf(b *block) *chunk {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n, ok := p.search(b); ok {
		return p.chunks[n]
	}
	return nil
}

// splitHugePages has a chunk in no huge pages from here on: the system would put together again what is
// given back piece by piece. Its cold blocks may be in memory too, as parts of a huge page: these
// go first.
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

// release gives blocks of a chunk back, which nobody can take meanwhile, and has them cold.
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

// blockSet is some of a chunk's blocks, a bit each.
type blockSet [chunkBlocks / 64]uint64

func (s *blockSet) has(n int) bool { return s[n/64]>>(n%64)&1 != 0 }

// add adds count blocks, the first of them n.
func (s *blockSet) add(n, count int) {
	for ; count > 0; n, count = n+1, count-1 {
		s[n/64] |= 1 << (n % 64)
	}
}

// first takes out the lowest; there must be one.
func (s *blockSet) first() int {
	word := 0
	for s[word] == 0 {
		word++
	}
	n := word*64 + bits.TrailingZeros64(s[word])
	s[word] &= s[word] - 1
	return n
}

// runs are blocks that lie side by side: the first of them, and how many.
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
