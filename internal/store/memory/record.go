package memory

import (
	"encoding/binary"

	"cellserver/internal/calendar"
	"cellserver/internal/limit"
	"cellserver/internal/store"
	"cellserver/internal/window"
)

// A record is one key with its state, encoded as bytes, so that ten million records cost the
// garbage collector nothing:
//
//	 0  expires  8 bytes  instant in nanoseconds; for a Throttle key its TAT, and thus its whole state;
//	                      for a Quota key negative, see expires
//	 8  kind     1 byte   0 marks a free slot of a page
//	 9  used     3 bytes  the low bit marks a change (changes.go); above it, when the key was last used (idle.go)
//	12  length   1 byte   of the key; 255 means that the length is in the next 4 bytes
//	13  key
//	    value            of kinds whose state is more than the expiry
//
// Of a free slot only the kind is valid; its first two bytes link to the next free slot (pages.go).
//
// A key of 17 bytes takes 30 bytes, in a slot of 32: one cache line holds two.
type record []byte

const (
	atExpires = 0
	atKind    = 8
	atLength  = 12
	atKey     = 13
	longKey   = 255 // the value of the length byte for keys of 255 bytes or more
	longBytes = 4   // bytes of the true length, which follow
)

// valueBytes is the length of the value by kind. For logs and leases the value ends with the number
// of an object in a slab, or says how many bytes of entries or leases follow (inline.go). For Bytes
// and Standing it is the length of the bytes that follow.
var valueBytes = func() [limit.Kinds]int {
	bytes := [limit.Kinds]int{limit.SlidingLog: 20, limit.Quota: 16, limit.Lease: 4, limit.Standing: 4,
		limit.Integer: 8, limit.Bytes: 4}
	for k := range limit.Kind(limit.Kinds) {
		if p := k.Plain(); p != nil {
			bytes[k] = 8 * p.Stored()
		}
	}
	return bytes
}()

// recordSize returns the number of bytes that a record takes.
func recordSize(key int, kind limit.Kind) int {
	size := atKey + key + valueBytes[kind]
	if key >= longKey {
		size += longBytes
	}
	return size
}

// expires returns the expiry. The expiry of a Quota is Unix time, because its window ends by the wall
// clock. It is negated, so that it is below all instants: code that compares it with an instant, as for
// all other kinds, finds the record expired, and then calls shard.isExpired, which knows better.
func (r record) expires() int64     { return int64(binary.LittleEndian.Uint64(r[atExpires:])) }
func (r record) setExpires(t int64) { binary.LittleEndian.PutUint64(r[atExpires:], uint64(t)) }

// noExpiry returns 1 for a value that does not expire, otherwise 0.
func (r record) noExpiry() uint32 {
	if r.expires() == store.Never && r.kind().IsValue() {
		return 1
	}
	return 0
}

func (r record) kind() limit.Kind     { return limit.Kind(r[atKind]) }
func (r record) setKind(k limit.Kind) { r[atKind] = byte(k) }

func (r record) key() []byte {
	if n := int(r[atLength]); n < longKey {
		return r[atKey : atKey+n]
	}
	n := int(binary.LittleEndian.Uint32(r[atKey:]))
	return r[atKey+longBytes : atKey+longBytes+n]
}

func (r record) setKey(key []byte) {
	if len(key) < longKey {
		r[atLength] = byte(len(key))
		copy(r[atKey:], key)
		return
	}
	r[atLength] = longKey
	binary.LittleEndian.PutUint32(r[atKey:], uint32(len(key)))
	copy(r[atKey+longBytes:], key)
}

// value returns the bytes of the value, which follow the key.
func (r record) value() []byte {
	at := r.atValue()
	return r[at : at+valueBytes[r.kind()]]
}

func (r record) atValue() int {
	if r[atLength] == longKey {
		return atKey + longBytes + int(binary.LittleEndian.Uint32(r[atKey:]))
	}
	return atKey + int(r[atLength])
}

// bytes returns the value of a record of kind Bytes, or the encoded state of one of kind Standing.
func (r record) bytes() []byte {
	at := r.atValue()
	n := int(binary.LittleEndian.Uint32(r[at:]))
	return r[at+4 : at+4+n : at+4+n]
}

// setLength sets the length of the value of a record of kind Bytes.
func (r record) setLength(n int) { binary.LittleEndian.PutUint32(r[r.atValue():], uint32(n)) }

func (r record) setBytes(b []byte) {
	at := r.atValue()
	binary.LittleEndian.PutUint32(r[at:], uint32(len(b)))
	copy(r[at+4:], b)
}

// size returns how many bytes of its slot a record uses.
func (r record) size() int {
	size := r.atValue() + valueBytes[r.kind()]
	if r.kind() == limit.Bytes || r.kind() == limit.Standing {
		size += len(r.bytes())
	}
	return size + len(r.inline())
}

// field returns the i-th 8 bytes of the value as an integer.
func (r record) field(i int) int64 { return integer(r.value()[8*i:]) }

func (r record) setField(i int, n int64) { setInteger(r.value()[8*i:], n) }

func integer(value []byte) int64       { return int64(binary.LittleEndian.Uint64(value)) }
func setInteger(value []byte, n int64) { binary.LittleEndian.PutUint64(value, uint64(n)) }

// plain returns the state of a record of a plain kind.
func (r record) plain() (s limit.State) {
	v := r.value()
	for i := range len(v) / 8 {
		s.Numbers[i] = integer(v[8*i:])
	}
	s.End = r.expires()
	return s
}

// setNumbers sets the numbers of a state, but not the expiry, which commit sets.
func (r record) setNumbers(numbers *[limit.MaxNumbers]int64) {
	v := r.value()
	for i := range len(v) / 8 {
		setInteger(v[8*i:], numbers[i])
	}
}

// stateWord returns the last 4 bytes of the value of a log or of leases: the number of the object
// in a slab that holds the rest of the state, or the size of inline state (inline.go).
func (r record) stateWord() uint32 {
	v := r.value()
	return binary.LittleEndian.Uint32(v[len(v)-4:])
}

func (r record) setStateWord(n uint32) {
	v := r.value()
	binary.LittleEndian.PutUint32(v[len(v)-4:], n)
}

// calendar returns the state of a record of kind Quota.
func (r record) calendar() window.Calendar {
	return window.Calendar{Used: r.field(0), End: -r.expires()}
}

// setCalendar is setNumbers for a calendar quota.
func (r record) setCalendar(used int64, c calendar.Cycle) {
	v := r.value()
	setInteger(v, used)
	setInteger(v[8:], int64(c))
}

// cycle returns the windows of a record of kind Quota.
func (r record) cycle() calendar.Cycle { return calendar.Cycle(r.field(1)) }
