package memory

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"cellserver/internal/entry"
	"cellserver/internal/form"
	"cellserver/internal/store"
)

// ErrPassTooLarge is the error of a pass during which other steps wrote too much, or before which
// too many keys came and went.
var ErrPassTooLarge = errors.New("too much changed during the pass, or since the one before")

const (
	entriesBytes = 256 << 10 // approximate size of a chunk
	pendingBytes = 64 << 20  // what steps may write to a pass before its owner has written it
	maxRounds    = 4         // how often a pass visits the shards at most because of large steps
	sliceRecords = 512       // records that are visited in one hold of a lock
	yieldRecords = 2048      // records that are visited before steps that wait for the processor come first
	prefetchRefs = 12        // records that are loaded into the cache ahead of the visit
	sliceBytes   = 64 << 10  // size of the entries that are written in one hold of a lock, without the last
)

// passSizes are sizes that tests change.
type passSizes struct {
	chunk  int // size at which a chunk is passed on
	slice  int // records that are visited in one hold of a lock
	log    int // entries of a log of which only changes are written, at least
	leases int // leases of which only changes are written, at least
}

// tracking is what the passes of a store have in common. It exists if the store tracks changes.
type tracking struct {
	passing sync.Mutex // held during a pass
	passSizes
	active atomic.Bool
	lost   atomic.Bool   // changes were forgotten, because there was no pass for a long time
	number atomic.Uint64 // of the pass that is under way, or was the last one
	// versions is the last version of a log or of leases that was written; see delta.go.
	versions *atomic.Uint64

	// Locked after the locks of shards.
	mu       sync.Mutex
	pending  []byte // entries to be passed on, in the order in which they were made
	again    bool   // the pass must visit all shards once more
	whole    bool   // steps of any size write to the pass
	tooLarge bool
	written  bool       // a chunk of this pass has been passed on
	contents []uint64   // what was last written about the databases; nil if that must be repeated
	state    form.State // scratch memory

	// Of the goroutine that makes the pass.
	write   func(entries []byte) error
	err     error
	spare   []byte // for the next chunk
	visited int    // records since the goroutine last yielded
}

// TrackChanges makes the store note which keys change from now on, for Pass. It must be called
// before the first step, after Load if there is one.
func (m *Store) TrackChanges() {
	m.createMu.Lock() // a database that is created meanwhile must not be left out
	defer m.createMu.Unlock()
	t := &tracking{
		versions: &m.lastVersion, passSizes: passSizes{entriesBytes, sliceRecords, minLogChanges, minLeaseChanges},
	}
	m.tracking.Store(t)
	m.listeners.keep()
	for n := range m.databases {
		if db := m.database(n); db != nil {
			db.trackChanges(t)
		}
	}
}

func (db *database) trackChanges(t *tracking) {
	for i := range db.shards {
		s := &db.shards[i]
		s.lock() // clients may look at keys, such as those that they watch
		s.changes = &changes{content: &db.content, lost: &t.lost}
		s.unlock()
	}
}

// Pass calls write with what the keys hold that have changed since the previous pass, or since
// TrackChanges, in chunks of whole entries (package entry). A step on several keys is in one pass as
// a whole. What changes during the pass may be in it or in the next one. If nothing has changed,
// Pass does not call write, unless it is the first after Snapshot. If Pass returns an error, of write
// or ErrPassTooLarge, what the pass contained will not be part of later passes.
//
// Pass holds the lock of one shard at a time, for up to some hundred keys, and calls write without a
// lock. A chunk is valid until write returns.
func (m *Store) Pass(write func(entries []byte) error) error {
	t := m.tracking.Load()
	t.passing.Lock()
	defer t.passing.Unlock()
	t.begin(write)
	for round := 1; ; round++ {
		for _, db := range m.allDatabases() {
			for i := range db.shards {
				t.visit(&db.shards[i])
			}
		}
		if t.end(m, round) {
			break
		}
	}
	if t.drain(1); t.err != nil {
		t.forgetContents()
	}
	return t.err
}

// begin begins a pass. Steps that lock several keys from now on write to it.
func (t *tracking) begin(write func([]byte) error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.write, t.err = write, nil
	t.again, t.whole, t.tooLarge, t.written = false, false, false, false
	t.number.Add(1)
	t.active.Store(true)
}

// end ends a pass, unless it must visit the shards once more. It waits for transactions on all keys,
// which may be between the swap of two databases and a step on their keys. In the last round, steps
// of any size write to the pass: otherwise clients that make large steps all the time would keep it
// from ending.
func (t *tracking) end(m *Store, round int) (done bool) {
	m.createMu.Lock()
	defer m.createMu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.again {
		t.again, t.whole = false, round >= maxRounds
		return false
	}
	t.tooLarge = t.lost.Swap(false) || t.tooLarge
	t.active.Store(false)
	contents := m.contents()
	if t.written || len(t.pending) > 0 || !slices.Equal(contents, t.contents) {
		t.pending = entry.AppendDatabases(t.pending, contents)
		t.contents = contents
	}
	return true
}

// forgetContents makes the next pass write the contents of the databases, even if nothing changes.
func (t *tracking) forgetContents() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.contents = nil
}

// allDatabases returns the databases that exist.
func (m *Store) allDatabases() (list []*database) {
	m.createMu.Lock()
	defer m.createMu.Unlock()
	for n := range m.databases {
		if db := m.database(n); db != nil {
			list = append(list, db)
		}
	}
	return list
}

