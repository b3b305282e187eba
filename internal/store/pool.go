package store

import (
	"cmp"
	"math/bits"
	"slices"
	"sync"
	"unsafe"
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
	cold   [chunkBlocks / 64]uint64 // a bit a block
	left   int                      // how many are cold
	huge   bool                     // the system was asked to make huge pages of it
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
	for i := range c.cold {
		c.cold[i] = 1<<64 - 1
	}
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

// take is the first of a chunk's cold blocks; there must be one. Huge pages are for chunks that are used as a whole: the system
// would put together again what is given back piece by piece.
func (c *chunk) take() *block {
	if !c.huge && (c.left == chunkBlocks || c.left == 1) {
		c.huge = true
		wantHuge(c.memory, true)
	}
	word := 0
	for c.cold[word] == 0 {
		word++
	}
	n := word*64 + bits.TrailingZeros64(c.cold[word])
	c.cold[word] &= c.cold[word] - 1
	c.left--
	return (*block)(c.memory[n*pageBytes:])
}

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
	for _, run := range inRuns(excess) {
		p.cool(run)
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

// inRuns puts blocks together that lie side by side, so that the system is asked once for many.
func inRuns(blocks []*block) (runs [][]byte) {
	for i := 0; i < len(blocks); {
		n := 1
		for i+n < len(blocks) && address(blocks[i+n][:]) == address(blocks[i][:])+uintptr(n)*pageBytes {
			n++
		}
		runs = append(runs, unsafe.Slice(&blocks[i][0], n*pageBytes))
		i += n
	}
	return runs
}

// cool gives a run of blocks back to the system. It may lie in two chunks that lie side by side. What was of Go's heap is the collector's.
func (p *pool) cool(run []byte) {
	for len(run) > 0 {
		c := p.chunkOf((*block)(run))
		if c == nil {
			return
		}
		first := int(address(run) - address(c.memory))
		size := min(len(run), chunkBytes-first)
		giveBack(run[:size])

		p.mu.Lock()
		for n := first / pageBytes; n < (first+size)/pageBytes; n++ {
			c.cold[n/64] |= 1 << (n % 64)
		}
		c.left += size / pageBytes
		p.mu.Unlock()
		run = run[size:]
	}
}

// chunkOf is the chunk of a block that is to become cold, nil if it has none. From here on it is in no huge pages.
func (p *pool) chunkOf(b *block) *chunk {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, ok := p.search(b)
	if !ok {
		return nil
	}
	c := p.chunks[n]
	p.lowest = min(p.lowest, n)
	if c.huge {
		c.huge = false
		wantHuge(c.memory, false)
	}
	return c
}
