package memory

import (
	"runtime"

	"cellserver/internal/entry"
	"cellserver/internal/form"
)

// Snapshot writes the entry of the databases, and the entries (package entry) of all keys. It
// calls write with chunks of whole entries. A chunk is valid until write returns. Keys change
// while others are visited, so the entries are of different instants, and a key that changes
// meanwhile may be written twice or not at all. To get the content of the store at one instant,
// also apply all passes from one that began before Snapshot to one that began after it returned.
//
// Snapshot locks one shard at a time, for the records of one page at most, and none while it calls
// write. It needs memory for one chunk.
func (m *Store) Snapshot(write func(entries []byte) error) error {
	w := snapshotWriter{write: write, chunk: m.appendDatabases(nil)}
	for _, db := range m.allDatabases() {
		if keys := db.keys(); keys > 0 {
			w.chunk = entry.AppendSize(w.chunk, db.generation.Load(), keys)
		}
		for i := range db.shards {
			for w.page, w.from = 0, 0; w.visit(db, &db.shards[i]); {
				if err := w.drain(entriesBytes); err != nil {
					return err
				}
			}
		}
	}
	err := w.drain(1)
	m.tracking.Load().forgetGenerations()
	return err
}

// appendDatabases appends the entry of the databases. A later one is in the passes that complete a
// snapshot; if a repair had to remove them, this one says to which databases the keys belong.
func (m *Store) appendDatabases(dst []byte) []byte {
	m.createMu.Lock()
	defer m.createMu.Unlock()
	return entry.AppendDatabases(dst, m.generations())
}

// keys returns about how many records a database has: each shard is counted at another instant.
func (db *database) keys() (n int) {
	for i := range db.shards {
		s := &db.shards[i]
		s.lock()
		n += s.records
		s.unlock()
	}
	return n
}

type snapshotWriter struct {
	chunk      []byte
	state      form.State
	write      func([]byte) error
	page       int    // the next page of the shard
	from       ref    // the first record of that page that has not been visited
	recordless *shard // the last shard whose keys without records were visited
	pages      int    // pages visited since the goroutine last yielded
}

// yieldPages is the number of pages that are visited before the goroutine yields the processor.
const yieldPages = 8

// visit appends the entries of the next records of a shard: all records of a page, or fewer if their
// entries exceed sliceBytes. It returns false if there are no more.
func (w *snapshotWriter) visit(db *database, s *shard) bool {
	if w.pages++; w.pages == yieldPages {
		w.pages = 0
		runtime.Gosched()
	}
	s.lock()
	defer s.unlock()
	if w.page >= len(s.pages.list) {
		return w.appendRecordless(db, s)
	}
	generation, begin, next := db.generation.Load(), len(w.chunk), ref(0)
	s.pages.each(w.page, func(at ref, r record) {
		switch {
		case at < w.from || next != 0:
		case len(w.chunk)-begin >= sliceBytes:
			next = at
		default:
			w.append(s, generation, at, r)
		}
	})
	if w.from = next; next == 0 {
		w.page++
	}
	return true
}

// appendRecordless appends the holds of a shard's keys that have no record any more. It does so once for each shard,
// and returns false if it has been done.
func (w *snapshotWriter) appendRecordless(db *database, s *shard) bool {
	if w.recordless == s || s.holds.len() == 0 {
		return false
	}
	w.recordless = s
	for key, book := range s.holds.all() {
		if r, _ := s.find(s.hash(key), key); r == nil || s.isExpired(r.expires(), s.lastInstant) {
			w.chunk = entry.AppendHolds(w.chunk, db.generation.Load(), key, &book)
		}
	}
	return true
}

// append appends the entry of a record, if it has not expired. A log or leases that have a baseline
// are marked, so that the next pass writes their whole state, or that the key is gone: the snapshot
// may replace the passes that contain the baseline, but not later deltas that are based on it.
func (w *snapshotWriter) append(s *shard, generation uint64, at ref, r record) {
	if s.isExpired(r.expires(), s.lastInstant) {
		if s.hasBaseline(r) {
			s.changes.mark(s, r, at)
		}
		return
	}
	w.chunk = s.appendEntry(w.chunk, generation, r.key(), r, &w.state)
	w.chunk = s.appendHolds(w.chunk, generation, r.key())
	if s.forgetBaseline(r) {
		s.changes.mark(s, r, at)
	}
}

// drain calls write with the chunk if it has at least minBytes.
func (w *snapshotWriter) drain(minBytes int) error {
	if len(w.chunk) < minBytes {
		return nil
	}
	err := w.write(w.chunk)
	if w.chunk = w.chunk[:0]; cap(w.chunk) > 4*entriesBytes {
		w.chunk = nil
	}
	return err
}
