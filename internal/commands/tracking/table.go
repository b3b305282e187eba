// Package tracking implements client-side caching (CLIENT TRACKING): it records which client has
// read which key, and sends the client an invalidation when the key changes. As in Redis, keys of
// the same name in different databases count as one key. Changes are collected while shards are
// locked, and sent after they are unlocked: see Table.SendPending.
package tracking

import (
	"hash/maphash"
	"sync"
	"sync/atomic"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/store"
)

// Table holds the keys that clients have read, and the changes that are still to be sent.
type Table struct {
	Store interface {
		Subscribe(listen store.Listener) (unsubscribe func())
	}
	Clients *client.Registry
	Busy    *atomic.Int32 // counts goroutines that need the event loops to yield

	seed    maphash.Seed
	parts   [trackingParts]trackingPart
	maxKeys atomic.Int64
	keys    atomic.Int64
	items   atomic.Int64 // number of readers of all keys
	bytes   atomic.Int64 // memory of all keys
	expired atomic.Int64 // keys that calls have found expired

	trackersMu   sync.Mutex // guards trackers, broadcasts and unsubscribe
	trackers     map[int64]*client.Tracker
	broadcasts   map[string]map[int64]bool // by prefix, the clients in broadcasting mode
	tracking     atomic.Int64              // the number of trackers
	broadcasting atomic.Int64              // the number of trackers in broadcasting mode
	prefixes     atomic.Int64              // the number of prefixes
	unsubscribe  func()                    // ends the subscription to the store; nil while there are no trackers

	mu         sync.Mutex // guards pending and sending; taken with a key locked, so it is held for microseconds
	pending    changes
	hasPending atomic.Bool // pending is not empty
	sending    bool        // a goroutine sends the pending changes
}

// trackingParts is the number of parts of the table. Each has its own lock, so that clients that
// change keys seldom wait for one another.
const trackingParts = 64

type trackingPart struct {
	mu    sync.Mutex
	count atomic.Int64
	items int64 // number of readers of its keys
	bytes int64
	keys  map[string]readers
}

// readers are the IDs of the clients that have read a key. Most keys have one.
type readers struct {
	first int64
	more  map[int64]bool
}

func (r readers) count() int { return 1 + len(r.more) }

func (r readers) has(id int64) bool { return r.first == id || r.more[id] }

// The bounds of the table. Beyond them, a key is evicted: its readers receive an invalidation, as
// if it had changed.
const (
	defaultMaxTracked = 1_000_000
	maxTrackedBytes   = 256 << 20
	keyOverhead       = 128 // bytes that a key takes in addition to its length
	readerOverhead    = 32  // bytes that each further reader takes
)

// Init makes the table ready. It holds up to maxKeys keys, or any number if that is 0.
func (t *Table) Init(maxKeys int) {
	t.seed = maphash.MakeSeed()
	t.maxKeys.Store(int64(maxKeys))
	t.trackers, t.broadcasts = make(map[int64]*client.Tracker), make(map[string]map[int64]bool)
}

// setTracker starts, changes or ends the tracking of a client; wanted is nil to end it. Only the client's
// own session may call it.
func (t *Table) setTracker(c *client.Client, wanted *client.Tracker) {
	before := c.Tracker.Load()
	if before == nil && wanted == nil {
		return
	}
	c.Charge(wanted.Bytes() - before.Bytes())
	t.SendPending(false) // earlier changes are for the clients that tracked keys then
	t.trackersMu.Lock()
	defer t.trackersMu.Unlock()
	t.stop(c.ID, before)
	if wanted != nil {
		t.start(c.ID, wanted)
	}
	t.tracking.Store(int64(len(t.trackers)))
	t.prefixes.Store(int64(len(t.broadcasts)))
	c.Tracker.Store(wanted)
	t.subscribe(len(t.trackers) > 0)
}

// setCallTracker is setTracker for the client of a call. From now on, the reads of that session are
// recorded. If tracking has ended and this is undone, the client has to discard its cache, because
// it may have missed changes.
func (t *Table) setCallTracker(c *command.Call, wanted *client.Tracker) {
	before, caching := c.Client.Tracker.Load(), c.Caching
	t.trackCalls(c, wanted, caching && wanted != nil)
	c.OnRollback(func() {
		if t.trackCalls(c, before, caching); before != nil && wanted == nil {
			t.sendTo(c.Client.ID, &invalidation{})
		}
	})
}

