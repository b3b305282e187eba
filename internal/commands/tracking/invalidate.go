package tracking

import (
	"cellserver/internal/client"
	"cellserver/internal/resp"
	"maps"
	"runtime"
	"slices"
	"strings"
)

// changes are changes of keys. The clients are not notified of them yet.
type changes struct {
	keys             []changedKey
	written          map[string]int64 // for broadcasts: changed keys, and the client that was the last to change each
	writtenBytes     int              // of written
	keyBytes         int64            // memory of keys
	receivers        int              // approximate number of messages to send
	writtenReceivers int              // how many of these are for written
}

// changedKey is a change of one key, or of all keys.
type changedKey struct {
	key     string
	readers readers
	by      int64
	all     bool // all keys have changed
}

// The bounds of the pending changes, in bytes. Beyond them, the changes are replaced by one change
// of all keys.
const (
	maxChangedBytes = 32 << 20
	maxWrittenBytes = 16 << 20
)

// addChange adds a change for the clients that have read the key.
func (t *Table) addChange(c changedKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pending.keyBytes > maxChangedBytes {
		t.pending.keys, t.pending.keyBytes = nil, 0
		t.pending.flush(0)
	}
	t.pending.keys = append(t.pending.keys, c)
	t.pending.keyBytes += entryBytes(c.key, c.readers)
	t.pending.receivers += c.readers.count()
	t.hasPending.Store(true)
}

// addBroadcast adds a change for the clients in broadcasting mode.
func (t *Table) addBroadcast(key []byte, by int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pending.writtenBytes > maxWrittenBytes {
		t.pending.written, t.pending.writtenBytes = nil, 0
		t.pending.flush(0)
	}
	if t.pending.written == nil {
		t.pending.written = make(map[string]int64)
	}
	if _, known := t.pending.written[string(key)]; !known {
		t.pending.writtenBytes += len(key) + keyOverhead
		most := int(t.broadcasting.Load())
		t.pending.receivers += most
		t.pending.writtenReceivers += most
	}
	t.pending.written[string(key)] = by
	t.hasPending.Store(true)
}

// InvalidateAll adds a change of all keys, by a client, and empties the table. A command calls it
// once, after it has flushed databases. The store's events cannot be used for that: there is one
// for each database, and another session might send the pending changes between two of them.
func (t *Table) InvalidateAll(by int64) {
	trackers := int(t.tracking.Load())
	if trackers == 0 {
		return
	}
	t.removeAll()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pending.flush(by)
	t.pending.receivers += trackers
	t.hasPending.Store(true)
}

// maxSentAtOnce is the number of messages that a session sends at once. A goroutine sends the rest.
const maxSentAtOnce = 128

// SendPending sends the pending changes. Changes for broadcasts are sent only at the end of a batch
// of calls, as in Redis.
func (t *Table) SendPending(endOfBatch bool) {
	if !t.hasPending.Load() {
		return
	}
	t.mu.Lock()
	switch {
	case t.sending:
		t.mu.Unlock()
	case t.pending.receivers > maxSentAtOnce:
		t.mu.Unlock()
		t.sendInBackground()
	default:
		c := t.pending.take(endOfBatch)
		t.hasPending.Store(t.pending.written != nil)
		t.mu.Unlock()
		t.send(c)
	}
}

// sendInBackground starts a goroutine that sends the pending changes, including changes that are added
// meanwhile.
func (t *Table) sendInBackground() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.sending {
		t.sending = true
		go t.sendUntilEmpty()
	}
}

// sendUntilEmpty sends pending changes until there are no more.
func (t *Table) sendUntilEmpty() {
	t.Busy.Add(1) // the event loops yield meanwhile
	defer t.Busy.Add(-1)
	for {
		t.mu.Lock()
		if t.pending.isEmpty() {
			t.sending = false
			t.hasPending.Store(false)
			t.mu.Unlock()
			return
		}
		c := t.pending.take(true)
		t.mu.Unlock()
		t.send(c)
	}
}

func (c *changes) isEmpty() bool { return len(c.keys) == 0 && c.written == nil }

// flush adds a change of all keys, unless the last change is one.
func (c *changes) flush(by int64) {
	if last := len(c.keys) - 1; last < 0 || !c.keys[last].all {
		c.keys = append(c.keys, changedKey{all: true, by: by})
	}
}

// take removes and returns all changes; if written is false, all except those for broadcasts.
func (c *changes) take(written bool) (taken changes) {
	taken, *c = *c, changes{}
	if !written {
		c.written, c.writtenBytes = taken.written, taken.writtenBytes
		c.receivers, c.writtenReceivers = taken.writtenReceivers, taken.writtenReceivers
		taken.written = nil
	}
	return taken
}

// sortedPrefixes returns the prefixes of all clients, in order.
func (t *Table) sortedPrefixes() []string {
	t.trackersMu.Lock()
	prefixes := slices.Collect(maps.Keys(t.broadcasts))
	t.trackersMu.Unlock()
	slices.Sort(prefixes)
	return prefixes
}

// trackersOf returns the clients that have a prefix.
func (t *Table) trackersOf(prefix string) []int64 {
	t.trackersMu.Lock()
	defer t.trackersMu.Unlock()
	return slices.Collect(maps.Keys(t.broadcasts[prefix]))
}

