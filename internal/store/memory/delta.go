package memory

import (
	"cellserver/internal/entry"
	"cellserver/internal/form"
	"cellserver/internal/lease"
	"cellserver/internal/limit"
	"cellserver/internal/window"
)

// A log may have a hundred thousand entries, and a key ten thousand leases. If a state is so large, a
// pass writes only a delta (package entry): how the state differs from its baseline, the state that was
// written last. Each written state has a version, and a delta names the version of its baseline.
//
// A load skips a delta if the key does not have that version. This happens to passes that were
// written during a snapshot: the snapshot may have a later state of the key. It is correct because
// Snapshot forgets the baseline of each key that it writes, and the next pass, without which the
// snapshot is not valid, contains the whole state.

// The minimum number of entries or leases for a delta. It is more than fits in a record, in this store
// and in any that loads them, because only a state in a slab has a baseline.
const (
	minLogDelta   = 4 << 10 / entryBytes // 4 KiB of entries
	minLeaseDelta = 128
)

// logBaseline is the baseline of a log, and what has become of its entries since.
type logBaseline struct {
	version uint64 // 0 if there is no baseline: the next pass must write all entries
	dropped int    // number of its oldest entries that have been removed
	kept    int    // number of its entries that remain: they are the oldest of the log
}

// edit records an edit of a log that had count entries before it.
func (w *logBaseline) edit(e window.Edit, count int) {
	if w.version == 0 {
		return
	}
	dropped := min(e.Drop, w.kept)
	w.dropped += dropped
	w.kept = min(w.kept-dropped, count-e.Drop-e.Cut)
}

// leaseBaseline is the baseline of the leases of a key, and which of them have changed since.
type leaseBaseline struct {
	version uint64              // 0 if there is no baseline: the next pass must write all leases
	changed map[string]struct{} // the holders of changed leases
}

// change records that the lease of a holder has changed. count is the number of leases of the key:
// if more than a quarter of them have changed, a delta is not worthwhile.
func (w *leaseBaseline) change(holder []byte, count int) {
	if w.version == 0 {
		return
	}
	if w.changed == nil {
		w.changed = map[string]struct{}{}
	}
	if w.changed[string(holder)] = struct{}{}; len(w.changed) > count/4 {
		*w = leaseBaseline{}
	}
}

// hasBaseline reports whether the last entry of a record may be a delta. If so, an entry must say
// that the key is gone even if it has expired: a snapshot replaces the passes that contain the
// baseline, and leaves out expired keys. A load that found only the delta would report that the
// baseline is missing.
func (s *shard) hasBaseline(r record) bool {
	switch {
	case r.isInline():
		return false
	case r.kind() == limit.SlidingLog:
		return s.logs.at(r.stateWord()).baseline.version != 0
	case r.kind() == limit.Lease:
		return s.leases.at(r.stateWord()).baseline.version != 0
	}
	return false
}

// forgetBaseline makes the next pass that visits a record write its whole state. It returns false
// if the record has no baseline, because passes always write its whole state.
func (s *shard) forgetBaseline(r record) bool {
	switch {
	case r.isInline():
		return false
	case r.kind() == limit.SlidingLog:
		s.logs.at(r.stateWord()).baseline = logBaseline{}
	case r.kind() == limit.Lease:
		s.leases.at(r.stateWord()).baseline = leaseBaseline{}
	default:
		return false
	}
	return true
}

// appendChange appends the entry of a key to a pass: a delta, or its whole state. The record is nil
// if the key does not exist. The caller holds the lock of the shard, and then t.mu.
func (t *tracking) appendChange(s *shard, key []byte, r record) {
	generation := s.changes.generation.Load()
	defer func() { t.pending = s.appendHolds(t.pending, generation, key) }()
	if r == nil || s.isExpired(r.expires(), s.lastInstant) {
		t.pending = entry.AppendGone(t.pending, generation, key)
		return
	}
	switch kind := r.kind(); {
	case kind == limit.SlidingLog && !r.isInline():
		t.appendLogChange(s, generation, key, r)
	case kind == limit.Lease && !r.isInline():
		t.appendLeaseChange(s, generation, key, r)
	default:
		t.pending = s.appendEntry(t.pending, generation, key, r, &t.state)
	}
}

