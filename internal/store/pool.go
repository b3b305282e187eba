package store

import (
	"cmp"
	"iter"
	"math/bits"
	"slices"
	"sync"
)

// block is the piece of memory that pages and the index are made of.
type block [pageBytes]byte

// pool is where the blocks come from, and go to: memory that the system gives in chunks, outside of Go's heap. The garbage
// collector would have nothing to look for in it, and yet sweep it piece by piece, for milliseconds, in whoever asks for the
// next one; and it would give it back to the system when it sees fit, not when the keys have gone.
//
// A pool's lock is taken last, while a shard's is held, and only for a push or a pop.
type pool struct {
	mu     sync.Mutex
	warm   []*block // given back, and in memory still
	chunks []*chunk // by address
	lowest int      // the chunks before this one have no cold block
	used   int      // blocks that are out

	mapped *mappings
}

// chunk is memory that the system gave at once. The system has its cold blocks: they are zeroes for whoever touches them.
type chunk struct {
	memory []byte
	cold   blockSet
	left   int  // how many are cold
	huge   bool // the system was asked to make huge pages of it
}

// mappings are what the system gave. They go when the store does: that is when nothing refers to it any more, for
// whoever looks without a lock may look at a block that is long somebody else's.
type mappings struct{ list [][]byte }

func (m *mappings) unmap() {
	for _, mapping := range m.list {
		unmap(mapping)
	}
}

const (
	// chunkBytes is what the system is asked for at once: of the address space, until it is touched.
	chunkBytes  = 16 << 20
	chunkBlocks = chunkBytes / pageBytes
	// maxWarm is how many blocks are kept for whoever needs one next, 1 MiB, but one for each that is used at most. Of those beyond
	// it, half are given back to the system each time that trim is called: so a table that breathes makes it little work.
	maxWarm = 256
)

// get is a block, of which the bytes may be anything.
func (p *pool) get() *block {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used++
	if k := len(p.warm); k > 0 {
		b := p.warm[k-1]
		p.warm = p.warm[:k-1]
		return b
	}
	for p.lowest < len(p.chunks) && p.chunks[p.lowest].left == 0 {
		p.lowest++
	}
	if p.lowest == len(p.chunks) && !p.extend() {
		return new(block) // Go's heap may have some, or end the process
	}
	return p.chunks[p.lowest].take()
}

// extend asks the system for a chunk.
func (p *pool) extend() bool {
	memory, mapping := newChunk(chunkBytes)
	if memory == nil {
		return false
	}
	c := &chunk{memory: memory, left: chunkBlocks}
	c.cold.add(0, chunkBlocks)
	p.lowest, _ = p.search((*block)(memory))
	p.chunks = slices.Insert(p.chunks, p.lowest, c)
	p.mapped.list = append(p.mapped.list, mapping)
	return true
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

// take is the first of a chunk's cold blocks; there must be one. Huge pages are for chunks that are used as a whole.
func (c *chunk) take() *block {
	if !c.huge && (c.left == chunkBlocks || c.left == 1) {
		c.huge = true
		wantHuge(c.memory, true)
	}
	c.left--
	return (*block)(c.memory[c.cold.first()*pageBytes:])
}

// number is which of a chunk's blocks b is: of another chunk that lies behind it, none.
func (c *chunk) number(b *block) int { return int((address(b[:]) - address(c.memory)) / pageBytes) }

// put takes blocks back.
func (p *pool) put(blocks ...*block) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used -= len(blocks)
	p.warm = append(p.warm, blocks...)
}

// trim gives the system back half of what is kept beyond maxWarm, and says how many blocks that was. It is for one goroutine at a
// time.
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
		p.scatter(c)
		p.release(c, cold)
	}
	return len(excess)
}

// excess takes out what trim is to give back, in order. The lowest stay, close together.
func (p *pool) excess() []*block {
	p.mu.Lock()
	warm, most := p.warm, min(maxWarm, p.used)
	if len(warm) <= most {
		p.mu.Unlock()
		return nil
	}
	p.warm = nil
	p.mu.Unlock()

	slices.SortFunc(warm, func(a, b *block) int { return cmp.Compare(address(a[:]), address(b[:])) })
	keep := len(warm) - (len(warm)-most+1)/2
	p.mu.Lock()
	defer p.mu.Unlock()
	p.warm = append(p.warm, warm[:keep]...)
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

// scatter has a chunk in no huge pages from here on: the system would put together again what is given back piece by piece. Its cold
// blocks may be in memory too, as parts of a huge page: these go first.
func (p *pool) scatter(c *chunk) {
	p.mu.Lock()
	was, cold := c.huge, c.cold
	if was {
		c.huge, c.cold, c.left = false, blockSet{}, 0
		wantHuge(c.memory, false)
	}
	p.mu.Unlock()
	if was {
		p.release(c, cold)
	}
}

// release gives blocks of a chunk back, which nobody can take meanwhile, and has them cold.
func (p *pool) release(c *chunk, blocks blockSet) {
	for first, n := range blocks.runs() {
		giveBack(c.memory[first*pageBytes : (first+n)*pageBytes])
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range blocks {
		c.cold[i] |= blocks[i]
		c.left += bits.OnesCount64(blocks[i])
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