// send sends changes to the clients that track their keys. As in Redis, a client is sent the changes
// that it has made itself after all others: both may go to one client, with REDIRECT.
func (t *Table) send(c changes) {
	for _, changed := range c.keys {
		if changed.all {
			t.sendFlush(changed.by)
		} else {
			t.sendKey(changed)
		}
	}
	for _, changed := range c.keys {
		if changed.all || changed.readers.has(changed.by) {
			t.sendTo(changed.by, changed.invalidation())
		}
	}
	if c.written == nil {
		return
	}
	keys := slices.Sorted(maps.Keys(c.written))
	for _, prefix := range t.sortedPrefixes() {
		t.sendPrefix(prefix, keys, c.written)
	}
}

// sendKey sends a change of a key to the readers that have not made it themselves.
func (t *Table) sendKey(changed changedKey) {
	what, sent := changed.invalidation(), 0
	if changed.readers.first != changed.by {
		t.sendTo(changed.readers.first, what)
	}
	for id := range changed.readers.more {
		if id == changed.by {
			continue
		}
		t.sendTo(id, what)
		sent++
		yieldAfter(sent)
	}
}

// sendFlush sends a change of all keys to the clients that track keys, except the one that has made
// it.
func (t *Table) sendFlush(by int64) {
	t.trackersMu.Lock()
	ids := slices.Sorted(maps.Keys(t.trackers))
	t.trackersMu.Unlock()
	for sent, id := range ids {
		yieldAfter(sent)
		if id != by {
			t.sendTo(id, &invalidation{})
		}
	}
}

// yieldAfter lets other goroutines run after every few messages; sent is the number of messages so
// far. Event loops send fewer, so they never yield here.
func yieldAfter(sent int) {
	if sent > 0 && sent%maxSentAtOnce == 0 {
		runtime.Gosched()
	}
}

// sendPrefix sends the changed keys that begin with a prefix to the clients that have it. A client with
// NOLOOP does not get the keys that it has changed itself.
func (t *Table) sendPrefix(prefix string, keys []string, by map[string]int64) {
	from, _ := slices.BinarySearch(keys, prefix)
	until := from
	for until < len(keys) && strings.HasPrefix(keys[until], prefix) {
		until++
	}
	if from == until {
		return
	}
	all := &invalidation{keys: keys[from:until], broadcast: true, prefix: prefix}
	for sent, id := range t.trackersOf(prefix) {
		yieldAfter(sent)
		s := t.Clients.Get(id)
		if s == nil {
			continue
		}
		if tr := s.Tracker.Load(); tr == nil || !tr.NoLoop {
			t.sendTo(id, all)
			continue
		}
		others := slices.DeleteFunc(slices.Clone(all.keys), func(key string) bool { return by[key] == id })
		if len(others) > 0 {
			t.sendTo(id, &invalidation{keys: others, broadcast: true, prefix: prefix})
		}
	}
}

// invalidation returns the content of the message about a change.
func (c changedKey) invalidation() *invalidation {
	if c.all {
		return &invalidation{}
	}
	return &invalidation{keys: []string{c.key}, by: c.by}
}

// invalidation is the content of a message: the keys that have changed, nil for all keys.
type invalidation struct {
	keys      []string
	broadcast bool
	prefix    string // of all keys, if it is a broadcast
	by        int64
	push      client.Encodings // for clients in RESP3, by the protocol of the client that tracks keys
	message   client.Encodings // for clients in RESP2 that have subscriptions
}

// sendTo sends an invalidation to a client that tracks keys, or to the client to which it
// redirects.
func (t *Table) sendTo(id int64, what *invalidation) {
	s := t.Clients.Get(id)
	if s == nil {
		return
	}
	tr := s.Tracker.Load()
	if tr == nil || what.keys != nil &&
		(tr.Broadcast != what.broadcast || tr.NoLoop && !what.broadcast && what.by == id) {
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
		case m.Protocol() != 3 && !(tr.Redirect != 0 && m.Subscribed()):
			return nil // as in Redis, a client in RESP2 must be the target of REDIRECT, and subscribed
		case what.broadcast && m.NotePendingKeys(id, what.prefix, what.keys):
			return nil
		case m.Protocol() == 3:
			return what.push.InAs(own, 3, func(out *resp.Writer) { what.write(out, own, "invalidate") })
		}
		return what.message.InAs(own, 2,
			func(out *resp.Writer) { what.write(out, own, "message", invalidationChannel) })
	})
}

// invalidationChannel is the channel on which clients in RESP2 receive invalidations.
const invalidationChannel = "__redis__:invalidate"

func brokenRedirect(m *client.Mailbox, redirect int64) *client.Parcel {
	if m.Protocol() != 3 {
		return nil
	}
	var out resp.Writer
	out.SetProtocol(3)
	out.Push(2)
	out.BulkString("tracking-redir-broken")
	out.Int(redirect)
	return &client.Parcel{Bytes: out.Bytes()}
}

// write writes the message. As in Redis, the nil that stands for all keys is encoded in the
// protocol of the client that tracks keys (own), even if the message goes to a client with another
// protocol.
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

// IsIdle reports whether no changes are pending, and no goroutine sends any.
func (t *Table) IsIdle() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.sending && t.pending.isEmpty()
}
