package memory

import (
	"cmp"
	"context"
	"hash/maphash"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"cellserver/internal/form"
	"cellserver/internal/gcra"
	"cellserver/internal/lease"
	"cellserver/internal/limit"
	"cellserver/internal/meter"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// Store implements store.Store in memory. A database consists of shards, each with a lock of its
// own; a database that was never written to has no shards.
type Store struct {
	clock          store.Clock
	wall           *wallClock
	standings      atomic.Bool // a key has held a standing
	seed           maphash.Seed
	databases      []atomic.Pointer[database]
	createMu       sync.Mutex // held while a database is created, and by transactions on all keys
	lastOrder      int        // order of the database that was created last
	lastGeneration atomic.Uint64
	lastVersion    atomic.Uint64
	tracking       atomic.Pointer[tracking] // nil unless changes are tracked
	listeners      listeners
	pool           pool
	tokens         tokens
	holds          holdQueue
	holdMemory     atomic.Int64 // ns for which a hold that has ended is remembered
	flushed        flushedMemory
	lockTime       *meter.MaxCPUTime
	pagesPerShard  int // the largest number of pages in a shard
	sweepMu        sync.Mutex
	sweepOff       atomic.Bool   // the periodic sweep is switched off
	returnedBlocks int           // blocks returned to the system since the sweep last found none
	wakeSweep      chan struct{} // a database was flushed
	stop           chan struct{}
	closeOnce      sync.Once
	background     sync.WaitGroup
}

// shards is the number of shards of a database. It must be well above the number of cores, so that
// two of them seldom need the same lock: a step holds it for about 100 ns of the 500 ns that a call
// costs at best, so with 64 cores 13 locks are held at any time, and one call in twenty finds its
// lock taken. It must be small because an empty shard takes its first page and first block, 8 KiB:
// 2 MiB for a database in use. Sweep and growth work by the page and the bucket, so a shard may
// hold any number of keys.
const shards = 256

type database struct {
	shards [shards]shard // the first field, so that each shard starts on a cache line
	order  int           // databases are locked in this order; their numbers may change
	// generation identifies the database in the entries of Pass and Snapshot (package entry). It
	// changes when the database is emptied, while all shards are locked, and does not change when
	// databases are swapped.
	generation atomic.Uint64
}

// Options configure a store. The zero value stands for 16 databases and the machine's clock.
type Options struct {
	Databases int         // 0 means 16
	Clock     store.Clock // nil means the machine's clock
	// SweepEvery is the interval between slices of the sweep for expired records: 0 means
	// SweepInterval. If it is negative there is no sweep, and the owner must call Sweep.
	SweepEvery time.Duration
	Holds      *meter.MaxCPUTime // measures how long locks of shards are held; nil measures nothing
	MaxPages   int               // largest number of 4 KiB pages per shard, for tests; 0 means the maximum
	MaxIDs     int               // largest number of ID tokens; 0 means DefaultMaxIDs
	MaxHolds   int               // largest number of open holds; 0 means DefaultMaxHolds
	Scratch    bool              // the store has keys for one step only: see the interface Scratch
}

// New returns an empty store. Close stops its goroutines.
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
		wall:          newWallClock(o.Clock),
		seed:          maphash.MakeSeed(),
		databases:     make([]atomic.Pointer[database], o.Databases),
		lockTime:      o.Holds,
		wakeSweep:     make(chan struct{}, 1),
		stop:          make(chan struct{}),
	}
	m.tokens.max, m.tokens.flushes = cmp.Or(o.MaxIDs, DefaultMaxIDs), make([]uint64, o.Databases)
	m.holds.max, m.holds.scratch = cmp.Or(o.MaxHolds, DefaultMaxHolds), o.Scratch
	m.holdMemory.Store(int64(defaultHoldMemory))
	m.pool.mappings, m.pool.wakePrepare = new(mappings), make(chan struct{}, 1)
	runtime.AddCleanup(m, (*mappings).unmap, m.pool.mappings)
	if o.SweepEvery > 0 {
		m.background.Go(func() { m.sweepEvery(o.SweepEvery) })
		m.background.Go(func() { m.pool.prepare(m.stop) })
	}
	return m
}

// Close stops the sweep. The store can still be used.
func (m *Store) Close() error {
	m.closeOnce.Do(func() { close(m.stop) })
	m.background.Wait()
	return nil
}

// MayBlock returns false: calls wait only for locks, which other calls hold for microseconds.
func (m *Store) MayBlock() bool { return false }

