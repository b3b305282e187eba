package store

import (
	"cmp"
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
	mu   sync.Mutex
	warm []*block // given back, and in memory still
	cold [][]byte // runs of blocks that the system has: zeroes for whoever touches them

	mapped *mappings
}

// mappings are the chunks that the system gave. They go when the store does: that is when nothing refers to it any more, for
// whoever looks without a lock may look at a block that is long somebody else's.
type mappings struct{ list [][]byte }

func (m *mappings) unmap() {
	for _, mapping := range m.list {
		unmap(mapping)
	}
}

const (
	// chunkBytes is what the system is asked for at once: of the address space, until it is touched.
	chunkBytes = 16 << 20
	// maxWarm is how many blocks are kept for whoever needs one next, 1 MiB. Of those beyond it, half are given back to the
	// system each time that trim is called: so a table that breathes makes it little work.
	maxWarm = 256
)

// get is a block, of which the bytes may be anything.
func (p *pool) get() *block {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k := len(p.warm); k > 0 {
		b := p.warm[k-1]
		p.warm = p.warm[:k-1]
		return b
	}
	if len(p.cold) == 0 && !p.extend() {
		return new(block) // Go's heap may have some, or end the process
	}
	run := &p.cold[len(p.cold)-1]
	b := (*block)(*run)
	if *run = (*run)[pageBytes:]; len(*run) == 0 {
		p.cold = p.cold[:len(p.cold)-1]
	}
	return b
}

// extend asks the system for a chunk.
func (p *pool) extend() bool {
	memory, mapping := chunk(chunkBytes)
	if memory == nil {
		return false
	}
	p.cold = append(p.cold, memory)
	p.mapped.list = append(p.mapped.list, mapping)
	return true
}

// put takes blocks back.
func (p *pool) put(blocks ...*block) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.warm = append(p.warm, blocks...)
}

// trim gives the system back half of what is kept beyond maxWarm, and says how many blocks that was.
func (p *pool) trim() int {
	excess := p.excess()
	runs := inRuns(excess)
	for _, run := range runs {
		release(run)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cold = append(p.cold, runs...)
	return len(excess)
}

// excess takes out what trim is to give back, in order. The lowest stay, close together: the system may make one huge page again
// of each that has a block in memory.
func (p *pool) excess() []*block {
	p.mu.Lock()
	warm, mapped := p.warm, mappings{p.mapped.list}
	if len(warm) <= maxWarm {
		p.mu.Unlock()
		return nil
	}
	p.warm = nil
	p.mu.Unlock()

	slices.SortFunc(warm, func(a, b *block) int { return cmp.Compare(address(a[:]), address(b[:])) })
	keep := len(warm) - (len(warm)-maxWarm+1)/2
	p.put(warm[:keep]...)
	return slices.DeleteFunc(warm[keep:], func(b *block) bool { return !mapped.has(b) }) // those the collector finds
}

// has says whether a block is from the system. Elsewhere than on Linux all are Go's, and as good.
func (m mappings) has(b *block) bool {
	return !offHeap || slices.ContainsFunc(m.list, func(mapping []byte) bool {
		return address(b[:])-address(mapping) < uintptr(len(mapping))
	})
}

// inRuns puts blocks together that lie side by side, so that the system is asked once for many.
func inRuns(blocks []*block) (runs [][]byte) {
	for i := 0; i < len(blocks); {
		n := 1
		for offHeap && i+n < len(blocks) && address(blocks[i+n][:]) == address(blocks[i][:])+uintptr(n)*pageBytes {
			n++
		}
		runs = append(runs, unsafe.Slice(&blocks[i][0], n*pageBytes))
		i += n
	}
	return runs
}
