// Package tracking is CLIENT TRACKING: which client has read which key, so that it can be told when
// the key changes.
package tracking

import (
	"hash/maphash"
	"sync"
	"sync/atomic"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/store"
)

// Client-side caching: who has read which key, so that it can be told when the key changes. As in
// Redis a key's name counts, whatever its database. What is told is gathered under the shards'
// locks, and sent when they are free: see send.

// Table is the table of all that was read.
type Table struct {
	Store interface {
		Subscribe(listen store.Listener) (unsubscribe func())
	}
	Clients *client.Registry
	Busy    *atomic.Int32 // goroutines that want the event loops to yield

	seed    maphash.Seed
	parts   [trackingParts]trackingPart
	maxKeys atomic.Int64
	keys    atomic.Int64
	items   atomic.Int64 // clients, over all keys
	bytes   atomic.Int64 // of all keys, and what they take beside
	expired atomic.Int64 // how many were found expired by who asked for them

	trackersMu   sync.Mutex // of who is told
	trackers     map[int64]*client.Tracker
	broadcasts   map[string]map[int64]bool // who is told of each prefix
	tracking     atomic.Int64              // how many trackers there are
	broadcasting atomic.Int64              // how many of them broadcast
	prefixes     atomic.Int64              // how many there are
	unsubscribe  func()                    // while there are trackers

	mu         sync.Mutex // of what is pending: taken with a key locked, and held for moments
	pending    changes
	hasPending atomic.Bool // there are some pending
	sending    bool        // a goroutine sends them
}

// The table is in parts, so that those who change keys seldom wait for one another.
const trackingParts = 64

type trackingPart struct {
	mu    sync.Mutex
	count atomic.Int64
	items int64 // its part of the table's
	bytes int64
	keys  map[string]readers
}

// readers are those who have read a key, by id: most keys have one.
type readers struct {
	first int64
	more  map[int64]bool
}

func (r readers) count() int { return 1 + len(r.more) }

// DefaultMaxTracked is the number of keys that are remembered. When there are more, and when they
// take more than 256 MiB, one of them is forgotten: those who have read it are told as if it had
// changed.
const (
	DefaultMaxTracked = 1_000_000
	maxTrackedBytes   = 256 << 20
	keyOverhead       = 128 // bytes that a key takes beside its own
	readerOverhead    = 32  // and for each further client that has read it
)

// Init makes the table ready, which remembers so many keys, 0 for any number.
func (t *Table) Init(maxKeys int) {
	t.seed = maphash.MakeSeed()
	t.maxKeys.Store(int64(maxKeys))
	t.trackers, t.broadcasts = make(map[int64]*client.Tracker), make(map[string]map[int64]bool)
}

// SetTracker has a client told as a tracker says; nil for not at all. Its session calls it.
func (t *Table) SetTracker(c *client.Client, wanted *client.Tracker) {
	before := c.Tracker.Load()
	if before == nil && wanted == nil {
		return
	}
	c.Charge(wanted.Bytes() - before.Bytes())
	t.SendPending(false) // what has changed before is for those who tracked then
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

// SetCallTracker is Track for the client of a call, and has its session's calls noted from now on.
func (t *Table) SetCallTracker(c *command.Call, wanted *client.Tracker) {
	t.SetTracker(c.Client, wanted)
	c.Middleware, c.Caching = nil, c.Caching && wanted != nil
	if wanted != nil {
		c.Middleware = t.run
	}
}

// subscribe has the store tell of changes while anyone is told.
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

// removeAll forgets all keys, without a look at each: there may be a million, and all keys of the store
// may be locked.
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

// run has the row answer a client that caches. What it reads is noted before, so that no change
// goes unnoticed; and again after it, because a key that it found expired has been taken off the
// table: the client knows that it is not there, and is to hear when it is.
func (t *Table) run(c *command.Call) error {
	t.recordReads(c)
	seen := &t.expired
	before := seen.Load()
	err := c.Row.Run(c)
	if seen.Load() != before && c.Client.Tracker.Load() != nil {
		t.recordReads(c)
	}
	return err
}

// recordReads notes which keys a call reads. A client that has gone
// meanwhile, while its call was made beside the loop, tracks nothing any more.
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

func (t *Table) record(key []byte, id int64) {
	p := t.part(key)
	p.mu.Lock()
	defer p.mu.Unlock()
	r, known := p.keys[string(key)]
	switch {
	case known && (r.first == id || r.more[id]):
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
		t.evict(p, string(key), 2) // one more than came, so that the bound is kept by all parts together
	}
}

// full says whether more is remembered than is allowed.
func (t *Table) full() bool {
	most := t.maxKeys.Load()
	return most > 0 && t.keys.Load() > most || t.bytes.Load() > maxTrackedBytes
}

// SetMaxKeys bounds the keys that are remembered for clients that cache them, 0 for no number of
// them. Those that are too many are forgotten beside the loop.
func (t *Table) SetMaxKeys(most int) {
	if t.maxKeys.Store(int64(most)); t.full() {
		go t.shrink()
	}
}

// evictedAtOnce is how many keys are forgotten before a part is given back: whoever changes a key
// may wait for it, with the key locked.
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

// shrinkPart forgets some keys of a part, and says whether there is more to forget.
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

// evict forgets some keys of a part, which is locked, but not the last that came if there are
// others.
func (t *Table) evict(p *trackingPart, but string, left int) {
	for key, r := range p.keys {
		if key == but && len(p.keys) > 1 {
			continue
		}
		delete(p.keys, key)
		t.countRemoved(p, key, r)
		t.addChange(changedKey{key: key, readers: r})
		if left--; left == 0 {
			return
		}
	}
}

// countRemoved counts a key that has gone from the table.
func (t *Table) countRemoved(p *trackingPart, key string, r readers) {
	t.count(p, -1, -int64(r.count()), -entryBytes(key, r))
}

// entryBytes is what a key takes, in bytes.
func entryBytes(key string, r readers) int64 {
	return int64(len(key)+keyOverhead) + int64(len(r.more))*readerOverhead
}

// count counts what comes to a part, which is locked, or goes.
func (t *Table) count(p *trackingPart, keys, items, bytes int64) {
	p.count.Add(keys)
	p.items += items
	p.bytes += bytes
	t.keys.Add(keys)
	t.items.Add(items)
	t.bytes.Add(bytes)
}

// onChange is what the store says of a key, with the key locked (of a database that was emptied see
// Flushed). What it does by itself nobody else will send.
func (t *Table) onChange(_ int, key []byte, why store.Event, by int64) {
	told := false
	if why == store.Expired && by != 0 {
		t.expired.Add(1)
	}
	if t.keys.Load() > 0 && key != nil {
		told = t.invalidateKey(key, by)
	}
	if t.broadcasting.Load() > 0 && key != nil {
		if why == store.Expired {
			t.addBroadcast(key, 0) // nobody made that change, whoever found it
		} else {
			t.addBroadcast(key, by)
		}
		told = true
	}
	if told && by == 0 {
		t.sendInBackground()
	}
}

// invalidateKey has those told who have read a key. They may read it again.
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

// Figures are what INFO shows of the table.
type Figures struct {
	Clients, Prefixes int64 // that are told; that are broadcast
	Keys, Items       int64 // that are remembered; and clients, over all keys
	Bytes             int64 // of all keys, and what they take beside
}

// Figures counts what is remembered.
func (t *Table) Figures() Figures {
	return Figures{
		Clients: t.tracking.Load(), Prefixes: t.prefixes.Load(), Keys: t.keys.Load(), Items: t.items.Load(),
		Bytes: t.bytes.Load(),
	}
}
