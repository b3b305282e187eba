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
	keys             []changedKey
	written          map[string]int64 // for broadcasts: by whom last
	writtenBytes     int              // of written
	keyBytes         int64            // of keys, and what they take beside
	receivers        int              // how many are told, about
	writtenReceivers int              // and how many of them of what was written
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
		told := int(t.broadcasting.Load()) // all of them, at most
		t.pending.receivers, t.pending.writtenReceivers = t.pending.receivers+told, t.pending.writtenReceivers+told
	}
	t.pending.written[string(key)] = by
	t.hasPending.Store(true)
}

// InvalidateAll has everybody told that everything has changed. What was read before need not be
// remembered then. A command says so once, when it is done: the store has a notice for each
// database, between two of which another session might send what is pending.
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

// maxSentAtOnce is how many are told at once; more are told beside the loop.
const maxSentAtOnce = 128

// SendPending sends what is pending; what goes to broadcasts waits for the end of the batch, as in Redis.
func (t *Table) SendPending(batch bool) {
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
		c := t.pending.take(batch)
		t.hasPending.Store(t.pending.written != nil)
		t.mu.Unlock()
		t.send(c)
	}
}

// sendInBackground has a goroutine send what is pending, and what comes meanwhile.
func (t *Table) sendInBackground() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.sending {
		t.sending = true
		go t.sendUntilEmpty()
	}
}

func (t *Table) sendUntilEmpty() {
	t.Busy.Add(1) // so that the loops yield
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
		c.written, c.writtenBytes = taken.written, taken.writtenBytes
		c.receivers, c.writtenReceivers = taken.writtenReceivers, taken.writtenReceivers
		taken.written = nil
	}
	return taken
}

// sortedPrefixes is all prefixes, in order.
func (t *Table) sortedPrefixes() []string {
	t.trackersMu.Lock()
	prefixes := slices.Collect(maps.Keys(t.broadcasts))
	t.trackersMu.Unlock()
	slices.Sort(prefixes)
	return prefixes
}

// trackersOf is who wants a prefix.
func (t *Table) trackersOf(prefix string) []int64 {
	t.trackersMu.Lock()
	defer t.trackersMu.Unlock()
	return slices.Collect(maps.Keys(t.broadcasts[prefix]))
}

// send tells everybody.
func (t *Table) send(c changes) {
	for _, changed := range c.keys {
		if changed.all {
			t.sendFlush(changed.by)
			continue
		}
		one := &invalidation{keys: []string{changed.key}, by: changed.by}
		t.sendTo(changed.readers.first, one)
		told := 0
		for id := range changed.readers.more {
			t.sendTo(id, one)
			told++
			yieldAfter(told)
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

// sendFlush tells everybody to forget everything; last who made it so, as in Redis.
func (t *Table) sendFlush(by int64) {
	t.trackersMu.Lock()
	ids := slices.Sorted(maps.Keys(t.trackers))
	t.trackersMu.Unlock()
	if at, tracks := slices.BinarySearch(ids, by); tracks {
		ids = append(slices.Delete(ids, at, at+1), by)
	}
	for told, id := range ids {
		yieldAfter(told)
		t.sendTo(id, &invalidation{})
	}
}

// yieldAfter has others run after every few clients that were told, on two cores as on many: it
// does so only beside the loops, which tell fewer.
func yieldAfter(told int) {
	if told > 0 && told%maxSentAtOnce == 0 {
		runtime.Gosched()
	}
}

// sendPrefix tells those who want a prefix of the keys that begin with it; who made a change
// himself may not want to hear of it.
func (t *Table) sendPrefix(prefix string, keys []string, by map[string]int64) {
	from, _ := slices.BinarySearch(keys, prefix)
	until := from
	for until < len(keys) && strings.HasPrefix(keys[until], prefix) {
		until++
	}
	if from == until {
		return
	}
	all := &invalidation{keys: keys[from:until], broadcast: true}
	for told, id := range t.trackersOf(prefix) {
		yieldAfter(told)
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
			t.sendTo(id, &invalidation{keys: others, broadcast: true})
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

// sendTo tells a session, or the one that it redirects to.
func (t *Table) sendTo(id int64, what *invalidation) {
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
		case m.Protocol() != 3 && !(tr.Redirect != 0 && m.Subscribed()):
			return nil // who cannot be told has not been told
		case what.broadcast && m.NotePendingKeys(what.keys):
			return nil
		case m.Protocol() == 3:
			return what.push.InAs(own, 3, func(out *resp.Writer) { what.write(out, own, "invalidate") })
		}
		return what.message.InAs(own, 2, func(out *resp.Writer) { what.write(out, own, "message", invalidationChannel) })
	})
}

// invalidationChannel is the channel on which a client in RESP2 is told.
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
