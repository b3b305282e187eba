package memory

import "cellserver/internal/store"

// Usage counts what each database holds. The shards of one are read at one instant.
func (m *Store) Usage() []store.Usage { return m.newView().Usage() }

// OffHeapBytes is the memory that keys take outside of Go's heap, in bytes: together with what is in the
// heap it is all that they take. It is less than 0 where chunks are in the heap too, and not all of
// them is used.
func (m *Store) OffHeapBytes() int64 {
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	return int64(m.pool.usedCount)*pageBytes - m.pool.heap
}

// Usage is the store's.
func (v *view) Usage() []store.Usage {
	usage := make([]store.Usage, len(v.memory.databases))
	for n := range usage {
		db := v.memory.database(n)
		if db == nil {
			continue
		}
		if v.transaction == nil {
			db.lockAll()
		}
		for i := range db.shards {
			usage[n].Keys += db.shards[i].records
			usage[n].NoExpiry += db.shards[i].noExpiry
			usage[n].Bytes += db.shards[i].bytes()
			usage[n].Expired += db.shards[i].expiredCount
			usage[n].Copied += db.shards[i].copiedBytes
		}
		if v.transaction == nil {
			db.unlockAll()
		}
	}
	return usage
}