// trackCalls starts, changes or ends the tracking of the client of a call.
func (t *Table) trackCalls(c *command.Call, wanted *client.Tracker, caching bool) {
	t.setTracker(c.Client, wanted)
	c.Middleware, c.Caching = nil, caching
	if wanted != nil {
		c.Middleware = t.run
	}
}

// subscribe subscribes to the changes of the store, or ends the subscription.
func (t *Table) subscribe(on bool) {
	switch {
	case on && t.unsubscribe == nil:
		t.unsubscribe = t.Store.Subscribe(t.onChange)
	case !on && t.unsubscribe != nil:
		t.unsubscribe()
		t.unsubscribe = nil
		t.removeAll()
	}
}

func (t *Table) start(id int64, wanted *client.Tracker) {
	t.trackers[id] = wanted
	if wanted.Broadcast {
		t.broadcasting.Add(1)
	}
	for _, prefix := range wanted.Prefixes {
		if t.broadcasts[prefix] == nil {
			t.broadcasts[prefix] = make(map[int64]bool)
		}
		t.broadcasts[prefix][id] = true
	}
}

func (t *Table) stop(id int64, before *client.Tracker) {
	if before == nil {
		return
	}
	delete(t.trackers, id)
	if before.Broadcast {
		t.broadcasting.Add(-1)
	}
	for _, prefix := range before.Prefixes {
		if delete(t.broadcasts[prefix], id); len(t.broadcasts[prefix]) == 0 {
			delete(t.broadcasts, prefix)
		}
	}
}

// removeAll removes all keys, without a loop over them: there may be a million, and all keys of the
// store may be locked meanwhile.
func (t *Table) removeAll() {
	if t.keys.Load() == 0 {
		return
	}
	for i := range t.parts {
		p := &t.parts[i]
		p.mu.Lock()
		t.count(p, -p.count.Load(), -p.items, -p.bytes)
		p.keys = nil
		p.mu.Unlock()
	}
}

func (t *Table) part(key []byte) *trackingPart {
	return &t.parts[maphash.Bytes(t.seed, key)%trackingParts]
}

// run runs the row of a call and records its reads. They are recorded before the row runs, so that
// no change is missed, and again afterwards if the call has found expired keys: these were removed
// from the table, but the client has cached that they do not exist, and must be notified when they
// are created.
func (t *Table) run(c *command.Call) error {
	t.recordReads(c)
	before := t.expired.Load()
	err := c.Row.Run(c)
	if t.expired.Load() != before && c.Client.Tracker.Load() != nil {
		t.recordReads(c)
	}
	return err
}

// recordReads records the keys that a call reads. A client that has disconnected meanwhile, while its
// call ran outside the event loop, does not track any more.
func (t *Table) recordReads(c *command.Call) {
	how := c.Client.Tracker.Load()
	if how == nil || c.Row.Flags&command.ReadOnly == 0 || how.Broadcast || how.OptIn && !c.Caching || how.OptOut &&
		c.Caching {
		return
	}
	keys, _ := c.Row.KeysOf(nil, c.Words)
	for _, key := range keys {
		t.record(key, c.View.Caller())
	}
}

// record adds a client to the readers of a key.
func (t *Table) record(key []byte, id int64) {
	p := t.part(key)
	p.mu.Lock()
	defer p.mu.Unlock()
	r, known := p.keys[string(key)]
	switch {
	case known && r.has(id):
		return
	case known:
		if r.more == nil {
			r.more = make(map[int64]bool)
			p.keys[string(key)] = readers{r.first, r.more}
		}
		r.more[id] = true
		if t.count(p, 0, 1, readerOverhead); t.full() {
			t.evict(p, string(key), 1)
		}
		return
	}
	if p.keys == nil {
		p.keys = make(map[string]readers)
	}
	p.keys[string(key)] = readers{first: id}
	if t.count(p, 1, 1, entryBytes(string(key), readers{})); t.full() {
		t.evict(p, string(key), 2) // one more than was added, so that the table returns to its bound
	}
}

// full reports whether the table is over one of its bounds.
func (t *Table) full() bool {
	most := t.maxKeys.Load()
	return most > 0 && t.keys.Load() > most || t.bytes.Load() > maxTrackedBytes
}

