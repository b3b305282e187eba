package memory

import (
	"fmt"
	"slices"
	"sync"

	"cellserver/internal/entry"
	"cellserver/internal/form"
	"cellserver/internal/store"
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
}

type skippedKey struct {
	generation uint64
	key        string
}

// Load returns a loader. The store must be empty, and must not be written to until Done has
// returned. No listener is notified of what is loaded.
func (m *Store) Load() *Loader {
	return &Loader{
		store: m, now: m.clock.Now(), databases: map[uint64]*database{}, skipped: map[skippedKey]struct{}{},
	}
}

// Apply applies a chunk of Snapshot or Pass. Chunks of one snapshot can be applied by several
// goroutines at once. After them, one goroutine must apply the chunks of passes, in order. The
// error is one of packages entry and form, or store.ErrFull.
func (l *Loader) Apply(chunk []byte) error {
	a := applier{loader: l}
	r := entry.NewReader(chunk)
	for r.Next() {
		if err := a.apply(&r.Entry); err != nil {
			return err
		}
	}
	return r.Err()
}

// Done completes the load. It returns an entry.MissingError if deltas could not be applied. Called
// again, it then completes the load without them.
func (l *Loader) Done() error {
	m := l.store
	if len(l.generations) > len(m.databases) {
		for n, generation := range slices.Backward(l.generations[len(m.databases):]) {
			if db := l.databases[generation]; db != nil && !db.empty() {
				last := len(m.databases) + n
				return fmt.Errorf("database %d has keys, and there are only %d databases: at least --databases %d is needed",
					last, len(m.databases), last+1)
			}
		}
		l.generations = l.generations[:len(m.databases)]
	}
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

func (db *database) empty() bool {
	for i := range db.shards {
		if db.shards[i].records > 0 {
			return false
		}
	}
	return true
}

// setGenerations applies the entry of the databases. It frees the generations that no database has
// any more, because their database was emptied.
func (l *Loader) setGenerations(generations []uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.generations = append(l.generations[:0], generations...)
	kept := map[uint64]*database{}
	for _, generation := range generations {
		l.lastGeneration = max(l.lastGeneration, generation)
		if db := l.databases[generation]; db != nil {
			kept[generation] = db
		}
	}
	for generation, db := range l.databases {
		if kept[generation] == nil {
			for i := range db.shards {
				db.shards[i].detach(&l.store.flushed)
			}
		}
	}
	l.databases = kept
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

// applier applies the entries of one chunk.
type applier struct {
	loader     *Loader
	db         *database // that of the last entry
	generation uint64    // of db
	state      form.State
}

func (a *applier) apply(e *entry.Entry) error {
	if e.Kind == entry.Databases {
		a.loader.setGenerations(e.Generations)
		a.db = nil
		return nil
	}
	if a.db == nil || a.generation != e.Generation {
		a.db, a.generation = a.loader.database(e.Generation), e.Generation
	}
	if e.Kind == entry.LogDelta || e.Kind == entry.LeaseDelta {
		return a.applyDelta(e)
	}
	a.loader.clearSkipped(e)
	expires := e.Expires // or what a record has in its place
	if e.Kind == entry.Limiter {
		if err := a.state.Read(e.Bytes, 0); err != nil {
			return fmt.Errorf("key %.100q: %w", e.Key, err)
		}
		if expires = expiryOf(&a.state); a.state.Version != 0 {
			expires = store.Never // it may have expired, and a delta may extend it
		}
	}
	s, at := a.lock(e.Key)
	defer s.unlock()
	if e.Kind != entry.Gone && !s.isExpired(expires, s.lastInstant) {
		return a.write(s, at, e)
	}
	if at.record != nil {
		s.remove(at.hash, at.position)
	}
	return nil
}

// lock locks the shard of a key and finds its record.
func (a *applier) lock(key []byte) (*shard, *keySlot) {
	h := a.loader.store.hash(key)
	s := &a.db.shards[h.shard]
	s.lock()
	s.advance(a.loader.now)
	at := &keySlot{hash: h, key: key}
	at.record, at.position = s.find(h, key)
	at.live = at.record != nil
	return s, at
}

func (a *applier) write(s *shard, at *keySlot, e *entry.Entry) error {
	switch e.Kind {
	case entry.Integer:
		return s.write(at, store.Value{Integer: e.Integer, IsInteger: true}, e.Expires)
	case entry.Bytes:
		return s.write(at, store.Value{Bytes: e.Bytes}, e.Expires)
	case entry.Throttle:
		a.state = form.State{Kind: form.Throttle, TAT: e.Expires}
	}
	err := s.restore(at, &a.state)
	if err == nil {
		a.loader.raiseVersion(a.state.Version)
		s.setBaseline(at.record, &a.state)
	}
	return err
}

// applyDelta applies a delta of a log or of leases. If it cannot be applied, the key is skipped
// until an entry with its whole state follows; see delta.go.
func (a *applier) applyDelta(e *entry.Entry) error {
	s, at := a.lock(e.Key)
	defer s.unlock()
	var applied bool
	var to uint64
	if e.Kind == entry.LogDelta {
		c, err := entry.ReadLogDelta(e.Bytes)
		if err != nil {
			return fmt.Errorf("key %.100q: %w", e.Key, err)
		}
		applied, to = s.applyLogDelta(at, &c), c.To
	} else {
		c, err := entry.ReadLeaseDelta(e.Bytes)
		if err != nil {
			return fmt.Errorf("key %.100q: %w", e.Key, err)
		}
		applied, to = s.applyLeaseDelta(at, &c), c.To
	}
	a.loader.raiseVersion(to)
	if !applied {
		a.loader.skipped[skippedKey{e.Generation, string(e.Key)}] = struct{}{}
	}
	return nil
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
