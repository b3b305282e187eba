package memory

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"cellserver/internal/entry"
)

// Loader fills an empty store with the entries of a snapshot and of passes.
type Loader struct {
	store *Store
	now   int64 // keys that have expired by this instant are not loaded

	mu             sync.Mutex // protects the next three fields
	databases      map[uint64]*database
	generations    []uint64 // the generation of each database, in the last entry of the databases
	lastGeneration uint64   // the largest one

	// skipped has the keys with a last delta that could not be applied. It needs no lock: only
	// passes have deltas, and one goroutine loads them.
	skipped     map[skippedKey]struct{}
	noListeners listeners // used by the databases until they are complete: a load notifies no client
	appliers    sync.Pool // of *applier
	verifies    bool      // only what deltas need is kept
}

type skippedKey struct {
	generation uint64
	key        string
}

// Load returns a loader. The store must be empty, and must not be written to until Done has
// returned. No listener is notified of what is loaded.
func (m *Store) Load() *Loader {
	l := &Loader{
		store: m, now: m.clock.Now(), databases: map[uint64]*database{}, skipped: map[skippedKey]struct{}{},
	}
	l.appliers.New = func() any { return &applier{loader: l} }
	return l
}

// Verify returns a loader that reads all entries as Load's loader does, with the same errors, and keeps only
// the states to which deltas may apply. It does not check how many databases there are.
func (m *Store) Verify() *Loader {
	l := m.Load()
	l.verifies = true
	return l
}

// Apply applies a chunk of Snapshot or Pass. Chunks of one snapshot can be applied by several
// goroutines at once. After them, one goroutine must apply the chunks of passes, in order. The
// error is one of packages entry and form, or store.ErrFull.
func (l *Loader) Apply(chunk []byte) error {
	a := l.appliers.Get().(*applier)
	defer l.appliers.Put(a)
	return a.apply(chunk)
}

// Done completes the load. It returns an entry.MissingError if deltas could not be applied. Called
// again, it then completes the load without them.
func (l *Loader) Done() error {
	m := l.store
	if len(l.generations) > len(m.databases) && !l.verifies {
		for n, generation := range slices.Backward(l.generations[len(m.databases):]) {
			if db := l.databases[generation]; db != nil && !db.empty() {
				last := len(m.databases) + n
				return fmt.Errorf("database %d has keys, and there are only %d databases: at least --databases %d is needed",
					last, len(m.databases), last+1)
			}
		}
		l.generations = l.generations[:len(m.databases)]
	}
	l.free(slices.Collect(maps.Keys(l.databases)))
	if err := l.missing(); err != nil {
		return err
	}
	l.publish()
	return nil
}

// missing returns an error, once, if the last deltas of keys were skipped.
func (l *Loader) missing() error {
	e := &entry.MissingError{}
	for k := range l.skipped {
		if l.databases[k.generation] == nil {
			continue
		}
		if e.Keys++; e.Keys == 1 || k.key < e.Key {
			e.Key = k.key
		}
	}
	clear(l.skipped)
	if e.Keys == 0 {
		return nil
	}
	return e
}

// publish gives the store the databases that were loaded. They replace others: during the load, a
// transaction creates the databases of the keys that its client watches, and they are empty.
func (l *Loader) publish() {
	m := l.store
	m.createMu.Lock()
	defer m.createMu.Unlock()
	m.lastGeneration.Store(l.lastGeneration)
	for n := range m.databases {
		var db *database
		if n < len(l.generations) {
			db = l.databases[l.generations[n]]
		}
		db.renumber(n)
		db.setListeners(&m.listeners)
		db.expect(0)
		m.databases[n].Store(db)
	}
}

// setListeners changes which listeners are notified. The database may be nil.
func (db *database) setListeners(to *listeners) {
	if db == nil {
		return
	}
	for i := range db.shards {
		db.shards[i].listeners = to
	}
}

// expect announces about how many keys a database will have; 0 means that no more are loaded. The
// database may be nil.
func (db *database) expect(keys uint64) {
	if db == nil {
		return
	}
	perShard := keys / shards
	perShard += perShard / 16 // hardly any shard has more than that
	for i := range db.shards {
		s := &db.shards[i]
		s.mu.Lock()
		s.index.expect(perShard)
		s.mu.Unlock()
	}
}

func (db *database) empty() bool {
	for i := range db.shards {
		if db.shards[i].records > 0 {
			return false
		}
	}
	return true
}

// setGenerations applies the entry of the databases. It frees the generations of the entry before
// that no database has any more, because their database was emptied. The first entry, which is in the
// snapshot, frees none: keys of any generation may be loaded at the same time.
func (l *Loader) setGenerations(generations []uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.generations
	l.generations = slices.Clone(generations)
	for _, generation := range generations {
		l.lastGeneration = max(l.lastGeneration, generation)
	}
	l.free(before)
}

// free frees those of some generations that no database has.
func (l *Loader) free(generations []uint64) {
	kept := map[uint64]bool{}
	for _, generation := range l.generations {
		kept[generation] = true
	}
	for _, generation := range generations {
		db := l.databases[generation]
		if db == nil || kept[generation] {
			continue
		}
		l.store.holds.flush(db)
		for i := range db.shards {
			db.shards[i].detach(&l.store.flushed)
		}
		delete(l.databases, generation)
	}
	l.store.flushed.release(&l.store.pool)
}

// database returns the database of a generation, and creates it if necessary.
func (l *Loader) database(generation uint64) *database {
	l.mu.Lock()
	defer l.mu.Unlock()
	db := l.databases[generation]
	if db == nil {
		l.store.createMu.Lock()
		db = l.store.newDatabase(0)
		l.store.createMu.Unlock()
		db.setListeners(&l.noListeners)
		db.generation.Store(generation)
		l.databases[generation] = db
		l.lastGeneration = max(l.lastGeneration, generation)
	}
	return db
}

// clearSkipped is called for an entry with the whole state of a key. During a snapshot, when
// several goroutines call it, no key has been skipped.
func (l *Loader) clearSkipped(e *entry.Entry) {
	if len(l.skipped) > 0 {
		delete(l.skipped, skippedKey{e.Generation, string(e.Key)})
	}
}

// raiseVersion makes the store continue after a loaded version, so that it uses none twice.
func (l *Loader) raiseVersion(version uint64) {
	for last := &l.store.lastVersion; ; {
		known := last.Load()
		if version <= known || last.CompareAndSwap(known, version) {
			return
		}
	}
}
