// Package idempotency remembers the decisions of calls that have an ID token, for a bounded time, so
// that a call that a client repeats takes once.
//
// A Table knows no clock and has no lock: it is told the time, and its owner makes a lookup, the
// decision and the addition one step. It does not hold names: a call is known by two hashes, which the
// caller computes (see Call).
package idempotency

import (
	"encoding/binary"

	"cellserver/internal/quota"
)

// Call identifies a call that has a token.
type Call struct {
	// ID is a hash of the token, and of the database and the key for which it was given. Clients must
	// not be able to predict it, because calls with equal hashes share an entry.
	ID uint64
	// Words is a hash of all that a repeated call must have in common with the first.
	Words uint64
}

// Result is the result of a lookup.
type Result uint8

const (
	Unknown  Result = iota // no such token is remembered
	Repeated               // the call was made before
	Reused                 // the token was used for another call
)

// Table holds the decisions of calls, from the oldest to the latest. Entries leave in this order: when
// they have expired, or when there are too many.
//
// There may be a million tokens, so there is no pointer per token for the garbage collector to follow:
// entries are bytes in chunks, one behind the other, and refer to one another by position. An index
// leads from the hash of a token to the latest entry in its slot, and each entry to the one before it
// in the same slot. Nothing is removed from these chains: they end at the first entry that is not in
// the table any more. To grow, the table begins another index for the entries that follow, so no call
// waits until many entries are moved.
//
// Most tokens are new, and entries are rarely in the processor's caches. A slot therefore also has a
// filter, by which nearly all new tokens are known without a look at the entries.
type Table struct {
	max     int
	indexes []index // the indexes with entries in the table, oldest first
	chunks  [][]byte
	first   uint64 // number of the first chunk
	begin   uint64 // position of the oldest entry, if there is one
	expires int64  // when that entry expires
	count   int
	evicted int64
	spare   []byte // an empty chunk
}

// index is the index of the entries from a position on, up to the next index.
type index struct {
	from  uint64 // position of its first entry
	count int    // of entries added to it
	slots []slot
}

// slot is a chain of entries, and a filter.
type slot struct {
	latest uint32 // the latest entry: its distance from index.from, and one; 0 for none
	filter uint32 // the bit of each entry that was added: see bitOf
}

// slotOf returns the slot for a hash.
func (x *index) slotOf(id uint64) *slot { return &x.slots[id&uint64(len(x.slots)-1)] }

// bitOf returns the bit of a hash in a filter.
func bitOf(id uint64) uint32 { return 1 << (id >> 59) }

const (
	chunkBits  = 16
	chunkBytes = 1 << chunkBits
	// The numbers of slots of the smallest and of the largest index. The latter bounds how long a call
	// may have to wait for an index to be made: it has 1 MiB.
	smallestIndex, largestIndex = 1 << 8, 1 << 17
	// perSlot is how many entries an index has for each of its slots. The entries of the largest index are within 2
	// GiB, even if all are of the largest length, so a slot has room for their distance.
	perSlot = 4
)

// An entry begins with a header: the entry before it in its chain, as slot.latest has it, Call.ID,
// Call.Words, the instant of its expiry, and the length of its decisions in bytes.
const (
	atID        = 4
	atWords     = 12
	atExpires   = 20
	atLength    = 28
	headerBytes = 30
)

// MaxDecisions is the largest number of decisions of a call.
const MaxDecisions = 64

// New returns an empty table for at most max entries, which is at least 1.
func New(max int) *Table {
	return &Table{max: max, first: 1}
}

// Len returns the number of entries. Some may have expired.
func (t *Table) Len() int { return t.count }

// Evicted returns the number of entries that have left before they expired, because there were too
// many.
func (t *Table) Evicted() int64 { return t.evicted }

// Bytes returns the memory of the table, in bytes.
func (t *Table) Bytes() int {
	bytes := len(t.chunks) * chunkBytes
	if t.spare != nil {
		bytes += chunkBytes
	}
	for i := range t.indexes {
		bytes += 8 * len(t.indexes[i].slots)
	}
	return bytes
}

// Find looks a call up at an instant. If it is a repeated call, its decisions are appended to dst.
func (t *Table) Find(now int64, call Call, dst []quota.Decision) ([]quota.Decision, Result) {
	entry := t.find(call.ID)
	switch {
	case entry == nil || field(entry, atExpires) <= uint64(max(now, 0)):
		return dst, Unknown
	case field(entry, atWords) != call.Words:
		return dst, Reused
	}
	length := binary.LittleEndian.Uint16(entry[atLength:])
	dst, _ = ReadDecisions(dst, entry[headerBytes:headerBytes+int(length)]) // the table has written them
	return dst, Repeated
}

// find returns the latest entry with an ID, nil if there is none.
func (t *Table) find(id uint64) []byte {
	for i := len(t.indexes) - 1; i >= 0; i-- {
		if x := &t.indexes[i]; x.slotOf(id).filter&bitOf(id) != 0 {
			if entry := t.findIn(x, id); entry != nil {
				return entry
			}
		}
	}
	return nil
}

