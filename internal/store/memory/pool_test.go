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

// Every block is one's own, whatever way it comes.
func TestBlocksAreNotSharedOut(t *testing.T) {
	p := pool{mappings: new(mappings)}
	held := map[*block]bool{}
	for round := range 6 {
		for range 3000 {
			b := p.get()
			require.False(t, held[b])
			held[b] = true
			b[0], b[pageBytes-1] = byte(round), byte(round)
		}
		for b := range held { // some go, in no order
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
		require.Equal(t, b[0], b[pageBytes-1], "nobody released it")
	}
}

// Half way through a huge page somebody is told, and the next one is brought near, once, also where
// that is of another chunk.
func TestTheNextHugePageIsNear(t *testing.T) {
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
				require.Nil(t, p.nextHugePage(), "it is near")
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

// A table that shrinks and grows among keys that stay leaves nothing behind, however often: what
// was brought near for it goes too.
func TestPeaksLeaveNothing(t *testing.T) {
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
	for i, b := range take(4 * chunkBlocks) { // one block in each chunk stays
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

// offHeap says whether blocks are outside of Go's heap.
func offHeap() bool {
	_, mapping := newChunk(pageBytes)
	unmap(mapping)
	return mapping != nil
}

// residentBytes is how much of the process is in memory.
func residentBytes(t *testing.T) (bytes int) {
	statm, err := os.ReadFile("/proc/self/statm")
	require.NoError(t, err)
	var size, resident int
	_, err = fmt.Sscan(string(statm), &size, &resident)
	require.NoError(t, err)
	return resident * os.Getpagesize()
}

// What keys held goes back to the system when they have expired, or were flushed.
func TestMemoryIsGivenBack(t *testing.T) {
	if !offHeap() {
		return // Go's heap keeps it for the next keys
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
	fill() // so that what stays for good is there
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
