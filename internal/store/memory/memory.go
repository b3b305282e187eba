package memory

import (
	"context"
	"hash/maphash"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"cellserver/internal/gcra"
	"cellserver/internal/lease"
	"cellserver/internal/meter"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// Store implements store.Store. A database is made of shards, each with its own lock; one that has
// never been written to has no shards yet.
type Store struct {
	clock          store.Clock
	seed           maphash.Seed
	databases      []atomic.Pointer[database]
	createMu       sync.Mutex // held while a database's shards are made, or it gets another number
	lastOrder      int        // of the database that was made last
	listeners      listeners
	pool           pool
	flushed        flushedMemory
	lockTime       *meter.MaxCPUTime
	pagesPerShard  int // of a shard
	sweepMu        sync.Mutex
	sweepOff       atomic.Bool // the sweep is off
	returnedBlocks int         // blocks given back to the system since the sweep last found none
	stop           chan struct{}
	closeOnce      sync.Once
	background     sync.WaitGroup
}

// shards is how many parts a database has. It must be well above the number of cores, so that two
// of them seldom want the same lock: a step holds it for about 100 ns of the 500 ns that a call
// costs at best, so of 64 cores 13 hold one at any time, and the next finds its own taken once in
// twenty. It must stay small, because an empty shard costs its first page and first block, 8 KiB: 2
// MiB a database in use. The sweep and growth work by the page and the bucket, so a shard may hold
// any number of keys.
const shards = 256

type database struct {
	shards [shards]shard // first, so that each starts on a cache line
	order  int           // in which databases are locked: its number may change
}

// Options are what a memory store can be told; the zero value is a store of 16 databases on the
// machine's clock.
type Options struct {
	Databases int         // 16 if 0
	Clock     store.Clock // the machine's if nil
	// SweepEvery is how often a slice of the table is looked through for expired records:
	// SweepInterval if 0; never if negative, and then the owner calls Sweep.
	SweepEvery time.Duration
	Holds      *meter.MaxCPUTime // learns how long shards are locked; nil for nobody
	MaxPages   int               // of 4 KiB, of a shard: as many as can be numbered if 0. For tests
}

// New makes an empty store. Close ends its sweep.
func New(o Options) *Store {
	if o.Databases == 0 {
		o.Databases = 16
	}
	if o.Clock == nil {
		o.Clock = store.NewClock()
	}
	if o.SweepEvery == 0 {
		o.SweepEvery = SweepInterval
	}
	if o.MaxPages == 0 {
		o.MaxPages = maxPages
	}
	m := &Store{
		pagesPerShard: o.MaxPages,
		clock:         o.Clock,
		seed:          maphash.MakeSeed(),
		databases:     make([]atomic.Pointer[database], o.Databases),
		lockTime:      o.Holds,
		stop:          make(chan struct{}),
	}
	m.pool.mappings, m.pool.wakePrepare = new(mappings), make(chan struct{}, 1)
	runtime.AddCleanup(m, (*mappings).unmap, m.pool.mappings)
	if o.SweepEvery > 0 {
		m.background.Go(func() { m.sweepEvery(o.SweepEvery) })
		m.background.Go(func() { m.pool.prepare(m.stop) })
	}
	return m
}

// Close ends the sweep; the store still answers.
func (m *Store) Close() error {
	m.closeOnce.Do(func() { close(m.stop) })
	m.background.Wait()
	return nil
}

// MayBlock returns false: calls wait only for locks that others hold for microseconds.
func (m *Store) MayBlock() bool { return false }

func (m *Store) Databases() int     { return len(m.databases) }
func (m *Store) Clock() store.Clock { return m.clock }

// View opens a caller's window on the store.
func (m *Store) View() store.View { return m.newView() }

func (m *Store) newView() *view {
	v := &view{memory: m}
	v.Begin()
	return v
}

// database is the shards of a database, nil if it was never written to.
func (m *Store) database(n int) *database { return m.databases[n].Load() }

// createDatabase is the shards of a database, made if need be.
func (m *Store) createDatabase(n int) *database {
	m.createMu.Lock()
	defer m.createMu.Unlock()
	if db := m.database(n); db != nil {
		return db
	}
	db := m.newDatabase(n)
	m.databases[n].Store(db)
	return db
}

func (m *Store) newDatabase(n int) *database {
	m.lastOrder++
	db := &database{order: m.lastOrder}
	for i := range db.shards {
		s := &db.shards[i]
		s.seed, s.database, s.listeners = m.seed, int32(n), &m.listeners
		s.index.pool, s.pages.pool = &m.pool, &m.pool
		s.lockTime, s.pages.limit = m.lockTime, m.pagesPerShard
	}
	return db
}

// ensureDatabase is a database, made if need be.
func (m *Store) ensureDatabase(n int) *database {
	if db := m.database(n); db != nil {
		return db
	}
	return m.createDatabase(n)
}

// lockAll takes every shard's lock in ascending order, as every step on several shards does: so no
// two wait in a ring. The hold is measured once, at the last.
func (db *database) lockAll() {
	for i := range shards - 1 {
		db.shards[i].mu.Lock()
	}
	db.shards[shards-1].lock()
}

func (db *database) unlockAll() {
	for i := range shards - 1 {
		db.shards[i].mu.Unlock()
	}
	db.shards[shards-1].unlock()
}

// view is a session's window on a Store.
type view struct {
	memory   *Store
	selected int // of the selected database
	now      int64
	caller   int64 // who calls
	hashes   hashCache

	transaction      *transaction // nil outside of one, else locking
	transactionSpace transaction
	decisionBuffer   *[decisionBufferSize]quota.Decision
}

func (v *view) Now() int64 { return v.now }

func (v *view) Begin() {
	v.now = v.memory.clock.Now()
	v.hashes.reset()
}

func (v *view) Select(database int)    { v.selected = database }
func (v *view) Selected() int          { return v.selected }
func (v *view) SetCaller(caller int64) { v.caller = caller }
func (v *view) Caller() int64          { return v.caller }

// existing is the selected database, nil if nobody has written to it.
func (v *view) existing() *database { return v.memory.database(v.selected) }

// ensure is the selected database, made if need be.
func (v *view) ensure() *database {
	if db := v.existing(); db != nil {
		return db
	}
	if v.transaction != nil {
		return v.transaction.createDatabase(v.memory, v.selected, v.caller)
	}
	return v.memory.createDatabase(v.selected)
}

// hash is a key's hash, which Prefetch may know.
func (v *view) hash(key []byte) keyHash {
	if v.hashes.next < v.hashes.count {
		if f := &v.hashes.keys[v.hashes.next]; f.at == address(key) && f.length == len(key) {
			v.hashes.next++
			return f.keyHash
		}
	}
	return v.memory.hash(key)
}

func (m *Store) hash(key []byte) keyHash { return splitHash(maphash.Bytes(m.seed, key)) }

// lockShard locks a shard of the selected database, which is made if need be. In a transaction it is
// locked already.
func (v *view) lockShard(shard uint32) *shard {
	if v.transaction != nil {
		return v.transaction.shard(v.ensure(), shard)
	}
	for {
		db := v.ensure()
		s := &db.shards[shard]
		s.lock()
		if s.caller = v.caller; v.existing() == db {
			return s
		}
		s.unlock() // the database has another number by now
	}
}

// lockExisting is enter for who only looks: nil if nobody has written to the database.
func (v *view) lockExisting(shard uint32) *shard {
	if v.existing() == nil {
		return nil
	}
	return v.lockShard(shard)
}

func (v *view) unlockShard(s *shard) {
	if v.transaction == nil {
		s.unlock()
	}
}

// Throttle routes: hash, shard, lock, step.
func (v *view) Throttle(_ context.Context, key []byte, limit gcra.Limit, quantity int64,
	mode quota.Mode) (gcra.Outcome, error) {
	h := v.hash(key)
	s := v.lockShard(h.shard)
	defer v.unlockShard(s)
	return s.throttle(h, key, v.now, limit, quantity, mode)
}

// Take is Throttle for any limiter.
func (v *view) Take(_ context.Context, key []byte, rule *store.Rule, quantity int64,
	mode quota.Mode) (quota.Decision, error) {
	h := v.hash(key)
	s := v.lockShard(h.shard)
	defer v.unlockShard(s)
	return s.take(h, key, v.now, rule, quantity, mode)
}

// Acquire gives a holder permits.
func (v *view) Acquire(_ context.Context, key []byte, r lease.Request, maxHolders int) (quota.Decision, error) {
	h := v.hash(key)
	s := v.lockShard(h.shard)
	defer v.unlockShard(s)
	return s.acquire(h, key, v.now, r, maxHolders)
}

// Renew moves the end of a lease.
func (v *view) Renew(_ context.Context, key []byte, ttl time.Duration, holder []byte) (bool, error) {
	h := v.hash(key)
	s := v.lockExisting(h.shard)
	if s == nil {
		return false, nil
	}
	defer v.unlockShard(s)
	return s.renew(h, key, v.now, ttl, holder)
}

// Release takes permits back.
func (v *view) Release(_ context.Context, key []byte, holder []byte) (int64, error) {
	h := v.hash(key)
	s := v.lockExisting(h.shard)
	if s == nil {
		return 0, nil
	}
	defer v.unlockShard(s)
	return s.release(h, key, v.now, holder)
}

// Holders lists leases.
func (v *view) Holders(_ context.Context, key []byte) ([]lease.Lease, error) {
	h := v.hash(key)
	s := v.lockExisting(h.shard)
	if s == nil {
		return nil, nil
	}
	defer v.unlockShard(s)
	v.now = s.advance(v.now)
	return s.holders(h, key, v.now)
}

// Inspect tells what stands at key, and its state.
func (v *view) Inspect(_ context.Context, key []byte) (e store.Entry, fields []store.Field, err error) {
	h := v.hash(key)
	s := v.lockExisting(h.shard)
	if s == nil {
		return store.Entry{}, nil, nil
	}
	defer v.unlockShard(s)
	v.now = s.advance(v.now)
	r, _ := s.findLive(h, key, v.now)
	if e = r.entry(v.now); e.Kind != store.None {
		fields = s.fields(r, v.now)
	}
	return e, fields, nil
}

// Lookup tells what stands at key at the batch's instant.
func (v *view) Lookup(_ context.Context, key []byte) (store.Entry, error) {
	h := v.hash(key)
	s := v.lockExisting(h.shard)
	if s == nil {
		return store.Entry{}, nil
	}
	defer v.unlockShard(s)
	v.now = s.advance(v.now) // so that what is left of the key, counted from there, is never more than it was given
	r, _ := s.findLive(h, key, v.now)
	return r.entry(v.now), nil
}

// keysPerStep is how many keys one step is about at most, so that it holds its locks for well under a
// millisecond. A call with more is made in several steps.
const keysPerStep = 1024

// inChunks calls step for the keys, in pieces of keysAStep.
func (v *view) inChunks(keys [][]byte, step func([][]byte) int) (n int) {
	if v.existing() == nil {
		return 0
	}
	for piece := range slices.Chunk(keys, keysPerStep) {
		n += step(piece)
	}
	return n
}

// Count says how many of the keys exist, each counted as often as it is named.
func (v *view) Count(_ context.Context, keys [][]byte) (int, error) {
	return v.inChunks(keys, func(keys [][]byte) int { return v.count(keys, false) }), nil
}

func (v *view) count(keys [][]byte, use bool) (n int) {
	db, locked, now := v.lock(keys)
	defer v.unlock(db, locked)
	for _, key := range keys {
		h := v.hash(key)
		s := &db.shards[h.shard]
		if r, _ := s.findLive(h, key, s.advance(now)); r != nil {
			if n++; use {
				r.touch(now)
			}
		}
	}
	return n
}

// Delete removes the keys.
func (v *view) Delete(_ context.Context, keys [][]byte) (int, error) {
	return v.inChunks(keys, v.delete), nil
}

func (v *view) delete(keys [][]byte) (n int) {
	db, locked, now := v.lock(keys)
	defer v.unlock(db, locked)
	for _, key := range keys {
		h := v.hash(key)
		if db.shards[h.shard].delete(h, key, now) {
			n++
		}
	}
	return n
}

// Size counts the records of the selected database at one instant.
func (v *view) Size(context.Context) (n int, err error) {
	if v.existing() == nil {
		return 0, nil
	}
	db, _ := v.lockShards(allShards)
	defer v.unlock(db, allShards)
	for i := range db.shards {
		n += db.shards[i].records
	}
	return n, nil
}
