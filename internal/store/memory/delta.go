package memory

import (
	"cellserver/internal/entry"
	"cellserver/internal/form"
	"cellserver/internal/lease"
	"cellserver/internal/store"
	"cellserver/internal/window"
)

// A log may have a hundred thousand entries, and a key ten thousand leases. Of those a pass writes
// what has changed since the last one, and everything only if it was not written before. What was
// written has a version, and changes name the version that they follow: when they are loaded after
// something else, such as a snapshot that was made meanwhile, they are skipped. A snapshot therefore
// makes the next pass write everything, so that nothing is missing in the end.

// The least number of entries or leases of which only changes are written. So many are in a slab,
// here and when they are loaded.
const (
	minLogChanges   = 4 << 10 / entryBytes
	minLeaseChanges = 128
)

// writtenLog is what was last written about a log.
type writtenLog struct {
	version uint64 // 0 if nothing was, or if everything must be written
	dropped int    // how many of the entries that were there have been removed since, from the oldest
	kept    int    // how many are still there: the oldest of the log
}

// edit notes that a log of count entries is edited.
func (w *writtenLog) edit(e window.Edit, count int) {
	if w.version == 0 {
		return
	}
	dropped := min(e.Drop, w.kept)
	w.dropped += dropped
	w.kept = min(w.kept-dropped, count-e.Drop-e.Cut)
}

// writtenLeases is what was last written about the leases of a key.
type writtenLeases struct {
	version uint64
	changed map[string]struct{} // the holders whose leases have changed since
}

// change notes that the lease of a holder has changed, one of many.
func (w *writtenLeases) change(holder []byte, many int) {
	if w.version == 0 {
		return
	}
	if w.changed == nil {
		w.changed = map[string]struct{}{}
	}
	if w.changed[string(holder)] = struct{}{}; len(w.changed) > many/4 {
		*w = writtenLeases{}
	}
}

// isVersioned reports whether the changes of a record's state may have been written without the
// state that they follow. A snapshot replaces the passes with that state, and leaves out what has
// expired. If the changes are in a later pass, they must then be followed by an entry that says that
// the key is gone: otherwise it seems that its state was lost.
func (s *shard) isVersioned(r record) bool {
	switch {
	case r.isInline():
		return false
	case r.kind() == store.SlidingLog:
		return s.logs.at(r.stateWord()).written.version != 0
	case r.kind() == store.Lease:
		return s.leases.at(r.stateWord()).written.version != 0
	}
	return false
}

// forgetWritten makes the next pass write the whole state of a record. It returns false if the
// record is of a kind of which everything is written anyway.
func (s *shard) forgetWritten(r record) bool {
	switch {
	case r.isInline():
		return false
	case r.kind() == store.SlidingLog:
		s.logs.at(r.stateWord()).written = writtenLog{}
	case r.kind() == store.Lease:
		s.leases.at(r.stateWord()).written = writtenLeases{}
	default:
		return false
	}
	return true
}

// appendChange appends the entry of a key to a pass: what has changed since the last pass, or all of
// it. The record may be nil.
func (t *tracking) appendChange(s *shard, key []byte, r record) {
	content := s.changes.content.Load()
	if r == nil || r.expires() <= s.lastInstant {
		t.pending = entry.AppendGone(t.pending, content, key)
		return
	}
	switch kind := r.kind(); {
	case kind == store.SlidingLog && !r.isInline():
		t.appendLog(s, content, key, r)
	case kind == store.Lease && !r.isInline():
		t.appendLeases(s, content, key, r)
	default:
		t.pending = s.appendEntry(t.pending, content, key, r, &t.state)
	}
}

