package memory

import (
	"encoding/binary"

	"cellserver/internal/store"
)

// A record is one key with its state, in bytes, so that ten million of them are nothing to the
// garbage collector:
//
//	 0  expires  8 bytes  instant in nanoseconds; a Throttle key's TAT, so its whole state
//	 8  kind     1 byte   0 marks a free slot of a page
//	 9  used     3 bytes  the low bit is kept for a dirty mark; above it, when the key was used last (idle.go)
//	12  length   1 byte   of the key; 255 says that the next 4 bytes hold it
//	13  key
//	    value            of a kind that has more to say than when it expires
//
// Of a free slot only the kind is set; its first two bytes link it to the next free one (pages.go).
//
// A 17-byte key makes 30 bytes, a slot of 32: one cache line holds two.
type record []byte

const (
	atExpires = 0
	atKind    = 8
	atLength  = 12
	atKey     = 13
	longKey   = 255 // the length byte of a key of 255 bytes or more
	longBytes = 4   // that then follow with the true length
)

// valueBytes is how long a kind's value is. Throttle has none. Of a log and of leases it names what
// holds the rest, or says how much of it follows (inline.go). Of Bytes it is their length, and they
// follow.
var valueBytes = [...]int{store.Fixed: 16, store.Sliding: 32, store.SlidingLog: 20, store.Lease: 4, store.Integer: 8,
	store.Bytes: 4}

// recordSize is the number of bytes that a key's record takes.
func recordSize(key int, kind store.Kind) int {
	size := atKey + key + valueBytes[kind]
	if key >= longKey {
		size += longBytes
	}
	return size
}

func (r record) expires() int64     { return int64(binary.LittleEndian.Uint64(r[atExpires:])) }
func (r record) setExpires(t int64) { binary.LittleEndian.PutUint64(r[atExpires:], uint64(t)) }

// noExpiry is 1 for a value that does not expire, else 0.
func (r record) noExpiry() int {
	if r.expires() == store.Never && r.kind().IsValue() {
		return 1
	}
	return 0
}

func (r record) kind() store.Kind     { return store.Kind(r[atKind]) }
func (r record) setKind(k store.Kind) { r[atKind] = byte(k) }

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

// value is what stands behind the key.
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

// bytes is the value of a record of Bytes.
func (r record) bytes() []byte {
	at := r.atValue()
	n := int(binary.LittleEndian.Uint32(r[at:]))
	return r[at+4 : at+4+n : at+4+n]
}

// setLength says how many bytes the value of a record of Bytes has.
func (r record) setLength(n int) { binary.LittleEndian.PutUint32(r[r.atValue():], uint32(n)) }

func (r record) setBytes(b []byte) {
	at := r.atValue()
	binary.LittleEndian.PutUint32(r[at:], uint32(len(b)))
	copy(r[at+4:], b)
}

// size is how many bytes of its slot a record takes.
func (r record) size() int {
	size := r.atValue() + valueBytes[r.kind()]
	if r.kind() == store.Bytes {
		size += len(r.bytes())
	}
	return size + len(r.inline())
}

// field is the i-th 8 bytes of the value.
func (r record) field(i int) int64 { return int64(binary.LittleEndian.Uint64(r.value()[8*i:])) }

func (r record) setField(i int, n int64) { binary.LittleEndian.PutUint64(r.value()[8*i:], uint64(n)) }

// slabNumber is the number of the object that holds the rest of the state, the last 4 bytes of the value.
func (r record) slabNumber() uint32 {
	v := r.value()
	return binary.LittleEndian.Uint32(v[len(v)-4:])
}

func (r record) setSlabNumber(n uint32) {
	v := r.value()
	binary.LittleEndian.PutUint32(v[len(v)-4:], n)
}

// entry is the record as readers see it at an instant: an expired record is absent.
func (r record) entry(now int64) store.Entry {
	if r == nil || r.expires() <= now {
		return store.Entry{}
	}
	return store.Entry{Kind: r.kind(), Expires: r.expires()}
}
