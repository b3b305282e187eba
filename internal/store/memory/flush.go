package memory

import (
	"context"
	"errors"
	"sync"

	"cellserver/internal/store"
)

// Flush empties the selected database in one step.
func (v *view) Flush(context.Context) error {
	if v.existing() != nil {
		v.flush()
	}
	return nil
}

// FlushAll empties all databases in one step.
func (v *view) FlushAll(ctx context.Context) error {
	selected := v.selected
	defer func() { v.selected = selected }()
	return v.Atomically(ctx, nil, true, func() (err error) {
		for v.selected = range v.memory.databases {
			err = errors.Join(err, v.Flush(ctx))
		}
		return err
	})
}

func (v *view) flush() {
	db, _ := v.lockShards(allShards)
	defer v.unlock(db, allShards)
	for i := range db.shards {
		db.shards[i].detach(&v.memory.flushed)
	}
	v.memory.holds.flush(db)
	v.memory.tokens.flushes[v.selected]++
	db.generation.Store(v.memory.lastGeneration.Add(1))
	select {
	case v.memory.wakeSweep <- struct{}{}:
	default: // it has been woken already
	}
	v.memory.listeners.notify(v.selected, nil, store.Flushed, v.caller)
}

// flushedMemory is the memory of flushed keys, which the goroutine of the sweep returns to the pool. For ten
// million keys that takes milliseconds, during which neither a lock should be held nor a client
// wait.
type flushedMemory struct {
	mu     sync.Mutex
	blocks [][]*block
	pages  [][]page
	slabs  int64 // bytes that logs and leases took
}

// detach removes all records of a shard at once.
func (s *shard) detach(to *flushedMemory) {
	s.forgetChanges()
	s.detachHolds(to)
	if s.index.current.count == 0 {
		return // it is empty
	}
	index, list, slabs := s.index.detachBlocks(), s.pages.list, s.logs.bytes+s.leases.bytes
	s.pages = pages{pool: s.pages.pool, limit: s.pages.limit}
	s.logs, s.leases = slab[entryLog]{}, slab[keyLeases]{}
	s.records, s.noExpiry, s.nextSweep, s.kinds = 0, 0, 0, kindCounts{}
	s.publishLayout()

	to.mu.Lock()
	defer to.mu.Unlock()
	to.blocks = append(to.blocks, index[:]...)
	to.pages = append(to.pages, list)
	to.slabs += slabs
}

// detachHolds removes all open holds of a shard at once.
func (s *shard) detachHolds(to *flushedMemory) {
	if s.holds == nil {
		return
	}
	index, list := s.holds.index.detachBlocks(), s.holds.pages.list
	s.holds = nil
	to.mu.Lock()
	defer to.mu.Unlock()
	to.blocks = append(to.blocks, index[:]...)
	to.pages = append(to.pages, list)
}

// release returns the memory to the pool.
func (f *flushedMemory) release(p *pool) {
	f.mu.Lock()
	blocks, lists, garbage := f.blocks, f.pages, f.slabs
	f.blocks, f.pages, f.slabs = nil, nil, 0
	f.mu.Unlock()
	for _, list := range blocks {
		p.put(list...)
	}
	for _, list := range lists {
		blocks := make([]*block, 0, len(list))
		for _, pg := range list {
			switch {
			case pg.class != 0 && pg.data != nil:
				blocks = append(blocks, (*block)(pg.data))
			case pg.class == 0:
				garbage += int64(len(pg.data))
			}
		}
		p.put(blocks...)
	}
	p.garbage.Add(garbage)
}
