package memory

import (
	"encoding/binary"

	"cellserver/internal/lease"
	"cellserver/internal/store"
	"cellserver/internal/window"
)

// What a limiter keeps beside its record stands, where it is little, in the record itself: an entry
// of a log, or a lease, then comes from memory with its key, and is nothing to the garbage
// collector. It moves out when the record would no longer share a page.
//
// The last 4 bytes of such a record's value say which: the number of an object in a slab, or, with
// the first bit set, how much stands behind them. Of a log that is a ring: its length, where its
// oldest entry is, and how many it has.

const (
	inlineBit = 1 << 31
	maxInline = maxClass * unitBytes // of a record that has something in it
)

// inline is what stands in the record behind its value, nil if it stands elsewhere.
func (r record) inline() []byte {
	if !r.isInline() {
		return nil
	}
	at := r.atValue() + valueBytes[r.kind()]
	return r[at : at+r.inlineBytes()]
}

func (r record) isInline() bool {
	return (r.kind() == store.SlidingLog || r.kind() == store.Lease) && r.slabNumber()&inlineBit != 0
}

func (r record) inlineBytes() int {
	n := r.slabNumber() &^ inlineBit
	if r.kind() == store.SlidingLog {
		return int(n>>16) * entryBytes
	}
	return int(n)
}

// resize gives a record of a log or of leases a slot of size bytes, if its own is too small for
// that or more than twice as large. What was inline is left behind. A record that is to be smaller
// stays where it is if there is no other place.
func (s *shard) resize(at *keySlot, size int) error {
	from := at.p.bucket.ref(at.p.slot)
	room := s.pages.slotSize(from)
	switch {
	case size <= room && 2*size+unitBytes > room:
		return nil
	case size > room && s.noGrowth:
		return store.ErrFull
	}
	to, ok := s.pages.alloc(size)
	if !ok && size <= room {
		return nil
	}
	if !ok {
		return store.ErrFull
	}
	r := s.pages.at(to)
	copy(r, at.r[:recordSize(len(at.key), at.r.kind())])
	at.p.bucket.set(at.p.slot, at.h.tag, to)
	s.pages.release(from)
	s.publishLayout()
	at.r = r
	return nil
}

// createOrResize gives a key a record of a kind with so many bytes behind its value: its own, in another
// slot if need be, or a new one.
func (s *shard) createOrResize(at *keySlot, kind store.Kind, bytes int) error {
	if at.live {
		return s.resize(at, recordSize(len(at.key), kind)+bytes)
	}
	return s.createIfAbsent(at, kind, bytes)
}

// inlineCapacity is how many bytes may stand in the record of a key.
func inlineCapacity(key []byte, kind store.Kind) int { return maxInline - recordSize(len(key), kind) }

// logRing is a log's entries in its record. It is window.Entries.
type logRing struct {
	entries []byte
	head    int // where the oldest is
	count   int
}

func (r record) ring() logRing {
	n := r.slabNumber()
	return logRing{entries: r.inline(), head: int(n >> 8 & 0xff), count: int(n & 0xff)}
}

