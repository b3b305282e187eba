package memory

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"cellserver/internal/entry"
	"cellserver/internal/form"
	"cellserver/internal/limit"
)

// ErrPassTooLarge is the error of Pass if a bound on memory was exceeded: pendingBytes during the
// pass, or maxChanges before it.
var ErrPassTooLarge = errors.New("too much changed during the pass, or since the one before")

const (
	entriesBytes = 256 << 10 // approximate size of a chunk
	pendingBytes = 64 << 20  // bound on the entries that steps may append faster than they are written
	maxRounds    = 4         // visits of all shards after which steps of any size write to the pass
	sliceRecords = 512       // most records that are visited before the shard is unlocked
	yieldRecords = 2048      // records that are visited before the goroutine yields the processor
	prefetchRefs = 12        // distance, in records, between prefetching and visiting
	sliceBytes   = 64 << 10  // size of entries, without the last, at which the shard is unlocked
)

// passSizes are constants that tests change.
type passSizes struct {
	chunk         int // size, in bytes, at which a chunk is passed to write
	slice         int // most records that are visited before the shard is unlocked
	minLogDelta   int // minimum number of entries of a log for a delta
	minLeaseDelta int // minimum number of leases of a key for a delta
}

// tracking is the state of the passes of a store. It exists if the store tracks changes.
type tracking struct {
	passing sync.Mutex // held during a pass
	passSizes
	active     atomic.Bool    // a pass is in progress: steps on several keys write to it
	overflowed atomic.Bool    // a shard has discarded its list of changes: the next pass must fail
	number     atomic.Uint64  // of the pass in progress, or else of the last one
	versions   *atomic.Uint64 // the last version of a log or of leases that was used; see delta.go

	// mu is locked after the locks of shards. It protects the fields up to state.
	mu          sync.Mutex
	pending     []byte     // entries that have not been passed to write, in order
	repeat      bool       // the pass must visit all shards once more
	noStepLimit bool       // steps of any size write to the pass
	tooLarge    bool       // the pass must fail with ErrPassTooLarge
	written     bool       // a chunk of this pass has been passed to write
	generations []uint64   // the generations in the last entry of the databases; nil if the next pass must write one
	state       form.State // scratch memory

	// The remaining fields are used only by the goroutine that makes the pass.
	write   func(entries []byte) error
	err     error  // the first error of write, or ErrPassTooLarge
	spare   []byte // memory for the next chunk
	list    []ref  // memory for the list of the next shard: the list of the last one visited
	visited int    // records since the goroutine last yielded
}

// TrackChanges makes the store record which keys change, for Pass. It must be called before the
// first step, and after a load if there is one.
func (m *Store) TrackChanges() {
	m.createMu.Lock() // a database that is created meanwhile must not be left out
	defer m.createMu.Unlock()
	t := &tracking{
		versions: &m.lastVersion, passSizes: passSizes{entriesBytes, sliceRecords, minLogDelta, minLeaseDelta},
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
		s.lock() // during a load, transactions may look up the keys that their clients watch
		s.changes.tracked = &tracked{generation: &db.generation, overflowed: &t.overflowed}
		s.unlock()
	}
}

// Pass writes the entries (package entry) of all keys that have changed since the previous pass
// began, or since TrackChanges. It calls write with chunks of whole entries. A chunk is valid
// until write returns. All changes of one step are in the same pass; changes of a step during the
// pass are in this one or in the next. If nothing has changed, Pass does not call write, except in
// the first pass after a Snapshot.
//
// If Pass returns an error, which is write's or ErrPassTooLarge, later passes do not repeat
// what this one contained.
//
// Pass locks one shard at a time, for at most a few hundred records, and none while it calls write.
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
		t.forgetGenerations()
	}
	return t.err
}

// begin begins a pass. From now on, steps on several keys write to it.
func (t *tracking) begin(write func([]byte) error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.write, t.err = write, nil
	t.repeat, t.noStepLimit, t.tooLarge, t.written = false, false, false, false
	t.number.Add(1)
	t.active.Store(true)
}

// end ends a pass, unless it must visit the shards once more. Transactions on all keys hold
// createMu; by locking it, end waits for them: one of them may have swapped two databases, and
// change their keys next, and both belong in the same pass.
func (t *tracking) end(m *Store, round int) (done bool) {
	m.createMu.Lock()
	defer m.createMu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.repeat {
		t.repeat, t.noStepLimit = false, round >= maxRounds
		return false
	}
	t.tooLarge = t.overflowed.Swap(false) || t.tooLarge
	t.active.Store(false)
	generations := m.generations()
	if t.written || len(t.pending) > 0 || !slices.Equal(generations, t.generations) {
		t.pending = entry.AppendDatabases(t.pending, generations)
		t.generations = generations
	}
	return true
}

// forgetGenerations makes the next pass write the entry of the databases, even if nothing changes.
func (t *tracking) forgetGenerations() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.generations = nil
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

