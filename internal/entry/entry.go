// Package entry encodes the content of keys as entries. Journals and snapshots consist of entries.
//
// An entry holds the whole content of a key at some instant, so only the last of several entries
// for a key counts. There is one exception: for a long log, or a key with many leases, an entry may
// hold a delta, which is the difference from an earlier entry.
//
// An entry names the generation of the key's database instead of its number. A store gives a
// database a new generation when it creates the database and whenever it empties it, and uses no
// generation twice. The entry Databases maps the numbers of databases to generations. SWAPDB and
// FLUSHDB therefore change one entry, however many keys there are.
//
// An entry is
//
//	kind         1 byte
//	generation   count
//	key          count of bytes, and the bytes
//	state        depends on the kind
//
// where a count is an unsigned number in groups of 7 bits, the lowest first (encoding/binary's
// Uvarint), a signed count is such a number with the sign in its lowest bit (Varint), and the state is
//
//	g  the key does not exist             nothing
//	t  throttle                           8 bytes, its TAT
//	n  integer that does not expire       signed count, the integer
//	e  integer that expires               8 bytes, its expiry; signed count, the integer
//	i  integer, as older versions wrote   8 bytes, its expiry; 8 bytes, the integer
//	b  bytes                              8 bytes, its expiry; 4 bytes, their number; the bytes
//	f  limiter of another kind            4 bytes, the length of its form; the form (package form)
//	l  delta of a sliding log             4 bytes, its length; the delta (delta.go)
//	h  delta of leases                    4 bytes, its length; the delta (delta.go)
//	o  open holds                         4 bytes, the length of their form; the form (package hold)
//
// with all numbers big-endian. The entry of a key's open holds follows the entry of its other content, if there is any;
// an entry of other content alone means that the key has no holds. Two entries have no key:
//
//	d  databases   count of databases; for each, a count: its generation, or 0 if it was never written to. A snapshot
//	               begins with it, and a pass that has other entries, or a new database, ends with it
//	s  size        generation; count: about how many keys of it a snapshot has, before the first of them
//
// Instants are nanoseconds on the clock of the store. Entries have no checksum: the frames of
// package journal, which contain them, do.
package entry

import (
	"encoding/binary"
	"fmt"
	"math"

	"cellserver/internal/form"
	"cellserver/internal/hold"
)

// Kind is the kind of an entry.
type Kind byte

const (
	Gone       Kind = 'g' // the key does not exist
	Throttle   Kind = 't'
	Integer    Kind = 'i' // in any of its three encodings
	Bytes      Kind = 'b'
	Limiter    Kind = 'f' // of a kind other than Throttle
	LogDelta   Kind = 'l' // changes of a sliding log
	LeaseDelta Kind = 'h' // changes of leases
	Holds      Kind = 'o' // open holds
	Databases  Kind = 'd'
	Size       Kind = 's'
)

// The encodings of an integer. A Reader returns an Integer for each of them.
const (
	expiringInteger Kind = 'e'
	lastingInteger  Kind = 'n'
)

// never is the expiry of a key that does not expire, as in package store.
const never = math.MaxInt64

// AppendGone appends the entry of a key that does not exist.
func AppendGone(dst []byte, generation uint64, key []byte) []byte {
	return appendHead(dst, Gone, generation, key)
}

// AppendThrottle appends the entry of a throttle key.
func AppendThrottle(dst []byte, generation uint64, key []byte, tat int64) []byte {
	if n, size := len(dst), len(key)+11; generation < 0x80 && len(key) < 0x80 && size <= cap(dst)-n {
		dst = dst[:n+size] // the usual case, by far
		e := dst[n : n+size : n+size]
		e[0], e[1], e[2] = byte(Throttle), byte(generation), byte(len(key))
		copy(e[3:], key)
		binary.BigEndian.PutUint64(e[size-8:], uint64(tat))
		return dst
	}
	return appendInstant(appendHead(dst, Throttle, generation, key), tat)
}

// AppendInteger appends the entry of an integer.
func AppendInteger(dst []byte, generation uint64, key []byte, expires, n int64) []byte {
	if expires == never {
		return binary.AppendVarint(appendHead(dst, lastingInteger, generation, key), n)
	}
	return binary.AppendVarint(appendInstant(appendHead(dst, expiringInteger, generation, key), expires), n)
}

// AppendBytes appends the entry of any other value.
func AppendBytes(dst []byte, generation uint64, key []byte, expires int64, value []byte) []byte {
	dst = appendInstant(appendHead(dst, Bytes, generation, key), expires)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(value)))
	return append(dst, value...)
}

// AppendLimiter appends the entry of a limiter of another kind than Throttle.
func AppendLimiter(dst []byte, generation uint64, key []byte, state *form.State) []byte {
	dst = append(appendHead(dst, Limiter, generation, key), 0, 0, 0, 0)
	begin := len(dst)
	return setLength(form.Append(dst, state), begin)
}

// AppendHolds appends the entry of the open holds of a key.
func AppendHolds(dst []byte, generation uint64, key []byte, book *hold.Book) []byte {
	dst = append(appendHead(dst, Holds, generation, key), 0, 0, 0, 0)
	begin := len(dst)
	return setLength(book.Append(dst), begin)
}

// setLength writes the length of what follows begin to the 4 bytes before it.
func setLength(dst []byte, begin int) []byte {
	binary.BigEndian.PutUint32(dst[begin-4:], uint32(len(dst)-begin))
	return dst
}