// findIn is find for the entries of one index.
func (t *Table) findIn(x *index, id uint64) []byte {
	oldest := max(x.from, t.begin)
	for latest := x.slotOf(id).latest; latest != 0; {
		at := x.from + uint64(latest-1)
		if at < oldest {
			return nil
		}
		entry := t.at(at)
		if field(entry, atID) == id {
			return entry
		}
		latest = binary.LittleEndian.Uint32(entry)
	}
	return nil
}

// Add remembers the decisions of a call until an instant. Find must not have found its token.
func (t *Table) Add(now int64, call Call, expires int64, decisions []quota.Decision) {
	t.AddAfter(now, call, expires, nil, decisions)
}

// AddAfter is Add for a call whose first decisions are in form, as AppendDecisions writes them. decisions follow them.
func (t *Table) AddAfter(now int64, call Call, expires int64, form []byte, decisions []quota.Decision) {
	t.Expire(now, 2) // so that a table in use does not grow by what has expired
	for t.count >= t.max {
		if t.expires > now {
			t.evicted++
		}
		t.removeOldest()
	}
	at := t.place(headerBytes + len(form) + len(decisions)*maxDecisionBytes)
	expires = max(expires, 0)
	if t.count == 0 {
		t.begin, t.expires = at, expires
	}
	x := t.indexFor(at)
	slot := x.slotOf(call.ID)
	chunk := &t.chunks[len(t.chunks)-1]
	from := len(*chunk)
	*chunk = AppendDecisions(append((*chunk)[:from+headerBytes], form...), decisions)
	entry := (*chunk)[from:]
	binary.LittleEndian.PutUint32(entry, slot.latest)
	binary.LittleEndian.PutUint64(entry[atID:], call.ID)
	binary.LittleEndian.PutUint64(entry[atWords:], call.Words)
	binary.LittleEndian.PutUint64(entry[atExpires:], uint64(expires))
	binary.LittleEndian.PutUint16(entry[atLength:], uint16(len(entry)-headerBytes))
	slot.latest = uint32(at-x.from) + 1
	slot.filter |= bitOf(call.ID)
	x.count++
	t.count++
}

// Expire removes at most most entries that have expired, the oldest first, and returns how many it
// has removed. An entry that expires later than one that was added after it keeps that one.
func (t *Table) Expire(now int64, most int) (removed int) {
	for removed < most && t.count > 0 && t.expires <= now {
		t.removeOldest()
		removed++
	}
	return removed
}

// place returns the position of an entry of at most so many bytes, which is the next to be added. It is at the end of
// the last chunk, or begins another one.
func (t *Table) place(bytes int) uint64 {
	last := len(t.chunks) - 1
	if last < 0 || len(t.chunks[last])+bytes > chunkBytes {
		chunk := t.spare
		if t.spare = nil; chunk == nil {
			chunk = make([]byte, 0, chunkBytes)
		}
		t.chunks = append(t.chunks, chunk)
		last++
	}
	return (t.first+uint64(last))<<chunkBits | uint64(len(t.chunks[last]))
}

// indexFor returns the index for an entry that is added at a position: the last, or another one if
// that is full.
func (t *Table) indexFor(at uint64) *index {
	if last := len(t.indexes) - 1; last >= 0 && t.indexes[last].count < perSlot*len(t.indexes[last].slots) {
		return &t.indexes[last]
	}
	slots := smallestIndex
	for slots < t.count && slots < largestIndex {
		slots *= 2
	}
	t.indexes = append(t.indexes, index{from: at, slots: make([]slot, slots)})
	return &t.indexes[len(t.indexes)-1]
}

// at returns the bytes from a position on to the end of its chunk.
func (t *Table) at(position uint64) []byte {
	return t.chunks[position>>chunkBits-t.first][position&(chunkBytes-1):]
}

func field(entry []byte, at int) uint64 { return binary.LittleEndian.Uint64(entry[at:]) }

// removeOldest removes the oldest entry, and its chunk and index if they have no other entry.
func (t *Table) removeOldest() {
	length := headerBytes + uint64(binary.LittleEndian.Uint16(t.at(t.begin)[atLength:]))
	t.begin += length
	t.count--
	if t.begin&(chunkBytes-1) == uint64(len(t.chunks[0])) || t.begin>>chunkBits != t.first {
		t.removeChunk()
	}
	if t.count == 0 {
		t.indexes = nil
		return
	}
	t.expires = int64(field(t.at(t.begin), atExpires))
	for len(t.indexes) > 1 && t.indexes[1].from <= t.begin {
		t.indexes[0] = index{}
		t.indexes = t.indexes[1:]
	}
}

// removeChunk removes the first chunk, all of whose entries have left. The last chunk stays as the
// spare one.
func (t *Table) removeChunk() {
	t.spare, t.chunks[0] = t.chunks[0][:0], nil
	t.chunks = t.chunks[1:]
	t.first++
	t.begin = t.first << chunkBits
	if len(t.chunks) == 0 {
		t.chunks = nil
	}
}
