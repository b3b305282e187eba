package memory

import "cellserver/internal/store"

// Usage returns the usage of each database. It reads the shards of one database at one instant.
func (m *Store) Usage() []store.Usage { return m.newView().Usage() }

// OffHeapBytes returns the memory that keys take outside Go's heap: added to the heap's size, it
// gives the whole memory of the keys. It is negative if chunks are in the heap and not completely
// in use.
func (m *Store) OffHeapBytes() int64 {
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	return int64(m.pool.usedCount)*pageBytes - m.pool.heap
}

// FreedBytes returns how many bytes of keys have become garbage in Go's heap since the start: large
// values, logs and leases that were removed.
func (m *Store) FreedBytes() int64 { return m.pool.garbage.Load() }

// Usage returns the usage of each database.
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
			usage[n].NoExpiry += int(db.shards[i].noExpiry)
			usage[n].Bytes += db.shards[i].bytes()
			usage[n].Expired += db.shards[i].expiredCount
			usage[n].Swept += db.shards[i].sweptCount
			usage[n].Copied += db.shards[i].copiedBytes
			for kind := range usage[n].ByKind {
				usage[n].ByKind[kind] += int(db.shards[i].kinds[kind])
			}
		}
		if v.transaction == nil {
			db.unlockAll()
		}
	}
	return usage
}
