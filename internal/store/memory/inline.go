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
	inlineBit  = 1 << 31
	inlineMost = maxClass * unitBytes // of a record that has something in it
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
	return (r.kind() == store.SlidingLog || r.kind() == store.Lease) && r.held()&inlineBit != 0
}

func (r record) inlineBytes() int {
	n := r.held() &^ inlineBit
	if r.kind() == store.SlidingLog {
		return int(n>>16) * entryBytes
	}
	return int(n)
}

// resize gives a record of a log or of leases a slot of size bytes, if its own is too small for
// that or more than twice as large. What was inline is left behind. A record that is to be smaller
// stays where it is if there is no other place.
func (s *shard) resize(at *spot, size int) error {
	from := at.p.bucket.ref(at.p.slot)
	room := s.pages.room(from)
	switch {
	case size <= room && 2*size+unitBytes > room:
		return nil
	case size > room && s.tight:
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
	s.show()
	at.r = r
	return nil
}

// place gives a key a record of a kind with so many bytes behind its value: its own, in another
// slot if need be, or a new one.
func (s *shard) place(at *spot, kind store.Kind, bytes int) error {
	if at.live {
		return s.resize(at, recordSize(len(at.key), kind)+bytes)
	}
	return s.hold(at, kind, bytes)
}

// inlineRoom is how many bytes may stand in the record of a key.
func inlineRoom(key []byte, kind store.Kind) int { return inlineMost - recordSize(len(key), kind) }

// logRing is a log's entries in its record. It is window.Entries.
type logRing struct {
	entries []byte
	head    int // where the oldest is
	count   int
}

func (r record) ring() logRing {
	n := r.held()
	return logRing{entries: r.inline(), head: int(n >> 8 & 0xff), count: int(n & 0xff)}
}

// setRing says of what stands behind the value that it is a ring of so many entries.
func (r record) setRing(size, head, count int) {
	r.setHeld(inlineBit | uint32(size)<<16 | uint32(head)<<8 | uint32(count))
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

// log is a live key's entries.
func (s *shard) log(r record) window.Entries {
	if !r.isInline() {
		return s.logs.at(r.held())
	}
	s.ring = r.ring()
	return &s.ring
}

// editLog does to a key's entries what a step decided; without a live record it makes one.
func (s *shard) editLog(at *spot, e window.Edit) error {
	switch {
	case !at.live:
		s.entries = append(s.entries[:0], e.Entry)
		return s.placeLog(at)
	case s.tight && s.logGrows(at, e):
		return store.ErrFull
	case at.r.isInline():
		return s.editRing(at, e)
	}
	n := at.r.held()
	log := s.logs.at(n)
	s.logs.bytes -= log.bytes()
	log.apply(e)
	s.logs.bytes += log.bytes()
	if log.Len()*entryBytes > inlineMost/4 || log.Len()*entryBytes > inlineRoom(at.key, store.SlidingLog) {
		return nil
	}
	s.gather(log, 0, log.Len())
	if s.placeRing(at) == nil { // else it stays where it is
		s.logs.bytes -= log.bytes()
		s.logs.remove(n)
	}
	return nil
}

// gather has s.entries be some of a log's.
func (s *shard) gather(log window.Entries, from, to int) {
	s.entries = s.entries[:0]
	for i := from; i < to; i++ {
		s.entries = append(s.entries, log.At(i))
	}
}

// placeLog makes s.entries those of a record that has none, or has them inline: what is inline is
// forgotten.
func (s *shard) placeLog(at *spot) error {
	if len(s.entries)*entryBytes <= inlineRoom(at.key, store.SlidingLog) {
		return s.placeRing(at)
	}
	if s.tight {
		return store.ErrFull
	}
	if err := s.place(at, store.SlidingLog, 0); err != nil {
		return err
	}
	n, log := s.logs.add()
	log.fill(s.entries)
	s.logs.bytes += log.bytes()
	at.r.setHeld(n)
	return nil
}

// placeRing is placeLog where there is room in the record: for half as many again, but for one
// entry, as many logs have.
func (s *shard) placeRing(at *spot) error {
	count := len(s.entries)
	size := min(count+count/2, inlineRoom(at.key, store.SlidingLog)/entryBytes)
	if err := s.place(at, store.SlidingLog, size*entryBytes); err != nil {
		return err
	}
	at.r.setRing(size, 0, count)
	s.ring = at.r.ring()
	for i, e := range s.entries {
		s.ring.set(i, e)
	}
	return nil
}

// editRing does it in the record. The ring is made anew when it is full, or far too large.
func (s *shard) editRing(at *spot, e window.Edit) error {
	s.ring = at.r.ring()
	ring := &s.ring
	size, kept := len(ring.entries)/entryBytes, e.Left(ring.count)
	if kept > size || size > 4*kept+2 {
		s.gather(ring, e.Drop, ring.count-e.Cut)
		if e.Push {
			s.entries = append(s.entries, e.Entry)
		}
		return s.placeLog(at)
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

// table is a key's leases: the shard's own table, if they are in the record.
func (s *shard) table(at *spot) lease.Table {
	if at.live && !at.r.isInline() {
		return s.leases.at(at.r.held())
	}
	s.few.Load(nil)
	if at.live {
		s.few.Load(at.r.inline())
	}
	return &s.few
}

// settle keeps what a step made of a key's leases, and writes down when the last one ends; without
// leases the key goes.
func (s *shard) settle(at *spot, table lease.Table, changed bool) error {
	held, many := table.(*leases)
	if many {
		held.count(&s.leases) // some may have ended, whatever has changed
	}
	switch {
	case !changed:
		return nil
	case table.Len() == 0:
		s.forget(at)
		return nil
	}
	expires := table.Expires()
	if !many {
		if err := s.placeLeases(at); err != nil {
			return err
		}
	} else if held.ToFew(&s.few, min(inlineMost/4, inlineRoom(at.key, store.Lease))) {
		n := at.r.held()
		if s.placeLeases(at) == nil { // else they stay where they are
			s.leases.bytes -= held.counted
			s.leases.remove(n)
		}
	}
	s.kept(at, expires)
	return nil
}

// placeLeases makes s.few the leases of a key, whose record's inline ones are forgotten, if it has
// one.
func (s *shard) placeLeases(at *spot) error {
	few := s.few.Bytes()
	bytes := len(few)
	if bytes > inlineRoom(at.key, store.Lease) {
		if s.tight {
			return store.ErrFull
		}
		bytes = 0
	}
	if err := s.place(at, store.Lease, bytes); err != nil {
		return err
	}
	if bytes > 0 {
		at.r.setHeld(inlineBit | uint32(len(few)))
		copy(at.r.inline(), few)
		return nil
	}
	n, held := s.leases.add()
	held.Leases = *s.few.ToLeases()
	held.count(&s.leases)
	at.r.setHeld(n)
	return nil
}
