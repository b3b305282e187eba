package memory

import (
	"context"
	"slices"

	"cellserver/internal/store"
)

// A transaction holds the locks of all keys that its steps touch, from before the first step until
// after the last; the view takes no lock in between. All transactions take locks in the same order:
// databases by age, and within each its shards in ascending order.
type transaction struct {
	locked []lockedDatabase
	all    bool // all shards of all databases are locked; only this transaction can create or swap databases
}

type lockedDatabase struct {
	db  *database
	set lockSet
}

// Atomically runs steps as one step. Its instant is not before any that the shards have seen.
func (v *view) Atomically(_ context.Context, keys []store.KeyRef, all bool, steps func() error) error {
	if v.transaction != nil {
		return steps()
	}
	m := v.memory
	if all {
		m.createMu.Lock()
		defer m.createMu.Unlock()
	}
	for !v.lockKeys(keys, all) {
		v.transactionSpace.unlock()
	}
	v.transaction = &v.transactionSpace
	for i := range v.transaction.locked {
		v.beginStep(v.transaction.locked[i].db, &v.transaction.locked[i].set)
	}
	defer v.endTransaction()
	return steps()
}

func (v *view) endTransaction() {
	v.transaction = nil
	v.endStep()
	v.transactionSpace.unlock()
	if v.held {
		v.held = false
		v.memory.endHolds(v.now, holdsPerCall)
	}
}

// lockKeys takes the locks. It returns false if databases were swapped meanwhile; then the locks
// must be released.
func (v *view) lockKeys(keys []store.KeyRef, all bool) bool {
	t := &v.transactionSpace
	t.all = all
	if all {
		keys = nil // all includes them
		for n := range v.memory.databases {
			if db := v.memory.database(n); db != nil {
				*t.setOf(db) = allShards
			}
		}
	}
	for _, p := range keys {
		t.setOf(v.memory.ensureDatabase(p.Database)).add(v.memory.hash(p.Key).shard)
	}
	slices.SortFunc(t.locked, func(a, b lockedDatabase) int { return a.db.order - b.db.order })
	for i := range t.locked {
		v.now = t.locked[i].set.lock(t.locked[i].db, v.now, v.caller, i == 0)
	}
	for _, p := range keys {
		if set := t.find(v.memory.database(p.Database)); set == nil || !set.has(v.memory.hash(p.Key).shard) {
			return false
		}
	}
	return true
}

// setOf returns the set of a database's shards to be locked.
func (t *transaction) setOf(db *database) *lockSet {
	if set := t.find(db); set != nil {
		return set
	}
	t.locked = append(t.locked, lockedDatabase{db: db})
	return &t.locked[len(t.locked)-1].set
}

func (t *transaction) find(db *database) *lockSet {
	for i := range t.locked {
		if t.locked[i].db == db {
			return &t.locked[i].set
		}
	}
	return nil
}

// unlock releases all locks. It keeps the memory for the list if it has one database.
func (t *transaction) unlock() {
	for i := range t.locked {
		t.locked[i].set.unlock(t.locked[i].db, i == 0)
	}
	if len(t.locked) > 1 {
		t.locked = nil
	}
	t.locked = t.locked[:0]
}

// shard returns a locked shard. A step that touches any other is a programming error, and must not
// do so without a lock.
func (t *transaction) shard(db *database, n uint32) *shard {
	if set := t.find(db); set == nil || !set.has(n) {
		panic("a step of a transaction touches a key that was not passed to Atomically")
	}
	return &db.shards[n]
}

// requireLocked panics unless the transaction has locked these shards.
func (t *transaction) requireLocked(db *database, set lockSet) {
	locked := t.find(db)
	for word := range set {
		if locked == nil || set[word]&^locked[word] != 0 {
			panic("a step of a transaction touches keys that were not passed to Atomically")
		}
	}
}

// createDatabase creates a database for a step, with all shards locked.
func (t *transaction) createDatabase(m *Store, n int, caller int64) *database {
	if !t.all {
		panic("a step of a transaction touches a database that was not passed to Atomically")
	}
	db := m.newDatabase(n)
	*t.setOf(db) = allShards
	allShards.lock(db, 0, caller, len(t.locked) == 1)
	m.databases[n].Store(db)
	return db
}

// Swap exchanges the contents of two databases.
func (v *view) Swap(ctx context.Context, a, b int) error {
	if a == b {
		return nil
	}
	return v.Atomically(ctx, nil, true, func() error { return v.swap(a, b) })
}

func (v *view) swap(a, b int) error {
	first, second := v.memory.database(a), v.memory.database(b)
	v.memory.databases[a].Store(second)
	v.memory.databases[b].Store(first)
	first.renumber(b)
	second.renumber(a)
	v.memory.listeners.notify(a, nil, store.Flushed, v.caller)
	v.memory.listeners.notify(b, nil, store.Flushed, v.caller)
	return nil
}

// renumber changes the number of a database, which may be nil.
func (db *database) renumber(n int) {
	if db == nil {
		return
	}
	for i := range db.shards {
		db.shards[i].database = int32(n)
	}
}
