package memory

import (
	"runtime"

	"cellserver/internal/form"
)

// Snapshot calls write with what all keys hold, in chunks of whole entries (package entry). Keys are
// visited one after the other, while others change, so the entries are of different instants, and a
// key may be in it twice or not at all if it changed meanwhile. They become the content of the store
// at one instant by applying, in addition, all passes from one that began before Snapshot to one
// that began after it.
//
// Snapshot holds the lock of one shard at a time, for the records of one page, and calls write
// without a lock. A chunk is valid until write returns. It takes no memory but that of a chunk.
func (m *Store) Snapshot(write func(entries []byte) error) error {
	w := snapshotWriter{write: write}
	for _, db := range m.allDatabases() {
		for i := range db.shards {
			for page, more := 0, true; more; page++ {
				more = w.visit(db, &db.shards[i], page)
				if err := w.drain(entriesBytes); err != nil {
					return err
				}
			}
		}
	}
	err := w.drain(1)
	m.tracking.forgetContents()
	return err
}

type snapshotWriter struct {
	chunk []byte
	state form.State
	write func([]byte) error
	pages int // visited since the goroutine last yielded
}

// yieldPages is the number of pages that are visited before steps that wait for the processor come
// first.
const yieldPages = 32

// visit appends the entries of a page of records, and reports whether there are more pages.
func (w *snapshotWriter) visit(db *database, s *shard, page int) (more bool) {
	if w.pages++; w.pages == yieldPages {
		w.pages = 0
		runtime.Gosched()
	}
	s.lock()
	defer s.unlock()
	if page >= len(s.pages.list) {
		return false
	}
	content := db.content.Load()
	s.pages.each(page, func(at ref, r record) {
		if r.expires() <= s.lastInstant {
			if s.isVersioned(r) {
				s.changes.mark(s, r, at)
			}
			return
		}
		w.chunk = s.appendEntry(w.chunk, content, r.key(), r, &w.state)
		if s.forgetWritten(r) {
			s.changes.mark(s, r, at)
		}
	})
	return true
}

func (w *snapshotWriter) drain(least int) error {
	if len(w.chunk) < least {
		return nil
	}
	err := w.write(w.chunk)
	if w.chunk = w.chunk[:0]; cap(w.chunk) > 4*entriesBytes {
		w.chunk = nil
	}
	return err
}
