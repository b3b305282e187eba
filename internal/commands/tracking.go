package commands

import (
	"hash/maphash"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/resp"
	"cellserver/internal/store"
)

// Client-side caching: who has read which key, so that it can be told when the key changes. As in Redis a key's name counts, whatever
// its database. What is told is gathered under the shards' locks, and sent when they are free: see send.

// tracking is the table of all that was read.
type tracking struct {
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

	who          sync.Mutex // of who is told
	trackers     map[int64]*client.Tracker
	broadcasts   map[string]map[int64]bool // who is told of each prefix
	tracking     atomic.Int64              // how many trackers there are
	broadcasting atomic.Int64              // how many of them broadcast
	prefixes     atomic.Int64              // how many there are
	unsubscribe  func()                    // while there are trackers

	mu      sync.Mutex // of what is pending: taken with a key locked, and held for moments
	pending changes
	waiting atomic.Bool // there are some pending
	sending bool        // a goroutine sends them
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

// DefaultMaxTracked is the number of keys that are remembered. When there are more, and when they take more than 256 MiB, one of them is
// forgotten: those who have read it are told as if it had changed.
const (
	DefaultMaxTracked = 1_000_000
	maxTrackedBytes   = 256 << 20
	trackedWorth      = 128 // bytes that a key takes beside its own
	readerWorth       = 32  // and for each further client that has read it
)

// changes are what is to be told.
type changes struct {
	keys    []changedKey
	written map[string]int64 // for broadcasts: by whom last
	bytes   int              // of written
	kept    int64            // of keys, and what they take beside
	worth   int              // how many are told, about
	later   int              // and how many of them of what was written
}

type changedKey struct {
	key     string
	readers readers
	by      int64
	all     bool // every key has changed
}

// The bounds of what is pending: beyond them everything has changed.
const (
	maxChangedBytes = 32 << 20
	maxWrittenBytes = 16 << 20
)

// Begin makes the table ready, which remembers so many keys, 0 for any number.
func (t *tracking) Begin(maxKeys int) {
	t.seed = maphash.MakeSeed()
	t.maxKeys.Store(int64(maxKeys))
	t.trackers, t.broadcasts = make(map[int64]*client.Tracker), make(map[string]map[int64]bool)
}

// Track has a client told as a tracker says; nil for not at all. Its session calls it.
func (t *tracking) Track(c *client.Client, wanted *client.Tracker) {
	before := c.Tracker.Load()
	if before == nil && wanted == nil {
		return
	}
	c.Charge(wanted.Bytes() - before.Bytes())
	t.Send(false) // what has changed before is for those who tracked then
	t.who.Lock()
	defer t.who.Unlock()
	t.stop(c.Id, before)
	if wanted != nil {
		t.start(c.Id, wanted)
	}
	t.tracking.Store(int64(len(t.trackers)))
	t.prefixes.Store(int64(len(t.broadcasts)))
	c.Tracker.Store(wanted)
	t.heed(len(t.trackers) > 0)
}

// Follow is Track for the client of a call, and has its session's calls noted from now on.
func (t *tracking) Follow(c *command.Call, wanted *client.Tracker) {
	t.Track(c.Client, wanted)
	c.Around, c.Caching = nil, c.Caching && wanted != nil
	if wanted != nil {
		c.Around = t.run
	}
}

// heed has the store tell of changes while anyone is told.
func (t *tracking) heed(on bool) {
	switch {
	case on && t.unsubscribe == nil:
		t.unsubscribe = t.Store.Subscribe(t.heard)
	case !on && t.unsubscribe != nil:
		t.unsubscribe()
		t.unsubscribe = nil
		t.clear()
	}
}

func (t *tracking) start(id int64, wanted *client.Tracker) {
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

func (t *tracking) stop(id int64, before *client.Tracker) {
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

// clear forgets all keys, without a look at each: there may be a million, and all keys of the store may be locked.
func (t *tracking) clear() {
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

func (t *tracking) part(key []byte) *trackingPart {
	return &t.parts[maphash.Bytes(t.seed, key)%trackingParts]
}

// run has the row answer a client that caches. What it reads is noted before, so that no change goes unnoticed; and again after
// it, because a key that it found expired has been taken off the table: the client knows that it is not there, and is to hear when it is.
func (t *tracking) run(c *command.Call) error {
	t.remember(c)
	seen := &t.expired
	before := seen.Load()
	err := c.Row.Run(c)
	if seen.Load() != before && c.Client.Tracker.Load() != nil {
		t.remember(c)
	}
	return err
}

// remember notes which keys a call reads.
func (t *tracking) remember(c *command.Call) {
	how := c.Client.Tracker.Load()
	if c.Row.Flags&command.ReadOnly == 0 || how.Broadcast || how.OptIn && !c.Caching || how.OptOut && c.Caching {
		return
	}
	keys, _ := c.Row.KeysOf(nil, c.Words)
	for _, key := range keys {
		t.add(key, c.View.Signed())
	}
}

func (t *tracking) add(key []byte, id int64) {
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
		if t.count(p, 0, 1, readerWorth); t.full() {
			t.evict(p, string(key), 1)
		}
		return
	}
	if p.keys == nil {
		p.keys = make(map[string]readers)
	}
	p.keys[string(key)] = readers{first: id}
	if t.count(p, 1, 1, worthOf(string(key), readers{})); t.full() {
		t.evict(p, string(key), 2) // one more than came, so that the bound is kept by all parts together
	}
}

// full says whether more is remembered than is allowed.
func (t *tracking) full() bool {
	most := t.maxKeys.Load()
	return most > 0 && t.keys.Load() > most || t.bytes.Load() > maxTrackedBytes
}

// SetMaxKeys bounds the keys that are remembered for clients that cache them, 0 for no number of them. Those that are too many are
// forgotten beside the loop.
func (t *tracking) SetMaxKeys(most int) {
	if t.maxKeys.Store(int64(most)); t.full() {
		go t.shrink()
	}
}

// forgottenAtOnce is how many keys are forgotten before a part is given back: whoever changes a key may wait for it, with the key locked.
const forgottenAtOnce = 128

func (t *tracking) shrink() {
	t.Busy.Add(1)
	defer t.Busy.Add(-1)
	for i := range t.parts {
		for t.shrinkPart(&t.parts[i]) {
		}
	}
	t.sendAside()
}

// shrinkPart forgets some keys of a part, and says whether there is more to forget.
func (t *tracking) shrinkPart(p *trackingPart) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for left := forgottenAtOnce; left > 0; left-- {
		if !t.full() || len(p.keys) == 0 {
			return false
		}
		t.evict(p, "", 1)
	}
	return true
}

// evict forgets some keys of a part, which is locked, but not the last that came if there are others.
func (t *tracking) evict(p *trackingPart, but string, left int) {
	for key, r := range p.keys {
		if key == but && len(p.keys) > 1 {
			continue
		}
		delete(p.keys, key)
		t.forgot(p, key, r)
		t.change(changedKey{key: key, readers: r})
		if left--; left == 0 {
			return
		}
	}
}

// forgot counts a key that has gone from the table.
func (t *tracking) forgot(p *trackingPart, key string, r readers) {
	t.count(p, -1, -int64(r.count()), -worthOf(key, r))
}

// worthOf is what a key takes, in bytes.
func worthOf(key string, r readers) int64 {
	return int64(len(key)+trackedWorth) + int64(len(r.more))*readerWorth
}

// count counts what comes to a part, which is locked, or goes.
func (t *tracking) count(p *trackingPart, keys, items, bytes int64) {
	p.count.Add(keys)
	p.items += items
	p.bytes += bytes
	t.keys.Add(keys)
	t.items.Add(items)
	t.bytes.Add(bytes)
}

// heard is what the store says of a key, with the key locked (of a database that was emptied see Flushed). What it does by itself nobody
// else will send.
func (t *tracking) heard(_ int, key []byte, why store.Why, by int64) {
	told := false
	if why == store.Expired && by != 0 {
		t.expired.Add(1)
	}
	if t.keys.Load() > 0 && key != nil {
		told = t.take(key, by)
	}
	if t.broadcasting.Load() > 0 && key != nil {
		if why == store.Expired {
			t.broadcast(key, 0) // nobody made that change, whoever found it
		} else {
			t.broadcast(key, by)
		}
		told = true
	}
	if told && by == 0 {
		t.sendAside()
	}
}

// take has those told who have read a key. They may read it again.
func (t *tracking) take(key []byte, by int64) bool {
	p := t.part(key)
	if p.count.Load() == 0 {
		return false
	}
	p.mu.Lock()
	r, known := p.keys[string(key)]
	if known {
		delete(p.keys, string(key))
		t.forgot(p, string(key), r)
	}
	p.mu.Unlock()
	if known {
		t.change(changedKey{key: string(key), readers: r, by: by})
	}
	return known
}

func (t *tracking) change(c changedKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pending.kept > maxChangedBytes {
		t.pending.keys, t.pending.kept = nil, 0
		t.pending.flush(0)
	}
	t.pending.keys = append(t.pending.keys, c)
	t.pending.kept += worthOf(c.key, c.readers)
	t.pending.worth += c.readers.count()
	t.waiting.Store(true)
}

func (t *tracking) broadcast(key []byte, by int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pending.bytes > maxWrittenBytes {
		t.pending.written, t.pending.bytes = nil, 0
		t.pending.flush(0)
	}
	if t.pending.written == nil {
		t.pending.written = make(map[string]int64)
	}
	if _, known := t.pending.written[string(key)]; !known {
		t.pending.bytes += len(key) + trackedWorth
		told := int(t.broadcasting.Load()) // all of them, at most
		t.pending.worth, t.pending.later = t.pending.worth+told, t.pending.later+told
	}
	t.pending.written[string(key)] = by
	t.waiting.Store(true)
}

// Flushed has everybody told that everything has changed. What was read before need not be remembered then. A command says so once, when
// it is done: the store has a notice for each database, between two of which another session might send what is pending.
func (t *tracking) Flushed(by int64) {
	trackers := int(t.tracking.Load())
	if trackers == 0 {
		return
	}
	t.clear()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pending.flush(by)
	t.pending.worth += trackers
	t.waiting.Store(true)
}

// fewTold is how many are told at once; more are told beside the loop.
const fewTold = 128

// Send sends what is pending; what goes to broadcasts waits for the end of the batch, as in Redis.
func (t *tracking) Send(batch bool) {
	if !t.waiting.Load() {
		return
	}
	t.mu.Lock()
	switch {
	case t.sending:
		t.mu.Unlock()
	case t.pending.worth > fewTold:
		t.mu.Unlock()
		t.sendAside()
	default:
		c := t.pending.take(batch)
		t.waiting.Store(t.pending.written != nil)
		t.mu.Unlock()
		t.tell(c)
	}
}

// sendAside has a goroutine send what is pending, and what comes meanwhile.
func (t *tracking) sendAside() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.sending {
		t.sending = true
		go t.sendAll()
	}
}

func (t *tracking) sendAll() {
	t.Busy.Add(1) // so that the loops yield
	defer t.Busy.Add(-1)
	for {
		t.mu.Lock()
		if t.pending.isEmpty() {
			t.sending = false
			t.waiting.Store(false)
			t.mu.Unlock()
			return
		}
		c := t.pending.take(true)
		t.mu.Unlock()
		t.tell(c)
	}
}

func (c *changes) isEmpty() bool { return len(c.keys) == 0 && c.written == nil }

// flush adds that every key has changed, unless that was said last.
func (c *changes) flush(by int64) {
	if last := len(c.keys) - 1; last < 0 || !c.keys[last].all {
		c.keys = append(c.keys, changedKey{all: true, by: by})
	}
}

// take takes all, but what was written if it is to wait.
func (c *changes) take(written bool) (taken changes) {
	taken, *c = *c, changes{}
	if !written {
		c.written, c.bytes, c.worth, c.later = taken.written, taken.bytes, taken.later, taken.later
		taken.written = nil
	}
	return taken
}

// wanted is all prefixes, in order.
func (t *tracking) wanted() []string {
	t.who.Lock()
	prefixes := slices.Collect(maps.Keys(t.broadcasts))
	t.who.Unlock()
	slices.Sort(prefixes)
	return prefixes
}

// whoWants is who wants a prefix.
func (t *tracking) whoWants(prefix string) []int64 {
	t.who.Lock()
	defer t.who.Unlock()
	return slices.Collect(maps.Keys(t.broadcasts[prefix]))
}

// tell tells everybody.
func (t *tracking) tell(c changes) {
	for _, changed := range c.keys {
		if changed.all {
			t.tellAll(changed.by)
			continue
		}
		one := &invalidation{keys: []string{changed.key}, by: changed.by}
		t.tellOne(changed.readers.first, one)
		told := 0
		for id := range changed.readers.more {
			t.tellOne(id, one)
			told++
			giveWayAfter(told)
		}
	}
	if c.written == nil {
		return
	}
	keys := slices.Sorted(maps.Keys(c.written))
	for _, prefix := range t.wanted() {
		t.tellPrefix(prefix, keys, c.written)
	}
}

// tellAll tells everybody to forget everything; last who made it so, as in Redis.
func (t *tracking) tellAll(by int64) {
	t.who.Lock()
	ids := slices.Sorted(maps.Keys(t.trackers))
	t.who.Unlock()
	if at, tracks := slices.BinarySearch(ids, by); tracks {
		ids = append(slices.Delete(ids, at, at+1), by)
	}
	for told, id := range ids {
		giveWayAfter(told)
		t.tellOne(id, &invalidation{})
	}
}

// giveWayAfter has others run after every few clients that were told, on two cores as on many: it
// does so only beside the loops, which tell fewer.
func giveWayAfter(told int) {
	if told > 0 && told%fewTold == 0 {
		runtime.Gosched()
	}
}

// tellPrefix tells those who want a prefix of the keys that begin with it; who made a change himself may not want to hear of it.
func (t *tracking) tellPrefix(prefix string, keys []string, by map[string]int64) {
	from, _ := slices.BinarySearch(keys, prefix)
	until := from
	for until < len(keys) && strings.HasPrefix(keys[until], prefix) {
		until++
	}
	if from == until {
		return
	}
	all := &invalidation{keys: keys[from:until], broadcast: true}
	for told, id := range t.whoWants(prefix) {
		giveWayAfter(told)
		s := t.Clients.Get(id)
		if s == nil {
			continue
		}
		if tr := s.Tracker.Load(); tr == nil || !tr.NoLoop {
			t.tellOne(id, all)
			continue
		}
		others := slices.DeleteFunc(slices.Clone(all.keys), func(key string) bool { return by[key] == id })
		if len(others) > 0 {
			t.tellOne(id, &invalidation{keys: others, broadcast: true})
		}
	}
}

// invalidation is what one message says: forget these keys, or without keys everything.
type invalidation struct {
	keys      []string
	broadcast bool
	by        int64
	push      client.Encodings // in RESP3; the first for one who speaks RESP2 himself, and has it redirected
	message   client.Encodings // the same for subscribers in RESP2
}

// tellOne tells a session, or the one that it redirects to.
func (t *tracking) tellOne(id int64, what *invalidation) {
	s := t.Clients.Get(id)
	if s == nil {
		return
	}
	tr := s.Tracker.Load()
	if tr == nil || what.keys != nil && (tr.Broadcast != what.broadcast || tr.NoLoop && !what.broadcast && what.by == id) {
		return
	}
	to, own := s, s.Speaks()
	if tr.Redirect != 0 {
		to = t.Clients.Get(tr.Redirect)
	}
	if to == nil {
		tr.Broken.Store(true)
		s.PushSome(func(m *client.Mailbox) *client.Parcel { return brokenRedirect(m, tr.Redirect) })
		return
	}
	to.PushSome(func(m *client.Mailbox) *client.Parcel {
		switch {
		case m.Protocol != 3 && !(tr.Redirect != 0 && m.Subscribed):
			return nil // who cannot be told has not been told
		case what.broadcast && isTold(m, what.keys):
			return nil
		case m.Protocol == 3:
			return what.push.InAs(own, 3, func(out *resp.Writer) { what.write(out, own, "invalidate") })
		}
		return what.message.InAs(own, 2, func(out *resp.Writer) { what.write(out, own, "message", invalidated) })
	})
}

// maxTold bounds the keys that a mailbox notes: of more than these a client may be told twice.
const maxTold = 1024

// isTold says whether the client is about to hear that these keys have changed, and notes that it is now. As long as it takes nothing of
// what waits for it, to hear it once is enough: a key that changes all the time costs nothing for those who do not read.
func isTold(m *client.Mailbox, keys []string) bool {
	known := true
	for _, key := range keys {
		if m.Told[key] {
			continue
		}
		if known = false; len(m.Told) >= maxTold {
			continue
		}
		if m.Told == nil {
			m.Told = make(map[string]bool)
		}
		m.Told[key] = true
	}
	return known
}

// invalidated is the channel on which a client in RESP2 is told.
const invalidated = "__redis__:invalidate"

func brokenRedirect(m *client.Mailbox, redirect int64) *client.Parcel {
	if m.Protocol != 3 {
		return nil
	}
	var out resp.Writer
	out.SetProtocol(3)
	out.Push(2)
	out.BulkString("tracking-redir-broken")
	out.Int(redirect)
	return &client.Parcel{Bytes: out.Bytes()}
}

// write writes the message; what stands for everything is in the protocol of the one who tracks, as in Redis.
func (i *invalidation) write(out *resp.Writer, own int, words ...string) {
	out.Push(len(words) + 1)
	for _, word := range words {
		out.BulkString(word)
	}
	if i.keys == nil {
		out.SetProtocol(own)
		out.Null()
		return
	}
	out.Array(len(i.keys))
	for _, key := range i.keys {
		out.BulkString(key)
	}
}

// Figures are what INFO shows of the table.
type Figures struct {
	Clients, Prefixes int64 // that are told; that are broadcast
	Keys, Items       int64 // that are remembered; and clients, over all keys
	Bytes             int64 // of all keys, and what they take beside
}

// Figures counts what is remembered.
func (t *tracking) Figures() Figures {
	return Figures{
		Clients: t.tracking.Load(), Prefixes: t.prefixes.Load(), Keys: t.keys.Load(), Items: t.items.Load(), Bytes: t.bytes.Load(),
	}
}

// IsIdle says that nothing waits to be told, and nothing is being told by a goroutine.
func (t *tracking) IsIdle() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.sending && t.pending.isEmpty()
}
