package memory

import (
	"context"
	"slices"

	"cellserver/internal/store"
)

// A transaction holds the locks of all places that its steps touch, from before the first step to
// after the last; meanwhile the view takes none. Locks are taken in one order by everybody:
// databases by age, and in each its shards upwards.
type transaction struct {
	locked []lockedDatabase
	all    bool // of every database, and none is made or gets another number meanwhile but by steps
}

type lockedDatabase struct {
	db  *database
	set lockSet
}

// Atomically runs steps as one. Their instant is one, too: not before what any of the shards has
// seen.
func (v *view) Atomically(_ context.Context, places []store.KeyRef, all bool, steps func() error) error {
	if v.transaction != nil {
		return steps()
	}
	m := v.memory
	if all {
		m.createMu.Lock()
		defer m.createMu.Unlock()
	}
	for !v.lockPlaces(places, all) {
		v.transactionSpace.unlock()
	}
	v.transaction = &v.transactionSpace
	defer v.endTransaction()
	return steps()
}

func (v *view) endTransaction() {
	v.transaction = nil
	v.transactionSpace.unlock()
}

// lockPlaces takes the locks; it is false if a database got another number meanwhile.
func (v *view) lockPlaces(places []store.KeyRef, all bool) bool {
	t := &v.transactionSpace
	t.all = all
	if all {
		places = nil // they are among all
		for n := range v.memory.databases {
			if db := v.memory.database(n); db != nil {
				*t.setOf(db) = allShards
			}
		}
	}
	for _, p := range places {
		t.setOf(v.memory.ensureDatabase(p.Database)).add(v.memory.hash(p.Key).shard)
	}
	slices.SortFunc(t.locked, func(a, b lockedDatabase) int { return a.db.order - b.db.order })
	for i := range t.locked {
		v.now = t.locked[i].set.lock(t.locked[i].db, v.now, v.caller, i == 0)
	}
	for _, p := range places {
		if set := t.find(v.memory.database(p.Database)); set == nil || !set.has(v.memory.hash(p.Key).shard) {
			return false
		}
	}
	return true
}

// setOf is the set of a database's shards that are, or will be, locked.
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

// unlock gives all locks back, and keeps the room to list those of one database.
func (t *transaction) unlock() {
	for i := range t.locked {
		t.locked[i].set.unlock(t.locked[i].db, i == 0)
	}
	if len(t.locked) > 1 {
		t.locked = nil
	}
	t.locked = t.locked[:0]
}

// shard is one that the transaction has locked. A step that touches another is a mistake, and must
// not do it without a lock.
func (t *transaction) shard(db *database, n uint32) *shard {
	if set := t.find(db); set == nil || !set.has(n) {
		panic("a step of a transaction touches a key that it has not named")
	}
	return &db.shards[n]
}

// requireLocked panics unless the transaction has locked these shards.
func (t *transaction) requireLocked(db *database, set lockSet) {
	locked := t.find(db)
	for word := range set {
		if locked == nil || set[word]&^locked[word] != 0 {
			panic("a step of a transaction touches keys that it has not named")
		}
	}
}

// createDatabase makes a database for a step, locked as the others are.
func (t *transaction) createDatabase(m *Store, n int, caller int64) *database {
	if !t.all {
		panic("a step of a transaction touches a database that it has not named")
	}
	db := m.newDatabase(n)
	*t.setOf(db) = allShards
	allShards.lock(db, 0, caller, len(t.locked) == 1)
	m.databases[n].Store(db)
	return db
}

// Swap has two databases change their numbers.
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

// renumber has the shards of a database, if it was made, tell its new number.
func (db *database) renumber(n int) {
	if db == nil {
		return
	}
	for i := range db.shards {
		db.shards[i].database = int32(n)
	}
}
