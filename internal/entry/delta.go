package entry

import (
	"encoding/binary"
	"fmt"
	"math"

	"cellserver/internal/lease"
	"cellserver/internal/window"
)

// The changes of a log or of leases follow an entry with their whole state, or other changes: the
// one that gave the key the version From. Versions are numbers that a store uses once, and are not
// 0. They are, with all numbers as in the form (package form),
//
//	l  version from, version to, count dropped, count kept, instant end, instant until, count of
//	   entries; of each the count of what was taken, and its instant
//	h  version from, version to, count of holders; of each the count of permits, or 0 if it has none,
//	   the instant of the end, the length of the holder's name as a count, and the name

// LogChange is how the entries of a log differ from an earlier version of it: the oldest Dropped
// are gone; of the rest the oldest Kept are still there; and Added follow, whose running totals begin
// with 0.
type LogChange struct {
	From, To      uint64
	Dropped, Kept int
	End, Until    int64
	Added         []window.Entry
}

// HoldersChange says which leases differ from an earlier version of them. A lease without a
// quantity is gone.
type HoldersChange struct {
	From, To uint64
	Leases   []lease.Lease
}

// MissingError means that the last changes of keys follow states that were not loaded. The files
// that contain them are damaged, or were removed.
type MissingError struct {
	Keys int    // how many
	Key  string // one of them
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("the last changes of %d keys follow states that are missing, such as those of key %.100q", e.Keys, e.Key)
}

// AppendLog appends the entry of a changed log.
func AppendLog(dst []byte, content uint64, key []byte, c *LogChange) []byte {
	dst = append(appendHead(dst, Log, content, key), 0, 0, 0, 0)
	begin := len(dst)
	dst = binary.BigEndian.AppendUint64(dst, c.From)
	dst = binary.BigEndian.AppendUint64(dst, c.To)
	dst = binary.AppendUvarint(dst, uint64(c.Dropped))
	dst = binary.AppendUvarint(dst, uint64(c.Kept))
	dst = appendInstant(dst, c.End)
	dst = appendInstant(dst, c.Until)
	dst = binary.AppendUvarint(dst, uint64(len(c.Added)))
	total := uint64(0)
	for _, e := range c.Added {
		dst = appendInstant(binary.AppendUvarint(dst, e.Total-total), e.At)
		total = e.Total
	}
	return setLength(dst, begin)
}

// AppendHolders appends the entry of changed leases.
func AppendHolders(dst []byte, content uint64, key []byte, c *HoldersChange) []byte {
	dst = append(appendHead(dst, Holders, content, key), 0, 0, 0, 0)
	begin := len(dst)
	dst = binary.BigEndian.AppendUint64(dst, c.From)
	dst = binary.BigEndian.AppendUint64(dst, c.To)
	dst = binary.AppendUvarint(dst, uint64(len(c.Leases)))
	for _, l := range c.Leases {
		dst = appendInstant(binary.AppendUvarint(dst, uint64(l.Quantity)), l.End)
		dst = binary.AppendUvarint(dst, uint64(len(l.Holder)))
		dst = append(dst, l.Holder...)
	}
	return setLength(dst, begin)
}

// ReadLog decodes the Bytes of an entry of kind Log.
func ReadLog(p []byte) (c LogChange, err error) {
	r := Reader{chunk: p}
	c.From, c.To = uint64(r.number()), uint64(r.number())
	c.Dropped, c.Kept = r.size(), r.size()
	c.End, c.Until = r.number(), r.number()
	total := uint64(0)
	for n := r.size(); n > 0 && r.err == nil; n-- {
		total += r.count()
		c.Added = append(c.Added, window.Entry{Total: total, At: r.number()})
	}
	r.expectEnd()
	return c, r.err
}

// ReadHolders decodes the Bytes of an entry of kind Holders.
func ReadHolders(p []byte) (c HoldersChange, err error) {
	r := Reader{chunk: p}
	c.From, c.To = uint64(r.number()), uint64(r.number())
	for n := r.size(); n > 0 && r.err == nil; n-- {
		l := lease.Lease{Quantity: int64(r.size()), End: r.number()}
		l.Holder = string(r.bytes(r.count()))
		c.Leases = append(c.Leases, l)
	}
	r.expectEnd()
	return c, r.err
}

// size decodes a count that fits in an int.
func (r *Reader) size() int {
	n := r.count()
	if n > math.MaxInt64 {
		r.fail("a count is too large")
		return 0
	}
	return int(n)
}

func (r *Reader) expectEnd() {
	if r.at < len(r.chunk) {
		r.fail("more follows the changes")
	}
}
