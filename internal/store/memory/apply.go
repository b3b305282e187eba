package memory

import (
	"fmt"
	"math/bits"
	"unsafe"

	"cellserver/internal/entry"
	"cellserver/internal/form"
	"cellserver/internal/hold"
	"cellserver/internal/limit"
	"cellserver/internal/store"
)

// applier applies the entries of one chunk in batches, and each batch shard by shard. So it locks a
// shard once per batch, and what the keys of the shard share stays in the cache. The entries of a
// key are in one shard, and stay in order.
type applier struct {
	loader     *Loader
	entries    *entry.Reader
	db         *database // the database of the batch; nil before the first entry
	generation uint64    // of db
	batch      [batchEntries]batchEntry
	count      int // of the entries in batch
	touched    lockSet
	first      [shards]uint16 // the first entry of each shard in touched
	last       [shards]uint16
	at         keySlot
	state      form.State
}

// batchEntries is the number of entries in a batch: enough for some dozen in each shard.
const batchEntries = 8 << 10

type batchEntry struct {
	hash   keyHash
	next   uint16 // the next entry of the same shard, after all but the last
	offset int    // in the chunk
}

// apply applies a chunk.
func (a *applier) apply(chunk []byte) error {
	a.entries, a.db, a.count, a.touched = entry.NewReader(chunk), nil, 0, lockSet{}
	r := entry.NewReader(chunk)
	for r.Next() {
		if err := a.add(r); err != nil {
			return err
		}
	}
	if err := a.flush(); err != nil {
		return err
	}
	return r.Err()
}

// add adds the entry of a key to the batch, and applies an entry of any other kind at once.
func (a *applier) add(r *entry.Reader) error {
	l, full := a.loader, a.count == batchEntries
	if full || a.db == nil || r.Generation != a.generation || r.Kind == entry.Size {
		if err := a.flush(); err != nil {
			return err
		}
	}
	switch {
	case r.Kind == entry.Databases:
		l.setGenerations(r.Generations)
		a.db = nil
		return nil
	case a.db == nil || r.Generation != a.generation:
		a.db, a.generation = l.database(r.Generation), r.Generation
	}
	if r.Kind == entry.Size {
		if !l.verifies {
			a.db.expect(r.Keys)
		}
		return nil
	}
	h, n := l.store.hash(r.Key), uint16(a.count)
	if a.touched.has(h.shard) {
		a.batch[a.last[h.shard]].next = n
	} else {
		a.touched.add(h.shard)
		a.first[h.shard] = n
	}
	a.batch[n], a.last[h.shard] = batchEntry{hash: h, offset: r.Offset()}, n
	a.count++
	return nil
}

// flush applies the batch.
func (a *applier) flush() error {
	for word, bitmap := range a.touched {
		for ; bitmap != 0; bitmap &= bitmap - 1 {
			if err := a.applyShard(word*64 + bits.TrailingZeros64(bitmap)); err != nil {
				return err
			}
		}
	}
	a.count, a.touched = 0, lockSet{}
	return nil
}

// applyShard applies the entries of a shard. First it requests the buckets of all keys, because
// waiting for one after the other would take most of the time.
func (a *applier) applyShard(n int) error {
	s, first, last := &a.db.shards[n], a.first[n], a.last[n]
	s.mu.Lock() // not measured: no client waits for it
	defer s.mu.Unlock()
	s.advance(a.loader.now)
	if s.records > 0 {
		for i := first; i != last; i = a.batch[i].next {
			prefetch(uintptr(unsafe.Pointer(s.index.firstBucket(a.batch[i].hash.position))))
		}
	}
	for i := first; ; i = a.batch[i].next {
		a.entries.Seek(a.batch[i].offset)
		a.entries.Next()
		if err := a.applyEntry(s, a.batch[i].hash, &a.entries.Entry); err != nil || i == last {
			return err
		}
	}
}

// applyEntry applies an entry to its shard, which is locked.
func (a *applier) applyEntry(s *shard, h keyHash, e *entry.Entry) error {
	at := &a.at
	*at = keySlot{hash: h, key: e.Key}
	at.record, at.position = s.find(h, e.Key)
	at.live = at.record != nil
	if e.Kind == entry.Holds {
		return a.applyHolds(s, e)
	}
	s.dropHolds(e.Key)
	if e.Kind == entry.LogDelta || e.Kind == entry.LeaseDelta {
		return a.applyDelta(s, e)
	}
	a.loader.clearSkipped(e)
	expires := e.Expires // or the field of the record that stands for it
	if e.Kind == entry.Limiter {
		if err := a.state.Read(e.Bytes, 0); err != nil {
			return fmt.Errorf("key %.100q: %w", e.Key, err)
		}
		if expires = expiryOf(&a.state); a.state.Version != 0 {
			expires = store.Never // it may have expired, and a delta may extend it
		}
	}
	isKept := !a.loader.verifies || e.Kind == entry.Limiter && a.state.Version != 0
	if isKept && e.Kind != entry.Gone && !s.isExpired(expires, s.lastInstant) {
		return a.write(s, e)
	}
	if at.record != nil {
		s.remove(at.hash, at.position)
	}
	return nil
}

// applyHolds applies the entry of the open holds of a key.
func (a *applier) applyHolds(s *shard, e *entry.Entry) error {
	var book hold.Book
	if err := book.Read(e.Bytes); err != nil {
		return fmt.Errorf("key %.100q: %w", e.Key, err)
	}
	if !a.loader.verifies {
		s.putHolds(e.Key, &book)
	}
	return nil
}

func (a *applier) write(s *shard, e *entry.Entry) error {
	switch e.Kind {
	case entry.Integer:
		return s.write(&a.at, store.Value{Integer: e.Integer, IsInteger: true}, e.Expires)
	case entry.Bytes:
		return s.write(&a.at, store.Value{Bytes: e.Bytes}, e.Expires)
	case entry.Throttle:
		a.state = form.State{Kind: limit.Throttle, TAT: e.Expires, Entries: a.state.Entries[:0],
			Leases: a.state.Leases[:0]}
	}
	err := s.restore(&a.at, &a.state)
	if err == nil {
		a.loader.raiseVersion(a.state.Version)
		s.setBaseline(a.at.record, &a.state)
	}
	return err
}

// applyDelta applies a delta of a log or of leases. If it cannot be applied, the key is skipped
// until an entry with its whole state follows; see delta.go.
func (a *applier) applyDelta(s *shard, e *entry.Entry) error {
	var applied bool
	var to uint64
	if e.Kind == entry.LogDelta {
		c, err := entry.ReadLogDelta(e.Bytes)
		if err != nil {
			return fmt.Errorf("key %.100q: %w", e.Key, err)
		}
		applied, to = s.applyLogDelta(&a.at, &c), c.To
	} else {
		c, err := entry.ReadLeaseDelta(e.Bytes)
		if err != nil {
			return fmt.Errorf("key %.100q: %w", e.Key, err)
		}
		applied, to = s.applyLeaseDelta(&a.at, &c), c.To
	}
	a.loader.raiseVersion(to)
	if !applied {
		a.loader.skipped[skippedKey{e.Generation, string(e.Key)}] = struct{}{}
	}
	return nil
}