// appendLogChange appends the entry of a log in a slab, and makes its current state the baseline.
// It is a delta if at most a quarter of the entries are new.
func (t *tracking) appendLogChange(s *shard, generation uint64, key []byte, r record) {
	log := s.logs.at(r.stateWord())
	from := log.baseline
	log.baseline = logBaseline{kept: log.count}
	if log.count >= t.minLogDelta {
		log.baseline.version = t.versions.Add(1)
	}
	if added := log.count - from.kept; from.version != 0 && log.baseline.version != 0 && added <= log.count/4 {
		c := entry.LogChanges{
			From: from.version, To: log.baseline.version, Dropped: from.dropped, Kept: from.kept,
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
		t.pending = entry.AppendLogDelta(t.pending, generation, key, &c)
		return
	}
	s.state(r, s.lastInstant, &t.state)
	t.state.Version = log.baseline.version
	t.pending = entry.AppendLimiter(t.pending, generation, key, &t.state)
}

// appendLeaseChange appends the entry of leases in a slab, and makes their current state the
// baseline.
func (t *tracking) appendLeaseChange(s *shard, generation uint64, key []byte, r record) {
	held := s.leases.at(r.stateWord())
	from := held.baseline
	held.baseline = leaseBaseline{}
	if held.Len() >= t.minLeaseDelta {
		held.baseline.version = t.versions.Add(1)
	}
	if from.version != 0 && held.baseline.version != 0 {
		c := entry.LeaseChanges{From: from.version, To: held.baseline.version}
		for holder := range from.changed {
			l, found := held.Find([]byte(holder))
			if !found {
				l = lease.Lease{Holder: holder}
			}
			c.Leases = append(c.Leases, l)
		}
		t.pending = entry.AppendLeaseDelta(t.pending, generation, key, &c)
		return
	}
	s.state(r, s.lastInstant, &t.state)
	t.state.Version = held.baseline.version
	t.pending = entry.AppendLimiter(t.pending, generation, key, &t.state)
}

// setBaseline makes a state that was loaded the baseline of later deltas.
func (s *shard) setBaseline(r record, state *form.State) {
	switch {
	case r.isInline():
	case state.Kind == limit.SlidingLog:
		s.logs.at(r.stateWord()).baseline = logBaseline{version: state.Version, kept: len(state.Entries)}
	case state.Kind == limit.Lease:
		s.leases.at(r.stateWord()).baseline = leaseBaseline{version: state.Version}
	}
}

// applyLogDelta applies a delta of a log. It returns false if the key does not hold the state that
// the delta is based on.
func (s *shard) applyLogDelta(at *keySlot, c *entry.LogChanges) bool {
	if at.record == nil || at.record.kind() != limit.SlidingLog || at.record.isInline() {
		return false
	}
	log := s.logs.at(at.record.stateWord())
	if log.baseline.version != c.From || c.Dropped > log.count || c.Kept > log.count-c.Dropped ||
		c.Kept+len(c.Added) == 0 {
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
	log.baseline = logBaseline{version: c.To, kept: log.count}
	s.logs.bytes += log.bytes()
	at.record.setField(1, c.Until)
	at.record.setExpires(c.End)
	return true
}

// applyLeaseDelta applies a delta of leases. It returns false if the key does not hold the state
// that the delta is based on.
func (s *shard) applyLeaseDelta(at *keySlot, c *entry.LeaseChanges) bool {
	if at.record == nil || at.record.kind() != limit.Lease || at.record.isInline() {
		return false
	}
	held := s.leases.at(at.record.stateWord())
	if held.baseline.version != c.From {
		return false
	}
	for _, l := range c.Leases {
		held.Set(l)
	}
	held.baseline = leaseBaseline{version: c.To}
	held.updateBytes(&s.leases)
	at.record.setExpires(held.Expires())
	return true
}