// generations returns the generation of each database, by number; 0 for one that was never written
// to. The caller holds createMu.
func (m *Store) generations() []uint64 {
	list := make([]uint64, len(m.databases))
	for n := range list {
		if db := m.database(n); db != nil {
			list[n] = db.generation.Load()
		}
	}
	return list
}

// visit writes the changed keys of a shard. It takes the list of names after it has visited the
// references: a record that is removed or moved before its reference is visited is then in that
// list.
func (t *tracking) visit(s *shard) {
	s.lock()
	refs := s.changes.refs
	s.changes.refs = t.emptyList(len(refs))
	s.unlock()
	t.list = refs
	for len(refs) > 0 {
		refs = refs[t.visitRefs(s, refs):]
		t.drain(t.chunk)
	}
	s.lock()
	names := s.changes.names
	s.changes.names, s.changes.nameBytes = nil, 0
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

// emptyList returns an empty list for a shard that has listed n records, with the memory of the
// list that was visited last, unless that is too large. So lists do not grow again after each pass.
func (t *tracking) emptyList(n int) (list []ref) {
	if list, t.list = t.list, nil; cap(list) > 2*n {
		return nil
	}
	return list[:0]
}

// visitRefs visits records until it has visited t.slice of them, or made sliceBytes of entries. It
// returns how many it has visited, at least one.
func (t *tracking) visitRefs(s *shard, refs []ref) (visited int) {
	s.lock()
	defer s.unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	begin, generation := len(t.pending), s.changes.generation.Load()
	defer func() { t.visited += visited }()
	for i, at := range refs[:min(len(refs), t.slice)] {
		if i+prefetchRefs < len(refs) {
			s.pages.prefetch(refs[i+prefetchRefs])
		}
		visited++
		r := s.pages.recordAt(at)
		if r == nil || !r.dirty() {
			continue // it was removed or moved, or has been visited
		}
		r.clearDirty()
		// the usual case
		if tat := r.expires(); r.kind() == limit.Throttle && tat > s.lastInstant && s.holds.len() == 0 {
			t.pending = entry.AppendThrottle(t.pending, generation, r.key(), tat)
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

// appendEntry appends the entry of a live key, with its whole state.
func (s *shard) appendEntry(dst []byte, generation uint64, key []byte, r record, scratch *form.State) []byte {
	switch r.kind() {
	case limit.Throttle:
		return entry.AppendThrottle(dst, generation, key, r.expires())
	case limit.Integer:
		return entry.AppendInteger(dst, generation, key, r.expires(), r.field(0))
	case limit.Bytes:
		return entry.AppendBytes(dst, generation, key, r.expires(), r.bytes())
	}
	s.state(r, s.lastInstant, scratch)
	return entry.AppendLimiter(dst, generation, key, scratch)
}

// writeStep appends the keys that a step has changed to the pass during which it began. If that
// pass has ended, the next one will find all of them. The keys stay dirty, and are written again
// when their shard is visited.
func (t *tracking) writeStep(p *step) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.active.Load() || t.number.Load() != p.pass || t.tooLarge {
		return
	}
	begin := len(t.pending)
	for c := range p.refs {
		if r := c.shard.pages.recordAt(c.at); r != nil && r.dirty() && !t.appendOfStep(p, begin, c.shard, r.key(), r) {
			return
		}
	}
	for c := range p.names {
		key := []byte(c.key)
		r, _ := c.shard.find(c.shard.hash(key), key)
		if !t.appendOfStep(p, begin, c.shard, key, r) {
			return
		}
	}
}

// appendOfStep is appendChange for a key that a step has changed. It returns false if the step need
// not append any more keys, for one of two reasons: its entries exceed stepBytes, so they are
// removed from begin on, and the pass visits all shards once more; or all pending entries exceed
// pendingBytes, so the pass fails.
func (t *tracking) appendOfStep(p *step, begin int, s *shard, key []byte, r record) bool {
	if t.noStepLimit || len(t.pending)-begin+len(key)+s.stateBytes(r) <= stepBytes {
		if t.appendChange(s, key, r); len(t.pending) > pendingBytes {
			t.pending, t.tooLarge = nil, true
		}
		return !t.tooLarge
	}
	t.pending, t.repeat = t.pending[:begin], true // without deltas, on which later ones must not be based
	for c := range p.refs {
		if r := c.shard.pages.recordAt(c.at); r != nil {
			c.shard.forgetBaseline(r)
		}
	}
	return false
}

// drain calls write with the pending entries if there are at least minBytes of them. After an error
// it discards them. The pass continues nevertheless: the lists of the shards have been taken, so a
// record that is not visited would stay dirty without being listed, and never be written again.
func (t *tracking) drain(minBytes int) {
	t.mu.Lock()
	chunk := t.pending
	if len(chunk) >= minBytes {
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
	if len(chunk) < minBytes {
		return
	}
	if t.err == nil {
		t.err = t.write(chunk)
	}
	if t.spare = nil; cap(chunk) <= 4*entriesBytes {
		t.spare = chunk
	}
}
