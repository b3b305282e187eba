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
// Snapshot holds the lock of one shard at a time, for the records of one page or fewer, and calls
// write without a lock. A chunk is valid until write returns. It takes no memory but that of a chunk.
func (m *Store) Snapshot(write func(entries []byte) error) error {
	w := snapshotWriter{write: write}
	for _, db := range m.allDatabases() {
		for i := range db.shards {
			for w.page, w.from = 0, 0; w.visit(db, &db.shards[i]); {
				if err := w.drain(entriesBytes); err != nil {
					return err
				}
			}
		}
	}
	err := w.drain(1)
	m.tracking.Load().forgetContents()
	return err
}

type snapshotWriter struct {
	chunk []byte
	state form.State
	write func([]byte) error
	page  int // the next page of the shard
	from  ref // the first record of that page that has not been visited
	pages int // visited since the goroutine last yielded
}

// yieldPages is the number of pages that are visited before steps that wait for the processor come
// first.
const yieldPages = 32

// visit appends the entries of the next records of a shard: those of a page, unless they are large.
// It returns false if there are no more.
func (w *snapshotWriter) visit(db *database, s *shard) bool {
	if w.pages++; w.pages == yieldPages {
		w.pages = 0
		runtime.Gosched()
	}
	s.lock()
	defer s.unlock()
	if w.page >= len(s.pages.list) {
		return false
	}
	content, begin, next := db.content.Load(), len(w.chunk), ref(0)
	s.pages.each(w.page, func(at ref, r record) {
		switch {
		case at < w.from || next != 0:
		case len(w.chunk)-begin >= sliceBytes:
			next = at
		default:
			w.append(s, content, at, r)
		}
	})
	if w.from = next; next == 0 {
		w.page++
	}
	return true
}

func (w *snapshotWriter) append(s *shard, content uint64, at ref, r record) {
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
