package memory

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// Every block belongs to one owner, however it was allocated.
func TestBlocksHaveOneOwner(t *testing.T) {
	p := pool{mappings: new(mappings)}
	held := map[*block]bool{}
	for round := range 6 {
		for range 3000 {
			b := p.get()
			require.False(t, held[b])
			held[b] = true
			b[0], b[pageBytes-1] = byte(round), byte(round)
		}
		for b := range held { // free some, in no order
			if len(held) < 1000*(round+1) {
				break
			}
			delete(held, b)
			p.put(b)
		}
		for p.trim() > 0 {
		}
		require.LessOrEqual(t, p.freeCount, maxFree)
	}
	for b := range held {
		require.Equal(t, b[0], b[pageBytes-1], "another owner has written to the block")
	}
}

// When half of a huge page is in use, prepare is woken, and populates the next huge page once, also
// if it is in another chunk.
func TestNextHugePageIsPopulated(t *testing.T) {
	p := pool{mappings: new(mappings), wakePrepare: make(chan struct{}, 1)}
	defer p.mappings.unmap()
	for n := range 2 * chunkBlocks / hugeBlocks {
		for i := range hugeBlocks {
			b := p.get()
			b[0]++
			select {
			case <-p.wakePrepare:
				require.Equal(t, hugeBlocks/2, i)
				memory := p.nextHugePage()
				require.Len(t, memory, hugePage)
				before := present(t, memory)
				populate(memory)
				require.Nil(t, p.nextHugePage(), "the huge page is populated already")
				if offHeap() {
					require.Zero(t, before)
					require.Equal(t, hugePage, present(t, memory))
				}
			default:
				require.NotEqual(t, hugeBlocks/2, i)
			}
		}
		require.Len(t, p.chunks, 1+n*hugeBlocks/chunkBlocks, "after %d huge pages", n+1)
	}
}

// A table that shrinks and grows among keys that stay does not leak memory, however often it does.
// Memory that was populated for it is returned too.
func TestPeaksLeaveNoMemory(t *testing.T) {
	p := pool{mappings: new(mappings), wakePrepare: make(chan struct{}, 1)}
	defer p.mappings.unmap()
	take := func(n int) (blocks []*block) {
		for range n {
			b := p.get()
			b[0]++
			blocks = append(blocks, b)
			select {
			case <-p.wakePrepare:
				populate(p.nextHugePage())
			default:
			}
		}
		return blocks
	}
	settle := func() {
		for p.trim() > 0 {
		}
	}
	stays := 0
	for i, b := range take(4 * chunkBlocks) { // one block in each chunk stays in use
		if i%chunkBlocks > 0 {
			p.put(b)
		} else {
			stays++
		}
	}
	settle()
	before := residentBytes(t)
	for cycle := range 30 {
		p.put(take(3*chunkBlocks - cycle*100)...)
		settle()
	}
	require.Equal(t, stays, p.usedCount)
	if offHeap() {
		require.Less(t, residentBytes(t)-before, 3<<20)
	}
	for _, c := range p.chunks {
		require.Zero(t, c.populated)
	}
}

// offHeap reports whether blocks are outside Go's heap.
func offHeap() bool {
	_, mapping := newChunk(pageBytes)
	unmap(mapping)
	return mapping != nil
}

// residentBytes returns the resident memory of the process.
func residentBytes(t *testing.T) (bytes int) {
	statm, err := os.ReadFile("/proc/self/statm")
	require.NoError(t, err)
	var size, resident int
	_, err = fmt.Sscan(string(statm), &size, &resident)
	require.NoError(t, err)
	return resident * os.Getpagesize()
}

// Memory returns to the system after its keys have expired, or were flushed.
func TestMemoryIsReturned(t *testing.T) {
	if !offHeap() {
		return // Go's heap keeps it for other keys
	}
	clock := store.NewStillClock(1e18)
	m := New(Options{Clock: clock, SweepEvery: -1})
	v := m.View()
	fill := func() {
		v.Begin()
		var key []byte
		for i := range 1_000_000 {
			key = fmt.Appendf(key[:0], "key:%013d", i)
			_, err := v.Throttle(background, key, sixteenAMinute, 1, quota.Take)
			require.NoError(t, err)
		}
	}
	settle := func() {
		for range 4 * slicesPerRound {
			m.Sweep()
		}
	}
	fill() // allocates memory that stays for good
	clock.Advance(time.Hour)
	settle()
	for name, forget := range map[string]func(){
		"expired": func() { clock.Advance(time.Hour) },
		"flushed": func() { require.NoError(t, v.Flush(background)) },
	} {
		before := residentBytes(t)
		fill()
		full := residentBytes(t)
		require.Greater(t, full-before, 30<<20, name)
		forget()
		settle()
		require.NoError(t, m.check())
		require.Less(t, residentBytes(t)-before, (full-before)/10, name)
		require.Zero(t, m.pool.usedCount, name)
		require.Zero(t, m.pool.freeCount, name)
	}
}