// contents returns the content of each database. It is called with createMu held.
func (m *Store) contents() []uint64 {
	list := make([]uint64, len(m.databases))
	for n := range list {
		if db := m.database(n); db != nil {
			list[n] = db.content.Load()
		}
	}
	return list
}

// visit writes what has changed in a shard. The names come last, so that a record that is removed
// or moved before its reference is visited is among them.
func (t *tracking) visit(s *shard) {
	s.lock()
	refs := s.changes.refs
	s.changes.refs = nil
	s.unlock()
	for len(refs) > 0 {
		refs = refs[t.visitRefs(s, refs):]
		t.drain(t.chunk)
	}
	s.lock()
	names := s.changes.names
	s.changes.names, s.changes.named = nil, 0
	s.unlock()
	visited, slice := 0, make([]string, 0, min(len(names), t.slice))
	for name := range names {
		slice = append(slice, name)
		if visited++; len(slice) < cap(slice) && visited < len(names) {
			continue
		}
		for len(slice) > 0 {
			slice = slice[t.visitNames(s, slice):]
			t.drain(t.chunk)
		}
		slice = make([]string, 0, t.slice)
	}
}

// visitRefs visits the first of some records, and returns how many it has visited.
func (t *tracking) visitRefs(s *shard, refs []ref) (visited int) {
	s.lock()
	defer s.unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	begin, content := len(t.pending), s.changes.content.Load()
	defer func() { t.visited += visited }()
	for i, at := range refs[:min(len(refs), t.slice)] {
		if i+prefetchRefs < len(refs) {
			s.pages.prefetch(refs[i+prefetchRefs])
		}
		visited++
		r := s.pages.recordAt(at)
		if r == nil || !r.dirty() {
			continue // it was removed, moved, or visited already
		}
		r.clearDirty()
		if tat := r.expires(); r.kind() == store.Throttle && tat > s.lastInstant { // the usual case
			t.pending = entry.AppendThrottle(t.pending, content, r.key(), tat)
		} else {
			t.appendChange(s, r.key(), r)
		}
		if len(t.pending)-begin >= sliceBytes {
			break
		}
	}
	return visited
}

// visitNames is visitRefs for keys that must be looked up.
func (t *tracking) visitNames(s *shard, names []string) (visited int) {
	s.lock()
	defer s.unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	begin := len(t.pending)
	defer func() { t.visited += visited }()
	for _, name := range names[:min(len(names), t.slice)] {
		visited++
		key := []byte(name)
		r, _ := s.find(s.hash(key), key)
		if r != nil {
			r.clearDirty()
		}
		if t.appendChange(s, key, r); len(t.pending)-begin >= sliceBytes {
			break
		}
	}
	return visited
}

// appendEntry appends the entry of a live key with its whole content.
func (s *shard) appendEntry(dst []byte, content uint64, key []byte, r record, scratch *form.State) []byte {
	switch r.kind() {
	case store.Throttle:
		return entry.AppendThrottle(dst, content, key, r.expires())
	case store.Integer:
		return entry.AppendInteger(dst, content, key, r.expires(), r.field(0))
	case store.Bytes:
		return entry.AppendBytes(dst, content, key, r.expires(), r.bytes())
	}
	s.state(r, s.lastInstant, scratch)
	return entry.AppendLimiter(dst, content, key, scratch)
}

// writeStep writes to the pass what the keys hold that a step has changed, unless that pass has
// ended: then all of them will be in the next one.
func (t *tracking) writeStep(p *step) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.active.Load() || t.number.Load() != p.pass || t.tooLarge {
		return
	}
	begin := len(t.pending)
	for c := range p.refs {
		if r := c.shard.pages.recordAt(c.at); r != nil && r.dirty() && !t.appendOf(p, begin, c.shard, r.key(), r) {
			return
		}
	}
	for c := range p.names {
		key := []byte(c.key)
		r, _ := c.shard.find(c.shard.hash(key), key)
		if !t.appendOf(p, begin, c.shard, key, r) {
			return
		}
	}
}

// appendOf is appendChange for a key that a step has changed. If the step has changed too much, it
// drops what it has appended since begin, and returns false. It also does so if all steps together
// have written too much; then the pass fails.
func (t *tracking) appendOf(p *step, begin int, s *shard, key []byte, r record) bool {
	if t.whole || len(t.pending)-begin+len(key)+s.stateBytes(r) <= stepBytes {
		if t.appendChange(s, key, r); len(t.pending) > pendingBytes {
			t.pending, t.tooLarge = nil, true
		}
		return !t.tooLarge
	}
	t.pending, t.again = t.pending[:begin], true
	for c := range p.refs {
		if r := c.shard.pages.recordAt(c.at); r != nil {
			c.shard.forgetWritten(r)
		}
	}
	return false
}

// drain passes on the pending entries if they are at least so many bytes. After an error it drops
// them: the pass goes on nevertheless, so that no record keeps a mark without being listed.
func (t *tracking) drain(least int) {
	t.mu.Lock()
	chunk := t.pending
	if len(chunk) >= least {
		t.pending, t.written = t.spare[:0], true
	}
	if t.tooLarge && t.err == nil {
		t.err = ErrPassTooLarge
	}
	t.mu.Unlock()
	if t.visited >= yieldRecords {
		t.visited = 0
		runtime.Gosched()
	}
	if len(chunk) < least {
		return
	}
	if t.err == nil {
		t.err = t.write(chunk)
	}
	if t.spare = nil; cap(chunk) <= 4*entriesBytes {
		t.spare = chunk
	}
}
