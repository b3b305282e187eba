package entry

import (
	"encoding/binary"
	"fmt"
	"math"

	"cellserver/internal/lease"
	"cellserver/internal/window"
)

// A delta applies to one version of a key's state, From, and results in another, To. A version is
// the result of an entry with the whole state, or of an earlier delta. A store uses each version
// once; 0 means that a state has no version. A delta whose version From was not loaded is not
// applied. With numbers encoded as in the form (package form), a delta is
//
//	l  version from, version to, count dropped, count kept, instant end, instant until, count of
//	   entries; for each, the count of the quantity, and its instant
//	h  version from, version to, count of holders; for each, the count of permits, or 0 if its lease
//	   has ended, the instant of the end, the length of the holder's name as a count, and the name

// LogChanges is the content of a LogDelta. The new version drops the Dropped oldest entries of
// version From, keeps the Kept oldest of the others, and adds Added, whose running totals begin
// with 0.
type LogChanges struct {
	From, To      uint64
	Dropped, Kept int
	End, Until    int64 // ns on the store's clock, as in window.Log
	Added         []window.Entry
}

// LeaseChanges is the content of a LeaseDelta: the leases that differ from version From. A lease
// with a quantity of 0 has ended.
type LeaseChanges struct {
	From, To uint64
	Leases   []lease.Lease
}

// MissingError means that the last entries of some keys are deltas of states that were not loaded.
// The files that contain these states are damaged, or were removed.
type MissingError struct {
	Keys int    // number of these keys
	Key  string // the first of them, in ascending order
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("the last changes of %d keys, such as %.100q, apply to states that are missing", e.Keys, e.Key)
}

// AppendLogDelta appends the entry of a changed log.
func AppendLogDelta(dst []byte, generation uint64, key []byte, c *LogChanges) []byte {
	dst = append(appendHead(dst, LogDelta, generation, key), 0, 0, 0, 0)
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

// AppendLeaseDelta appends the entry of changed leases.
func AppendLeaseDelta(dst []byte, generation uint64, key []byte, c *LeaseChanges) []byte {
	dst = append(appendHead(dst, LeaseDelta, generation, key), 0, 0, 0, 0)
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

// ReadLogDelta decodes the Bytes of an entry of kind LogDelta.
func ReadLogDelta(p []byte) (c LogChanges, err error) {
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

// ReadLeaseDelta decodes the Bytes of an entry of kind LeaseDelta.
func ReadLeaseDelta(p []byte) (c LeaseChanges, err error) {
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
		r.fail("more bytes follow the delta")
	}
}