func (m *Store) Databases() int     { return len(m.databases) }
func (m *Store) Clock() store.Clock { return m.clock }

// View returns a new view.
func (m *Store) View() store.View { return m.newView() }

func (m *Store) newView() *view {
	v := &viewState{memory: m}
	v.view, v.withoutGrowth = view{viewState: v}, view{viewState: v, noGrowth: true}
	v.view.Begin()
	return &v.view
}

// database returns a database, or nil if it was never written to.
func (m *Store) database(n int) *database { return m.databases[n].Load() }

// createDatabase returns a database, and creates it if it does not exist.
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
	db.generation.Store(m.lastGeneration.Add(1))
	for i := range db.shards {
		s := &db.shards[i]
		s.seed, s.database, s.listeners, s.store, s.owner = m.seed, int32(n), &m.listeners, m, db
		s.index.pool, s.pages.pool = &m.pool, &m.pool
		s.lockTime, s.pages.limit = m.lockTime, m.pagesPerShard
	}
	if t := m.tracking.Load(); t != nil {
		db.trackChanges(t)
	}
	return db
}

// ensureDatabase is createDatabase without a lock if the database exists.
func (m *Store) ensureDatabase(n int) *database {
	if db := m.database(n); db != nil {
		return db
	}
	return m.createDatabase(n)
}

// lockAll locks all shards in ascending order. Every step on several shards uses this order, so
// that no two wait for each other. The time is measured for one shard only, the last.
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

// view implements store.View.
type view struct {
	*viewState
	noGrowth bool
}

// viewState is what a view and its view without growth share.
type viewState struct {
	view, withoutGrowth view

	memory   *Store
	selected int // number of the selected database
	now      int64
	caller   int64 // number of the caller, for listeners
	observes bool  // see Observe
	hashes   hashCache

	transaction      *transaction // nil outside transactions, otherwise &transactionSpace
	transactionSpace transaction
	step             *step // set while a step on several keys runs during a pass
	decisionBuffer   []quota.Decision
	stateBuffer      *form.State      // for ReadForm
	once             []quota.Decision // of the last Once
	text             []byte           // scratch space of identify
	reply            []byte           // of the hold that Settle corrects
	holding          *holding         // that the present step makes; nil for most
	held             bool             // the present transaction has made holds
}

// WithoutGrowth returns a view for use while memory is short. Limiters continue to work where they need
// no memory, so that a flood of new keys does not switch off the limits of existing ones.
func (v *view) WithoutGrowth() store.View { return &v.withoutGrowth }

func (v *view) Now() int64 { return v.now }

func (v *view) Begin() {
	v.now = v.memory.clock.Now()
	v.hashes.reset()
}

func (v *view) Select(database int)    { v.selected = database }
func (v *view) Selected() int          { return v.selected }
func (v *view) SetCaller(caller int64) { v.caller = caller }
func (v *view) Caller() int64          { return v.caller }

// existing returns the selected database, or nil if it was never written to.
func (v *viewState) existing() *database { return v.memory.database(v.selected) }

// ensure returns the selected database, and creates it if it does not exist.
func (v *viewState) ensure() *database {
	if db := v.existing(); db != nil {
		return db
	}
	if v.transaction != nil {
		db := v.transaction.createDatabase(v.memory, v.selected, v.caller)
		v.beginStep(db, &allShards)
		return db
	}
	return v.memory.createDatabase(v.selected)
}

// hash returns the hash of a key, which Prefetch may have computed already.
func (v *viewState) hash(key []byte) keyHash {
	if v.hashes.next < v.hashes.count {
		if f := &v.hashes.keys[v.hashes.next]; f.at == address(key) && int(f.length) == len(key) {
			v.hashes.next++
			return f.hash()
		}
	}
	return v.memory.hash(key)
}

func (m *Store) hash(key []byte) keyHash { return splitHash(maphash.Bytes(m.seed, key)) }

// lockShard locks and returns a shard of the selected database, which it creates if it does not
// exist. In a transaction the shard is locked already.
func (v *view) lockShard(shard uint32) *shard {
	s := v.viewState.lockShard(shard)
	s.noGrowth = v.noGrowth
	return s
}

func (v *viewState) lockShard(shard uint32) *shard {
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
		s.unlock() // databases were swapped meanwhile
	}
}

// lockExisting is lockShard for operations that only read: it returns nil if the database was never
// written to.
func (v *view) lockExisting(shard uint32) *shard {
	if v.existing() == nil {
		return nil
	}
	return v.lockShard(shard)
}

func (v *viewState) unlockShard(s *shard) {
	s.noGrowth = false
	if v.transaction == nil {
		s.unlock()
	}
}