func (t *tracking) appendLog(s *shard, content uint64, key []byte, r record) {
	log := s.logs.at(r.stateWord())
	from := log.written
	log.written = writtenLog{kept: log.count}
	if log.count >= t.log {
		log.written.version = t.versions.Add(1)
	}
	if added := log.count - from.kept; from.version != 0 && log.written.version != 0 && added <= log.count/4 {
		c := entry.LogChange{
			From: from.version, To: log.written.version, Dropped: from.dropped, Kept: from.kept,
			End: r.expires(), Until: r.logState().Until, Added: make([]window.Entry, added),
		}
		base := r.logState().Base
		if from.kept > 0 {
			base = log.At(from.kept - 1).Total
		}
		for i := range c.Added {
			c.Added[i] = log.At(from.kept + i)
			c.Added[i].Total -= base
		}
		t.pending = entry.AppendLog(t.pending, content, key, &c)
		return
	}
	s.state(r, s.lastInstant, &t.state)
	t.state.Version = log.written.version
	t.pending = entry.AppendLimiter(t.pending, content, key, &t.state)
}

func (t *tracking) appendLeases(s *shard, content uint64, key []byte, r record) {
	held := s.leases.at(r.stateWord())
	from := held.written
	held.written = writtenLeases{}
	if held.Len() >= t.leases {
		held.written.version = t.versions.Add(1)
	}
	if from.version != 0 && held.written.version != 0 {
		c := entry.HoldersChange{From: from.version, To: held.written.version}
		for holder := range from.changed {
			l, found := held.Find([]byte(holder))
			if !found {
				l = lease.Lease{Holder: holder}
			}
			c.Leases = append(c.Leases, l)
		}
		t.pending = entry.AppendHolders(t.pending, content, key, &c)
		return
	}
	s.state(r, s.lastInstant, &t.state)
	t.state.Version = held.written.version
	t.pending = entry.AppendLimiter(t.pending, content, key, &t.state)
}

// setWritten notes the version of a state that was loaded, and may be followed by changes.
func (s *shard) setWritten(r record, state *form.State) {
	switch {
	case r.isInline():
	case state.Kind == form.SlidingLog:
		s.logs.at(r.stateWord()).written = writtenLog{version: state.Version, kept: len(state.Entries)}
	case state.Kind == form.Lease:
		s.leases.at(r.stateWord()).written = writtenLeases{version: state.Version}
	}
}

// applyLog applies changes of a log. It returns false if they do not follow what the key holds.
func (s *shard) applyLog(at *keySlot, c *entry.LogChange) bool {
	if at.record == nil || at.record.kind() != store.SlidingLog || at.record.isInline() {
		return false
	}
	log := s.logs.at(at.record.stateWord())
	if log.written.version != c.From || c.Dropped > log.count || c.Kept > log.count-c.Dropped || c.Kept+len(c.Added) == 0 {
		return false
	}
	s.logs.bytes -= log.bytes()
	base := uint64(at.record.field(0))
	if c.Dropped > 0 {
		base = log.At(c.Dropped - 1).Total
		at.record.setField(0, int64(base))
	}
	log.drop(c.Dropped)
	if log.count = c.Kept; c.Kept > 0 {
		base = log.At(c.Kept - 1).Total
	}
	log.resize(log.count + len(c.Added))
	for _, e := range c.Added {
		log.count++
		*log.at(log.count - 1) = window.Entry{At: e.At, Total: base + e.Total}
	}
	log.written = writtenLog{version: c.To, kept: log.count}
	s.logs.bytes += log.bytes()
	at.record.setField(1, c.Until)
	at.record.setExpires(c.End)
	return true
}

// applyLeases applies changes of leases. It returns false if they do not follow what the key holds.
func (s *shard) applyLeases(at *keySlot, c *entry.HoldersChange) bool {
	if at.record == nil || at.record.kind() != store.Lease || at.record.isInline() {
		return false
	}
	held := s.leases.at(at.record.stateWord())
	if held.written.version != c.From {
		return false
	}
	for _, l := range c.Leases {
		held.Set(l)
	}
	held.written = writtenLeases{version: c.To}
	held.updateBytes(&s.leases)
	at.record.setExpires(held.Expires())
	return true
}