// setRing says of what stands behind the value that it is a ring of so many entries.
func (r record) setRing(size, head, count int) {
	r.setSlabNumber(inlineBit | uint32(size)<<16 | uint32(head)<<8 | uint32(count))
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

// logEntries is a live key's entries.
func (s *shard) logEntries(r record) window.Entries {
	if !r.isInline() {
		return s.logs.at(r.slabNumber())
	}
	s.scratchRing = r.ring()
	return &s.scratchRing
}

// editLog does to a key's entries what a step decided; without a live record it makes one.
func (s *shard) editLog(at *keySlot, e window.Edit) error {
	switch {
	case !at.live:
		s.scratchEntries = append(s.scratchEntries[:0], e.Entry)
		return s.storeLog(at)
	case s.noGrowth && s.logGrows(at, e):
		return store.ErrFull
	case at.r.isInline():
		return s.editRing(at, e)
	}
	n := at.r.slabNumber()
	log := s.logs.at(n)
	s.logs.bytes -= log.bytes()
	log.apply(e)
	s.logs.bytes += log.bytes()
	if log.Len()*entryBytes > maxInline/4 || log.Len()*entryBytes > inlineCapacity(at.key, store.SlidingLog) {
		return nil
	}
	s.gatherEntries(log, 0, log.Len())
	if s.storeRing(at) == nil { // else it stays where it is
		s.logs.bytes -= log.bytes()
		s.logs.remove(n)
	}
	return nil
}

// gatherEntries has s.entries be some of a log's.
func (s *shard) gatherEntries(log window.Entries, from, to int) {
	s.scratchEntries = s.scratchEntries[:0]
	for i := from; i < to; i++ {
		s.scratchEntries = append(s.scratchEntries, log.At(i))
	}
}

// storeLog makes s.entries those of a record that has none, or has them inline: what is inline is
// forgotten.
func (s *shard) storeLog(at *keySlot) error {
	if len(s.scratchEntries)*entryBytes <= inlineCapacity(at.key, store.SlidingLog) {
		return s.storeRing(at)
	}
	if s.noGrowth {
		return store.ErrFull
	}
	if err := s.createOrResize(at, store.SlidingLog, 0); err != nil {
		return err
	}
	n, log := s.logs.add()
	log.fill(s.scratchEntries)
	s.logs.bytes += log.bytes()
	at.r.setSlabNumber(n)
	return nil
}

// storeRing is placeLog where there is room in the record: for half as many again, but for one
// entry, as many logs have.
func (s *shard) storeRing(at *keySlot) error {
	count := len(s.scratchEntries)
	size := min(count+count/2, inlineCapacity(at.key, store.SlidingLog)/entryBytes)
	if err := s.createOrResize(at, store.SlidingLog, size*entryBytes); err != nil {
		return err
	}
	at.r.setRing(size, 0, count)
	s.scratchRing = at.r.ring()
	for i, e := range s.scratchEntries {
		s.scratchRing.set(i, e)
	}
	return nil
}

// editRing does it in the record. The ring is made anew when it is full, or far too large.
func (s *shard) editRing(at *keySlot, e window.Edit) error {
	s.scratchRing = at.r.ring()
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
	at.r.setRing(size, ring.head, kept)
	return nil
}

// leaseTable is a key's leases: the shard's own table, if they are in the record.
func (s *shard) leaseTable(at *keySlot) lease.Table {
	if at.live && !at.r.isInline() {
		return s.leases.at(at.r.slabNumber())
	}
	s.scratchLeases.Load(nil)
	if at.live {
		s.scratchLeases.Load(at.r.inline())
	}
	return &s.scratchLeases
}

// saveLeases keeps what a step made of a key's leases, and writes down when the last one ends; without
// leases the key goes.
func (s *shard) saveLeases(at *keySlot, table lease.Table, changed bool) error {
	held, many := table.(*keyLeases)
	if many {
		held.updateBytes(&s.leases) // some may have ended, whatever has changed
	}
	switch {
	case !changed:
		return nil
	case table.Len() == 0:
		s.removeKey(at)
		return nil
	}
	expires := table.Expires()
	if !many {
		if err := s.storeLeases(at); err != nil {
			return err
		}
	} else if held.ToFew(&s.scratchLeases, min(maxInline/4, inlineCapacity(at.key, store.Lease))) {
		n := at.r.slabNumber()
		if s.storeLeases(at) == nil { // else they stay where they are
			s.leases.bytes -= held.counted
			s.leases.remove(n)
		}
	}
	s.commit(at, expires)
	return nil
}

// storeLeases makes s.few the leases of a key, whose record's inline ones are forgotten, if it has
// one.
func (s *shard) storeLeases(at *keySlot) error {
	few := s.scratchLeases.Bytes()
	bytes := len(few)
	if bytes > inlineCapacity(at.key, store.Lease) {
		if s.noGrowth {
			return store.ErrFull
		}
		bytes = 0
	}
	if err := s.createOrResize(at, store.Lease, bytes); err != nil {
		return err
	}
	if bytes > 0 {
		at.r.setSlabNumber(inlineBit | uint32(len(few)))
		copy(at.r.inline(), few)
		return nil
	}
	n, held := s.leases.add()
	held.Leases = *s.scratchLeases.ToLeases()
	held.updateBytes(&s.leases)
	at.r.setSlabNumber(n)
	return nil
}