// SetMaxKeys sets the maximum number of keys in the table, 0 for any number. A goroutine evicts the
// keys beyond it.
func (t *Table) SetMaxKeys(maxKeys int) {
	if t.maxKeys.Store(int64(maxKeys)); t.full() {
		go t.shrink()
	}
}

// evictedAtOnce is the number of keys that are evicted before a part is unlocked: a client that
// changes a key may wait for that lock while it holds the lock of the key.
const evictedAtOnce = 128

func (t *Table) shrink() {
	t.Busy.Add(1)
	defer t.Busy.Add(-1)
	for i := range t.parts {
		for t.shrinkPart(&t.parts[i]) {
		}
	}
	t.sendInBackground()
}

// shrinkPart evicts some keys of a part, and reports whether there are more to evict.
func (t *Table) shrinkPart(p *trackingPart) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for left := evictedAtOnce; left > 0; left-- {
		if !t.full() || len(p.keys) == 0 {
			return false
		}
		t.evict(p, "", 1)
	}
	return true
}

// evict evicts up to count keys of a part, which the caller has locked. It evicts the key except
// only if there is no other.
func (t *Table) evict(p *trackingPart, except string, count int) {
	for key, r := range p.keys {
		if key == except && len(p.keys) > 1 {
			continue
		}
		delete(p.keys, key)
		t.countRemoved(p, key, r)
		t.addChange(changedKey{key: key, readers: r})
		if count--; count == 0 {
			return
		}
	}
}

// countRemoved updates the counters for a key that was removed from a part.
func (t *Table) countRemoved(p *trackingPart, key string, r readers) {
	t.count(p, -1, -int64(r.count()), -entryBytes(key, r))
}

// entryBytes returns the bytes that a key takes in the table.
func entryBytes(key string, r readers) int64 {
	return int64(len(key)+keyOverhead) + int64(len(r.more))*readerOverhead
}

// count adds to the counters of the table and of a part, which the caller has locked.
func (t *Table) count(p *trackingPart, keys, items, bytes int64) {
	p.count.Add(keys)
	p.items += items
	p.bytes += bytes
	t.keys.Add(keys)
	t.items.Add(items)
	t.bytes.Add(bytes)
}

// onChange is called by the store with a key that has changed, while the key is locked. (For
// flushed databases, see InvalidateAll.) Changes that a client makes are sent by its session; for
// changes that the store makes by itself, such as expiry, onChange starts a goroutine that sends
// them.
func (t *Table) onChange(_ int, key []byte, why store.Event, by int64) {
	pending := false
	if why == store.Expired && by != 0 {
		t.expired.Add(1)
	}
	if t.keys.Load() > 0 && key != nil {
		pending = t.invalidateKey(key, by)
	}
	if t.broadcasting.Load() > 0 && key != nil {
		if why == store.Expired {
			t.addBroadcast(key, 0) // the change is an expiry: a client has found it, but none has made it
		} else {
			t.addBroadcast(key, by)
		}
		pending = true
	}
	if pending && by == 0 {
		t.sendInBackground()
	}
}

// invalidateKey removes a key from the table, and adds an invalidation for its readers. It returns
// false if the key has none.
func (t *Table) invalidateKey(key []byte, by int64) bool {
	p := t.part(key)
	if p.count.Load() == 0 {
		return false
	}
	p.mu.Lock()
	r, known := p.keys[string(key)]
	if known {
		delete(p.keys, string(key))
		t.countRemoved(p, string(key), r)
	}
	p.mu.Unlock()
	if known {
		t.addChange(changedKey{key: string(key), readers: r, by: by})
	}
	return known
}

// Figures are the sizes of the table that INFO shows.
type Figures struct {
	Clients, Prefixes int64 // clients that track keys, and prefixes in broadcasting mode
	Keys, Items       int64 // number of keys, and of the readers of all keys
	Bytes             int64 // memory of all keys
}

// Figures returns the sizes of the table.
func (t *Table) Figures() Figures {
	return Figures{
		Clients: t.tracking.Load(), Prefixes: t.prefixes.Load(), Keys: t.keys.Load(), Items: t.items.Load(),
		Bytes: t.bytes.Load(),
	}
}