// AppendDatabases appends the entry that maps the number of each database to its generation.
func AppendDatabases(dst []byte, generations []uint64) []byte {
	dst = binary.AppendUvarint(append(dst, byte(Databases)), uint64(len(generations)))
	for _, generation := range generations {
		dst = binary.AppendUvarint(dst, generation)
	}
	return dst
}

// AppendSize appends the entry that says about how many keys of a generation follow.
func AppendSize(dst []byte, generation uint64, keys int) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(append(dst, byte(Size)), generation), uint64(keys))
}

func appendHead(dst []byte, kind Kind, generation uint64, key []byte) []byte {
	if generation < 0x80 && len(key) < 0x80 { // the usual case, which is faster
		return append(append(dst, byte(kind), byte(generation), byte(len(key))), key...)
	}
	dst = binary.AppendUvarint(append(dst, byte(kind)), generation)
	dst = binary.AppendUvarint(dst, uint64(len(key)))
	return append(dst, key...)
}

func appendInstant(dst []byte, at int64) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(at))
}

// Entry is a decoded entry. The kind determines which fields are used.
type Entry struct {
	Kind        Kind
	Generation  uint64
	Key         []byte
	Expires     int64    // ns on the store's clock: of a Throttle, its TAT; of an Integer or Bytes
	Integer     int64    // of an Integer
	Bytes       []byte   // of Bytes, the value; of a Limiter or Holds, the form; of a delta, its content
	Generations []uint64 // of Databases
	Keys        uint64   // of Size
}

// Error describes where entries are invalid, and why.
type Error struct {
	Offset int
	Reason string
}

func (e *Error) Error() string {
	return fmt.Sprintf("at byte %d of the entries: %s", e.Offset, e.Reason)
}

// Reader decodes the entries of a chunk. The fields of Entry refer to the bytes of the chunk, and
// are valid until the next call of Next.
type Reader struct {
	Entry
	chunk []byte
	begin int // of the entry
	at    int
	err   error
}

// NewReader returns a reader of a chunk, which consists of whole entries.
func NewReader(chunk []byte) *Reader { return &Reader{chunk: chunk} }

// Next decodes the next entry. It returns false at the end of the chunk, and if the chunk is
// invalid; see Err.
func (r *Reader) Next() bool {
	if r.err != nil || r.at == len(r.chunk) {
		return false
	}
	r.begin = r.at
	r.Entry = Entry{Kind: Kind(r.chunk[r.at]), Generations: r.Generations[:0]}
	r.at++
	if r.Kind == Databases {
		r.readGenerations()
		return r.err == nil
	}
	if r.Generation = r.count(); r.Generation == 0 {
		r.fail("a key has no generation")
	}
	if r.Kind == Size {
		r.Keys = r.count()
		return r.err == nil
	}
	r.Key = r.bytes(r.count())
	r.readState()
	return r.err == nil
}

// readState decodes what follows the key.
func (r *Reader) readState() {
	switch r.Kind {
	case Gone:
	case Throttle:
		r.Expires = r.number()
	case lastingInteger:
		r.Kind, r.Expires, r.Integer = Integer, never, r.signedCount()
	case expiringInteger:
		r.Kind, r.Expires = Integer, r.number()
		r.Integer = r.signedCount()
	case Integer:
		r.Expires = r.number()
		r.Integer = r.number()
	case Bytes:
		r.Expires = r.number()
		r.Bytes = r.bytes(r.length())
	case Limiter, LogDelta, LeaseDelta, Holds:
		r.Bytes = r.bytes(r.length())
	default:
		r.fail(fmt.Sprintf("no entry is of the kind %q", byte(r.Kind)))
	}
}

// Offset returns where the entry begins in its chunk.
func (r *Reader) Offset() int { return r.begin }

// Seek makes the next entry the one that begins at an offset, which Offset has returned.
func (r *Reader) Seek(offset int) { r.at = offset }

// Err returns the error that ended the entries, if it was not the end of the chunk.
func (r *Reader) Err() error { return r.err }

// maxDatabases is the largest number of databases of a server.
const maxDatabases = 1 << 14

func (r *Reader) readGenerations() {
	n := r.count()
	if n > maxDatabases {
		r.fail("there are too many databases")
	}
	for ; n > 0 && r.err == nil; n-- {
		r.Generations = append(r.Generations, r.count())
	}
}

func (r *Reader) fail(reason string) {
	if r.err == nil {
		r.err = &Error{r.at, reason}
	}
}

func (r *Reader) count() uint64 {
	if r.err != nil {
		return 0
	}
	n, size := binary.Uvarint(r.chunk[r.at:])
	if size <= 0 {
		r.fail("a count is invalid")
		return 0
	}
	r.at += size
	return n
}

func (r *Reader) signedCount() int64 {
	n := r.count()
	return int64(n>>1) ^ -int64(n&1)
}

func (r *Reader) bytes(n uint64) []byte {
	if r.err != nil {
		return nil
	}
	if n > uint64(len(r.chunk)-r.at) {
		r.fail("an entry is cut off")
		return nil
	}
	r.at += int(n)
	return r.chunk[r.at-int(n) : r.at : r.at]
}

func (r *Reader) number() int64 {
	if p := r.bytes(8); p != nil {
		return int64(binary.BigEndian.Uint64(p))
	}
	return 0
}

func (r *Reader) length() uint64 {
	if p := r.bytes(4); p != nil {
		return uint64(binary.BigEndian.Uint32(p))
	}
	return 0
}
