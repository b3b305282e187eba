package memory

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"
)

// A store that is kept on a disk lists its changed keys, so that a pass (pass.go) writes them
// without visiting the others. The first change of a record after a pass sets the dirty bit in the
// record, and appends a reference to it, of 4 bytes, to the list of its shard. A key that changes
// often is therefore listed once. A record that is removed, or moved to another slot, is listed by
// the name of its key.
//
// A reference in the list may be out of date: its slot may be free, or hold another record. The
// pass finds this out when it reads the list (recordAt, and the dirty bit), so that removing a
// record need not search the list.

// changes lists the changed keys of a shard. The shard's lock protects it. The fields that every
// step needs are in it, and thus next to others that the step needs; the rest is in tracked.
type changes struct {
	refs []ref
	step *step // the step on several keys that has locked the shard; nil for others
	*tracked
}

// tracked is the rest of the list; nil if changes are not tracked.
type tracked struct {
	names      map[string]struct{} // keys that must be looked up
	nameBytes  int64               // total length of the names
	generation *atomic.Uint64      // of the shard's database
	overflowed *atomic.Bool        // tracking.overflowed
}

// maxChanges is the number of bytes that the list of a shard may take, in addition to 8 for each of
// its records. The bound is reached if there are no passes, because the disk does not answer, while
// keys are created and removed all the time.
const maxChanges = 1 << 20

// dirtyBit is set in a record that has changed since the last pass. It is in the 4 bytes that begin
// with the record's kind.
const dirtyBit = 1 << 8

func (r record) dirty() bool { return binary.LittleEndian.Uint32(r[atKind:])&dirtyBit != 0 }

func (r record) clearDirty() {
	binary.LittleEndian.PutUint32(r[atKind:], binary.LittleEndian.Uint32(r[atKind:])&^dirtyBit)
}

// mark lists a record that was changed or created.
func (c *changes) mark(s *shard, r record, at ref) {
	if head := binary.LittleEndian.Uint32(r[atKind:]); head&dirtyBit == 0 {
		// A key that is created and removed repeatedly is listed each time, so refs needs a bound.
		if len(c.refs) == cap(c.refs) && c.isTooLong(s) {
			c.overflow(s)
		}
		binary.LittleEndian.PutUint32(r[atKind:], head|dirtyBit)
		c.refs = append(c.refs, at)
		c.prefetchEnd()
	}
	if c.step != nil {
		c.step.refs[changedRef{s, at}] = struct{}{}
	}
}

// prefetchEnd requests the cache line that the next references will be written to, when the previous
// line is full. The line is in no cache, and waiting for it would take longer than the rest of mark.
func (c *changes) prefetchEnd() {
	if n := len(c.refs); n%(lineBytes/4) == 0 && n < cap(c.refs) {
		prefetch(uintptr(unsafe.Pointer(&c.refs[:n+1][n])))
	}
}

// addName lists a key that must be looked up.
func (c *changes) addName(s *shard, key []byte) {
	if _, found := c.names[string(key)]; !found {
		if c.names == nil {
			c.names = map[string]struct{}{}
		}
		c.names[string(key)] = struct{}{}
		if c.nameBytes += int64(len(key)); c.isTooLong(s) {
			c.overflow(s)
		}
	}
	if c.step != nil {
		c.step.names[changedName{s, string(key)}] = struct{}{}
	}
}

// isTooLong reports whether the list takes more memory than maxChanges allows.
func (c *changes) isTooLong(s *shard) bool { return c.bytes() > maxChanges+8*int64(s.records) }

// overflow discards the list. The changes cannot be recovered, so the next pass fails with
// ErrPassTooLarge, and its caller must write a snapshot. No record may stay dirty without being
// listed: it would never be listed again.
func (c *changes) overflow(s *shard) {
	for _, at := range c.refs {
		if r := s.pages.recordAt(at); r != nil {
			r.clearDirty()
		}
	}
	for name := range c.names {
		key := []byte(name)
		if r, _ := s.find(s.hash(key), key); r != nil {
			r.clearDirty()
		}
	}
	c.refs, c.names, c.nameBytes = nil, nil, 0
	c.overflowed.Store(true)
}

// noteRemoval must be called before a record is removed. An expired record need not be listed,
// because the last entry of its key has the same expiry. There are two exceptions: the record has
// changed since that entry, or the entry may be a delta (see hasBaseline).
func (s *shard) noteRemoval(r record) {
	if s.changes.tracked != nil && (r.dirty() || !s.isExpired(r.expires(), s.lastInstant) || s.hasBaseline(r)) {
		s.changes.addName(s, r.key())
	}
}

// noteMove must be called before a record moves to another slot.
func (s *shard) noteMove(r record) {
	if s.changes.tracked != nil && r.dirty() {
		s.changes.addName(s, r.key())
	}
}

// forgetChanges is called when the shard is emptied. The database then gets another generation, of
// which no entries have been written.
func (s *shard) forgetChanges() {
	if s.changes.tracked != nil {
		s.changes.refs, s.changes.names, s.changes.nameBytes = nil, nil, 0
	}
}

// bytes estimates the memory that the list takes.
func (c *changes) bytes() (n int64) {
	if c.tracked == nil {
		return 0
	}
	const perName = 48 // bytes of the map for each name, without the name
	return int64(cap(c.refs))*4 + int64(len(c.names))*perName + c.nameBytes
}

// recordAt returns the record at a reference that may be out of date, or nil if there is none. A
// page may have been given to records of another size, so recordAt checks that a slot begins there.
func (p *pages) recordAt(at ref) record {
	n, unit := (uint32(at)-1)/unitsPerPage, (uint32(at)-1)%unitsPerPage
	if int(n) >= len(p.list) {
		return nil
	}
	pg := &p.list[n]
	if len(pg.data) == 0 || slotStarts[pg.class][unit/64]>>(unit%64)&1 == 0 {
		return nil
	}
	if r := record(pg.data[unit*unitBytes:]); r.kind() != 0 {
		return r
	}
	return nil
}

// slotStarts has, for each class, one bit per unit of a page, which is set if a slot begins in that
// unit. A division would take most of the time of recordAt.
var slotStarts = func() (starts [maxClass + 1][unitsPerPage / 64]uint64) {
	starts[0][0] = 1 // a page with one large record
	for class := 1; class <= maxClass; class++ {
		for unit := 0; unit+class <= unitsPerPage; unit += class {
			starts[class][unit/64] |= 1 << (unit % 64)
		}
	}
	return starts
}()
