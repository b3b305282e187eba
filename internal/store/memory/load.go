package memory

import (
	"fmt"
	"sync"

	"cellserver/internal/entry"
	"cellserver/internal/form"
	"cellserver/internal/store"
)

// Loader fills an empty store with the entries of a snapshot and of passes.
type Loader struct {
	store    *Store
	now      int64 // keys that have expired by then are left out
	mu       sync.Mutex
	contents map[uint64]*database
	mapping  []uint64 // the content of each database, as the last pass says
	largest  uint64   // content
	// skipped are the keys whose last changes did not follow what was loaded before.
	skipped map[skippedKey]struct{}
	silent  listeners // of the databases until they are complete: clients must not be told of changes
}

type skippedKey struct {
	content uint64
	key     string
}

// Load returns a loader. The store must be empty, and must not be written to until Done has returned.
// No listener is notified of what is loaded.
func (m *Store) Load() *Loader {
	return &Loader{
		store: m, now: m.clock.Now(), contents: map[uint64]*database{}, skipped: map[skippedKey]struct{}{},
	}
}

// Apply applies a chunk of Snapshot or Pass. Chunks of one snapshot can be applied by several
// goroutines at once. After them, chunks of passes must be applied in order, by one. The error is
// one of packages entry and form, or store.ErrFull.
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

// Done completes the load. If the error is an entry.MissingError, it may be called again: then the
// keys hold what could be loaded of them.
func (l *Loader) Done() error {
	m := l.store
	if len(l.mapping) > len(m.databases) {
		for n, content := range l.mapping[len(m.databases):] {
			if db := l.contents[content]; db != nil && !db.empty() {
				return fmt.Errorf("database %d has keys, and there are only %d databases", len(m.databases)+n, len(m.databases))
			}
		}
		l.mapping = l.mapping[:len(m.databases)]
	}
	if err := l.missing(); err != nil {
		return err
	}
	l.publish()
	return nil
}

// missing returns an error, once, if the last changes of keys were skipped.
func (l *Loader) missing() error {
	e := &entry.MissingError{}
	for k := range l.skipped {
		if l.contents[k.content] == nil {
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

// publish gives the store the databases that were loaded. There may be others: a transaction that
// only watches keys creates their databases.
func (l *Loader) publish() {
	m := l.store
	m.createMu.Lock()
	defer m.createMu.Unlock()
	m.lastContent.Store(l.largest)
	for n := range m.databases {
		var db *database
		if n < len(l.mapping) {
			db = l.contents[l.mapping[n]]
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

// keep drops the contents that are in no database any more.
func (l *Loader) keep(mapping []uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mapping = append(l.mapping[:0], mapping...)
	kept := map[uint64]*database{}
	for _, content := range mapping {
		l.largest = max(l.largest, content)
		if db := l.contents[content]; db != nil {
			kept[content] = db
		}
	}
	for content, db := range l.contents {
		if kept[content] == nil {
			for i := range db.shards {
				db.shards[i].detach(&l.store.flushed)
			}
		}
	}
	l.contents = kept
	l.store.flushed.release(&l.store.pool)
}

// database returns the database that will hold a content.
func (l *Loader) database(content uint64) *database {
	l.mu.Lock()
	defer l.mu.Unlock()
	db := l.contents[content]
	if db == nil {
		l.store.createMu.Lock()
		db = l.store.newDatabase(0)
		l.store.createMu.Unlock()
		db.setListeners(&l.silent)
		db.content.Store(content)
		l.contents[content] = db
		l.largest = max(l.largest, content)
	}
	return db
}

// applier applies the entries of one chunk.
type applier struct {
	loader  *Loader
	db      *database // of the last entry
	content uint64
	state   form.State
}

func (a *applier) apply(e *entry.Entry) error {
	if e.Kind == entry.Databases {
		a.loader.keep(e.Contents)
		a.db = nil
		return nil
	}
	if a.db == nil || a.content != e.Content {
		a.db, a.content = a.loader.database(e.Content), e.Content
	}
	if e.Kind == entry.Log || e.Kind == entry.Holders {
		return a.applyChanges(e)
	}
	a.loader.unskip(e)
	expires := e.Expires
	if e.Kind == entry.Limiter {
		if err := a.state.Read(e.Bytes, 0); err != nil {
			return fmt.Errorf("key %.100q: %w", e.Key, err)
		}
		if expires = a.state.Expires(); a.state.Version != 0 {
			expires = store.Never // changes may follow, even if it has expired
		}
	}
	s, at := a.lock(e.Key)
	defer s.unlock()
	if e.Kind != entry.Gone && expires > s.lastInstant {
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
		s.setWritten(at.record, &a.state)
	}
	return err
}

// applyChanges applies changes of a log or of leases. If they do not follow what the key holds, the
// whole state must come later.
func (a *applier) applyChanges(e *entry.Entry) error {
	s, at := a.lock(e.Key)
	defer s.unlock()
	var applied bool
	var to uint64
	if e.Kind == entry.Log {
		c, err := entry.ReadLog(e.Bytes)
		if err != nil {
			return fmt.Errorf("key %.100q: %w", e.Key, err)
		}
		applied, to = s.applyLog(at, &c), c.To
	} else {
		c, err := entry.ReadHolders(e.Bytes)
		if err != nil {
			return fmt.Errorf("key %.100q: %w", e.Key, err)
		}
		applied, to = s.applyLeases(at, &c), c.To
	}
	a.loader.raiseVersion(to)
	if !applied {
		a.loader.skipped[skippedKey{e.Content, string(e.Key)}] = struct{}{}
	}
	return nil
}

// unskip is called for an entry with the whole content of a key. Changes are loaded by one
// goroutine, after the entries that several may load.
func (l *Loader) unskip(e *entry.Entry) {
	if len(l.skipped) > 0 {
		delete(l.skipped, skippedKey{e.Content, string(e.Key)})
	}
}

// raiseVersion makes the versions that the store will use larger than a loaded one.
func (l *Loader) raiseVersion(version uint64) {
	for last := &l.store.lastVersion; ; {
		known := last.Load()
		if version <= known || last.CompareAndSwap(known, version) {
			return
		}
	}
}
