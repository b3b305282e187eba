package tracking

import (
	"cellserver/internal/client"
	"cellserver/internal/resp"
	"maps"
	"runtime"
	"slices"
	"strings"
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

func (t *Table) change(c changedKey) {
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

func (t *Table) broadcast(key []byte, by int64) {
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

// Flushed has everybody told that everything has changed. What was read before need not be
// remembered then. A command says so once, when it is done: the store has a notice for each
// database, between two of which another session might send what is pending.
func (t *Table) Flushed(by int64) {
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
func (t *Table) Send(batch bool) {
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
func (t *Table) sendAside() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.sending {
		t.sending = true
		go t.sendAll()
	}
}

func (t *Table) sendAll() {
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
func (t *Table) wanted() []string {
	t.who.Lock()
	prefixes := slices.Collect(maps.Keys(t.broadcasts))
	t.who.Unlock()
	slices.Sort(prefixes)
	return prefixes
}

// whoWants is who wants a prefix.
func (t *Table) whoWants(prefix string) []int64 {
	t.who.Lock()
	defer t.who.Unlock()
	return slices.Collect(maps.Keys(t.broadcasts[prefix]))
}

// tell tells everybody.
func (t *Table) tell(c changes) {
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
func (t *Table) tellAll(by int64) {
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

// tellPrefix tells those who want a prefix of the keys that begin with it; who made a change
// himself may not want to hear of it.
func (t *Table) tellPrefix(prefix string, keys []string, by map[string]int64) {
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
func (t *Table) tellOne(id int64, what *invalidation) {
	s := t.Clients.Get(id)
	if s == nil {
		return
	}
	tr := s.Tracker.Load()
	if tr == nil || what.keys != nil && (tr.Broadcast != what.broadcast || tr.NoLoop && !what.broadcast && what.by == id) {
		return
	}
	to, own := s, s.ProtocolVersion()
	if tr.Redirect != 0 {
		to = t.Clients.Get(tr.Redirect)
	}
	if to == nil {
		tr.Broken.Store(true)
		s.PushFunc(func(m *client.Mailbox) *client.Parcel { return brokenRedirect(m, tr.Redirect) })
		return
	}
	to.PushFunc(func(m *client.Mailbox) *client.Parcel {
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

// isTold says whether the client is about to hear that these keys have changed, and notes that it
// is now. As long as it takes nothing of what waits for it, to hear it once is enough: a key that
// changes all the time costs nothing for those who do not read.
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

// write writes the message; what stands for everything is in the protocol of the one who tracks, as
// in Redis.
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

// IsIdle says that nothing waits to be told, and nothing is being told by a goroutine.
func (t *Table) IsIdle() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.sending && t.pending.isEmpty()
}
