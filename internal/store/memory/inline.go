package memory

import (
	"encoding/binary"

	"cellserver/internal/lease"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
	"cellserver/internal/window"
)

// State that does not fit in the fixed part of a record (log entries, leases) is kept in the record
// itself while it is small: then it is loaded from memory together with its key, and costs the
// garbage collector nothing. It moves to a slab when the record would no longer fit in a shared
// page.
//
// The last 4 bytes of such a record's value say which: the number of an object in a slab or, with
// the first bit set, the size of the inline state. For a log, which is a ring, that is its
// capacity, the index of the oldest entry, and the number of entries.

const (
	inlineBit = 1 << 31
	maxInline = maxClass * unitBytes // the largest record with inline state
)

// inline returns the inline state of a record, or nil if there is none.
func (r record) inline() []byte {
	if !r.isInline() {
		return nil
	}
	at := r.atValue() + valueBytes[r.kind()]
	return r[at : at+r.inlineBytes()]
}

func (r record) isInline() bool {
	return (r.kind() == limit.SlidingLog || r.kind() == limit.Lease) && r.stateWord()&inlineBit != 0
}

func (r record) inlineBytes() int {
	n := r.stateWord() &^ inlineBit
	if r.kind() == limit.SlidingLog {
		return int(n>>16) * entryBytes
	}
	return int(n)
}

// resize moves a record of a log or of leases to a slot of size bytes, if its own is too small, or
// more than twice as large. Inline state is not copied. A record that is to become smaller stays
// where it is if there is no memory.
func (s *shard) resize(at *keySlot, size int) error {
	from := at.position.ref()
	slotSize := s.pages.slotSize(from)
	switch {
	case size <= slotSize && 2*size+unitBytes > slotSize:
		return nil
	case size > slotSize && s.noGrowth:
		return store.ErrFull
	}
	to, ok := s.pages.alloc(size)
	if !ok && size <= slotSize {
		return nil
	}
	if !ok {
		return store.ErrFull
	}
	s.noteMove(at.record)
	r := s.pages.at(to)
	copy(r, at.record[:recordSize(len(at.key), at.record.kind())])
	at.position.bucket.set(at.position.slot, at.hash.tag, to)
	s.pages.release(from)
	s.publishLayout()
	at.record = r
	return nil
}

// createOrResize gives a key a record of a kind with so many bytes after its value: a new one, or
// the existing one, in another slot if necessary.
func (s *shard) createOrResize(at *keySlot, kind limit.Kind, bytes int) error {
	if at.live {
		return s.resize(at, recordSize(len(at.key), kind)+bytes)
	}
	return s.createIfAbsent(at, kind, bytes)
}

// inlineCapacity returns how many bytes of inline state a key's record may have: none if the key is
// long.
func inlineCapacity(key []byte, kind limit.Kind) int {
	return max(maxInline-recordSize(len(key), kind), 0)
}

// logRing is the ring of a log's entries in its record. It implements window.Entries.
type logRing struct {
	entries []byte
	head    int // index of the oldest entry
	count   int
}

func (r record) ring() logRing {
	n := r.stateWord()
	return logRing{entries: r.inline(), head: int(n >> 8 & 0xff), count: int(n & 0xff)}
}

// setRing sets the capacity, the oldest entry and the number of entries of an inline ring.
func (r record) setRing(size, head, count int) {
	r.setStateWord(inlineBit | uint32(size)<<16 | uint32(head)<<8 | uint32(count))
}

func (l *logRing) Len() int { return l.count }

func (l *logRing) At(i int) window.Entry {
	e := l.at(i)
	return window.Entry{At: int64(binary.LittleEndian.Uint64(e)), Total: binary.LittleEndian.Uint64(e[8:])}
}

func (l *logRing) set(i int, entry window.Entry) {
	e := l.at(i)
	binary.LittleEndian.PutUint64(e, uint64(entry.At))
	binary.LittleEndian.PutUint64(e[8:], entry.Total)
}

func (l *logRing) at(i int) []byte {
	i = (l.head + i) * entryBytes
	if i >= len(l.entries) {
		i -= len(l.entries)
	}
	return l.entries[i : i+entryBytes]
}

// logEntries returns the entries of a live key. It is valid until the next call.
func (s *shard) logEntries(r record) window.Entries {
	if !r.isInline() {
		return s.logs.at(r.stateWord())
	}
	s.scratchRing = r.ring()
	return &s.scratchRing
}

// editLog makes the edit that a step returned, and creates the record if there is none.
func (s *shard) editLog(at *keySlot, e window.Edit) error {
	switch {
	case !at.live:
		s.scratchEntries = append(s.scratchEntries[:0], e.Entry)
		return s.storeLog(at)
	case s.noGrowth && s.logGrows(at, e):
		return store.ErrFull
	case at.record.isInline():
		return s.editRing(at, e)
	}
	n := at.record.stateWord()
	log := s.logs.at(n)
	s.logs.bytes -= log.bytes()
	log.apply(e)
	s.logs.bytes += log.bytes()
	if log.Len()*entryBytes > maxInline/4 || log.Len()*entryBytes > inlineCapacity(at.key, limit.SlidingLog) {
		return nil
	}
	s.gatherEntries(log, 0, log.Len())
	if s.storeRing(at) == nil { // otherwise the entries stay in the slab
		s.logs.bytes -= log.bytes()
		s.logs.remove(n)
	}
	return nil
}