// Throttle makes one step of GCRA.
func (v *view) Throttle(_ context.Context, key []byte, limit gcra.Limit, quantity int64,
	mode quota.Mode) (gcra.Outcome, error) {
	h := v.hash(key)
	s := v.lockShard(h.shard)
	defer v.unlockShard(s)
	o, err := s.throttle(h, key, v.now, limit, quantity, mode)
	if quantity < 0 && err == nil {
		s.refunded(h, key, throttleRule)
	}
	return o, err
}

// throttleRule stands for the rule of any CL.THROTTLE.
var throttleRule = &limit.Rule{Kind: limit.Throttle}

// Take makes one step of any limiter of a quantity.
func (v *view) Take(_ context.Context, key []byte, rule *limit.Rule, quantity int64,
	mode quota.Mode) (quota.Decision, error) {
	h := v.hash(key)
	s := v.lockShard(h.shard)
	defer v.unlockShard(s)
	d, err := s.take(h, key, v.now, rule, quantity, mode)
	if quantity < 0 && err == nil {
		s.refunded(h, key, rule)
	}
	return d, err
}

// Acquire grants a lease.
func (v *view) Acquire(_ context.Context, key []byte, r lease.Request, maxHolders int) (quota.Decision, error) {
	h := v.hash(key)
	s := v.lockShard(h.shard)
	defer v.unlockShard(s)
	return s.acquire(h, key, v.now, r, maxHolders)
}

// Renew changes the end of a lease.
func (v *view) Renew(_ context.Context, key []byte, ttl time.Duration, holder []byte) (bool, error) {
	h := v.hash(key)
	s := v.lockExisting(h.shard)
	if s == nil {
		return false, nil
	}
	defer v.unlockShard(s)
	return s.renew(h, key, v.now, ttl, holder)
}

// Release ends a lease.
func (v *view) Release(_ context.Context, key []byte, holder []byte) (int64, error) {
	h := v.hash(key)
	s := v.lockExisting(h.shard)
	if s == nil {
		return 0, nil
	}
	defer v.unlockShard(s)
	return s.release(h, key, v.now, holder)
}

// Holders returns the leases of a key.
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

// Inspect returns the entry of a key, and its state by name. A key that has only open holds has fields, too.
func (v *view) Inspect(_ context.Context, key []byte) (e store.Entry, fields []store.Field, err error) {
	h := v.hash(key)
	s := v.lockExisting(h.shard)
	if s == nil {
		return store.Entry{}, nil, nil
	}
	defer v.unlockShard(s)
	v.now = s.advance(v.now)
	r, _ := s.findLive(h, key, v.now)
	if e = s.entry(r, v.now); e.Kind != limit.None {
		fields = s.fields(r, v.now)
	}
	if k := s.held(h, key, v.now); k.record != nil {
		fields = store.AppendHoldFields(fields, k.Len(), k.Held())
	}
	return e, fields, nil
}

// Lookup returns the entry of a key.
func (v *view) Lookup(_ context.Context, key []byte) (store.Entry, error) {
	h := v.hash(key)
	s := v.lockExisting(h.shard)
	if s == nil {
		return store.Entry{}, nil
	}
	defer v.unlockShard(s)
	v.now = s.advance(v.now) // so that the time to live, counted from here, never exceeds the one that was set
	r, _ := s.findLive(h, key, v.now)
	return s.entry(r, v.now), nil
}

// keysPerStep bounds the number of keys of one step, so that it holds its locks for well under a
// millisecond. Calls with more keys take several steps.
const keysPerStep = 1024

// inChunks calls step for at most keysPerStep of the keys at a time, and returns the sum.
func (v *viewState) inChunks(keys [][]byte, step func([][]byte) int) (n int) {
	if v.existing() == nil {
		return 0
	}
	for piece := range slices.Chunk(keys, keysPerStep) {
		n += step(piece)
	}
	return n
}

// Count returns how many of the keys exist, each counted as often as it is named.
func (v *view) Count(_ context.Context, keys [][]byte) (int, error) {
	return v.inChunks(keys, func(keys [][]byte) int { return v.count(keys, false) }), nil
}

func (v *viewState) count(keys [][]byte, use bool) (n int) {
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

// Delete removes keys.
func (v *view) Delete(_ context.Context, keys [][]byte) (int, error) {
	return v.inChunks(keys, v.delete), nil
}

func (v *viewState) delete(keys [][]byte) (n int) {
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

// Size returns the number of records of the selected database at one instant.
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
