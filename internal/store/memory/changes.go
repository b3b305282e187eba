package memory

import (
	"encoding/binary"
	"sync/atomic"
)

// The store tells an owner that keeps it on a disk what has changed since the owner last asked
// (pass.go). A record that changes gets a mark, and the shard keeps a list of the marked ones, so a
// key that changes often is listed once. A record that is removed, or moved to another slot, is
// listed by the name of its key.
//
// A reference in the list may be out of date: its slot may be free, or belong to another record.
// That is found out when the list is read, so nothing is searched when a record is removed.

// changes is the list of a shard.
type changes struct {
	refs    []ref
	names   map[string]struct{} // keys that must be looked up
	named   int64               // bytes of the names
	step    *step               // the step on several keys that has locked the shard; see step
	content *atomic.Uint64      // of the shard's database
	lost    *atomic.Bool        // set if changes were forgotten: the next pass must fail
}

// maxChanges is the size up to which a shard lists changes, in addition to what its records need.
// While a disk does not answer there are no passes, and keys may come and go all the time.
const maxChanges = 1 << 20

// dirtyBit is the mark, in the four bytes of a record that start with its kind.
const dirtyBit = 1 << 8

func (r record) dirty() bool { return binary.LittleEndian.Uint32(r[atKind:])&dirtyBit != 0 }

func (r record) clearDirty() {
	binary.LittleEndian.PutUint32(r[atKind:], binary.LittleEndian.Uint32(r[atKind:])&^dirtyBit)
}

// mark notes that a record was changed or created.
func (c *changes) mark(s *shard, r record, at ref) {
	if head := binary.LittleEndian.Uint32(r[atKind:]); head&dirtyBit == 0 {
		if len(c.refs) == cap(c.refs) && c.isTooLong(s) { // a key that comes and goes is listed each time
			c.lose(s)
		}
		binary.LittleEndian.PutUint32(r[atKind:], head|dirtyBit)
		c.refs = append(c.refs, at)
	}
	if c.step != nil {
		c.step.refs[changedRef{s, at}] = struct{}{}
	}
}

// addName notes that a key must be looked up.
func (c *changes) addName(s *shard, key []byte) {
	if _, found := c.names[string(key)]; !found {
		if c.names == nil {
			c.names = map[string]struct{}{}
		}
		c.names[string(key)] = struct{}{}
		if c.named += int64(len(key)); c.isTooLong(s) {
			c.lose(s)
		}
	}
	if c.step != nil {
		c.step.names[changedName{s, string(key)}] = struct{}{}
	}
}

// isTooLong reports whether the list takes more memory than it may.
func (c *changes) isTooLong(s *shard) bool { return c.bytes() > maxChanges+8*int64(s.records) }

// lose forgets what has changed. The next pass will fail.
func (c *changes) lose(s *shard) {
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
	c.refs, c.names, c.named = nil, nil, 0
	c.lost.Store(true)
}

// noteRemoval must be called before a record is removed. Nothing is noted of a record that has
// expired, because what was last written about its key has the same expiry, unless that is out of
// date, or may be changes of a state that a snapshot will not contain.
func (s *shard) noteRemoval(r record) {
	if s.changes != nil && (r.dirty() || r.expires() > s.lastInstant || s.isVersioned(r)) {
		s.changes.addName(s, r.key())
	}
}

// noteMove must be called before a record moves to another slot.
func (s *shard) noteMove(r record) {
	if s.changes != nil && r.dirty() {
		s.changes.addName(s, r.key())
	}
}

// forgetChanges is called when the shard is emptied. A database that is emptied gets another
// content, about which nothing has been written.
func (s *shard) forgetChanges() {
	if s.changes != nil {
		s.changes.refs, s.changes.names, s.changes.named = nil, nil, 0
	}
}

// bytes returns roughly how much memory the list takes.
func (c *changes) bytes() (n int64) {
	if c == nil {
		return 0
	}
	const perName = 48 // of the map, without the bytes of the name
	return int64(cap(c.refs))*4 + int64(len(c.names))*perName + c.named
}

// recordAt returns the record of a reference that may be out of date, or nil if no record is there.
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

// slotStarts are, by class, the units of a page in which a slot begins, one bit per unit. A division
// would take most of the time of recordAt.
var slotStarts = func() (starts [maxClass + 1][unitsPerPage / 64]uint64) {
	starts[0][0] = 1 // a page with one large record
	for class := 1; class <= maxClass; class++ {
		for unit := 0; unit+class <= unitsPerPage; unit += class {
			starts[class][unit/64] |= 1 << (unit % 64)
		}
	}
	return starts
}()