// gatherEntries copies entries of a log to s.scratchEntries.
func (s *shard) gatherEntries(log window.Entries, from, to int) {
	s.scratchEntries = s.scratchEntries[:0]
	for i := from; i < to; i++ {
		s.scratchEntries = append(s.scratchEntries, log.At(i))
	}
}

// storeLog makes s.scratchEntries the entries of a record, which must not have entries in a slab.
// Inline entries are overwritten.
func (s *shard) storeLog(at *keySlot) error {
	if len(s.scratchEntries)*entryBytes <= inlineCapacity(at.key, limit.SlidingLog) {
		return s.storeRing(at)
	}
	if s.noGrowth {
		return store.ErrFull
	}
	if err := s.createOrResize(at, limit.SlidingLog, 0); err != nil {
		return err
	}
	n, log := s.logs.add()
	log.fill(s.scratchEntries)
	s.logs.bytes += log.bytes()
	at.record.setStateWord(n)
	return nil
}

// storeRing is storeLog for entries that fit in the record. The ring has room for half as many
// again, but none for a single entry, as many logs have just one.
func (s *shard) storeRing(at *keySlot) error {
	count := len(s.scratchEntries)
	size := min(count+count/2, inlineCapacity(at.key, limit.SlidingLog)/entryBytes)
	if err := s.createOrResize(at, limit.SlidingLog, size*entryBytes); err != nil {
		return err
	}
	at.record.setRing(size, 0, count)
	s.scratchRing = at.record.ring()
	for i, e := range s.scratchEntries {
		s.scratchRing.set(i, e)
	}
	return nil
}

// editRing makes an edit in the record. It reallocates the ring if it is full or much too large.
func (s *shard) editRing(at *keySlot, e window.Edit) error {
	s.scratchRing = at.record.ring()
	ring := &s.scratchRing
	size, kept := len(ring.entries)/entryBytes, e.Left(ring.count)
	if kept > size || size > 4*kept+2 {
		s.gatherEntries(ring, e.Drop, ring.count-e.Cut)
		if e.Push {
			s.scratchEntries = append(s.scratchEntries, e.Entry)
		}
		return s.storeLog(at)
	}
	if ring.head += e.Drop; ring.head >= size {
		ring.head -= size
	}
	if e.Push {
		ring.set(kept-1, e.Entry)
	}
	at.record.setRing(size, ring.head, kept)
	return nil
}

// leaseTable returns the leases of a key: the shard's scratch table if they are inline.
func (s *shard) leaseTable(at *keySlot) lease.Table {
	if at.live && !at.record.isInline() {
		return s.leases.at(at.record.stateWord())
	}
	s.scratchLeases.Load(nil)
	if at.live {
		s.scratchLeases.Load(at.record.inline())
	}
	return &s.scratchLeases
}

// peekLease returns the decision that a request for a lease would get, or its error.
func (s *shard) peekLease(at *keySlot, r lease.Request, maxHolders int) (quota.Decision, error) {
	table := s.leaseTable(at)
	d, err := table.Peek(s.lastInstant, r, maxHolders)
	s.countEnded(table)
	return d, err
}

// countEnded updates the bytes of leases that a step has looked at, as some may have ended. In a step that must not
// allocate, endNoGrowth does so, because a lease that begins may use the memory of leases that have ended.
func (s *shard) countEnded(table lease.Table) {
	if held, many := table.(*keyLeases); many && !s.noGrowth {
		held.updateBytes(&s.leases)
	}
}

// saveLeases stores a key's leases after a step, which may have changed one holder's lease,
// and sets the expiry to the end of the last. A key without leases is removed.
func (s *shard) saveLeases(at *keySlot, table lease.Table, changed bool, holder []byte) error {
	held, many := table.(*keyLeases)
	if many {
		held.updateBytes(&s.leases) // some may have ended, even if the step changed nothing
	}
	switch {
	case !changed:
		return nil
	case table.Len() == 0:
		s.removeKey(at)
		return nil
	}
	expires := table.Expires()
	if many {
		held.baseline.change(holder, held.Len())
	}
	if !many {
		if err := s.storeLeases(at); err != nil {
			return err
		}
	} else if held.ToFew(&s.scratchLeases, min(maxInline/4, inlineCapacity(at.key, limit.Lease))) {
		n := at.record.stateWord()
		if s.storeLeases(at) == nil { // otherwise the leases stay in the slab
			s.leases.bytes -= held.counted
			s.leases.remove(n)
		}
	}
	s.commit(at, expires)
	return nil
}

// storeLeases makes s.scratchLeases the leases of a key. Inline leases of its record are
// overwritten.
func (s *shard) storeLeases(at *keySlot) error {
	few := s.scratchLeases.Bytes()
	bytes := len(few)
	if bytes > inlineCapacity(at.key, limit.Lease) {
		if s.noGrowth {
			return store.ErrFull
		}
		bytes = 0
	}
	if err := s.createOrResize(at, limit.Lease, bytes); err != nil {
		return err
	}
	if bytes > 0 {
		at.record.setStateWord(inlineBit | uint32(len(few)))
		copy(at.record.inline(), few)
		return nil
	}
	n, held := s.leases.add()
	held.Leases = *s.scratchLeases.ToLeases()
	held.updateBytes(&s.leases)
	at.record.setStateWord(n)
	return nil
}
