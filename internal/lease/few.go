package lease

import (
	"bytes"
	"encoding/binary"
	"iter"
	"slices"
	"time"

	"cellserver/internal/quota"
)

// Few holds the leases of a key in a byte slice, for an owner that stores them next to the key:
// then one cache miss loads both. The leases are consecutive, ordered by end, then by holder. Every
// call looks at all of them, so there should be few. The zero value is empty.
//
//	 0  end       8 bytes
//	 8  quantity  8 bytes
//	16  length    2 bytes  of the holder's name, at most 1024
//	18  holder
type Few struct {
	leases  []byte
	count   int
	held    int64  // sum of all quantities
	last    int64  // end of the last lease
	buffer  []byte // memory for leases, kept for reuse
	scratch []byte // the lease that move is moving, kept for reuse
}

const (
	atQuantity = 8
	atLength   = 16
	atHolder   = 18
)

// Load copies leases in the format that Bytes returns.
func (f *Few) Load(leases []byte) {
	f.buffer = append(f.buffer[:0], leases...)
	f.leases = f.buffer
	f.recount()
}

// recount computes count, held and last.
func (f *Few) recount() {
	f.count, f.held, f.last = 0, 0, 0
	for at := 0; at < len(f.leases); at = f.next(at) {
		f.count++
		f.held += f.quantity(at)
		f.last = f.end(at)
	}
}

// Bytes returns the encoded leases, valid until the next call.
func (f *Few) Bytes() []byte { return f.leases }

// ToLeases returns the same leases as a Leases.
func (f *Few) ToLeases() *Leases {
	many := &Leases{}
	for at := 0; at < len(f.leases); at = f.next(at) {
		r := Request{quantity: f.quantity(at), holder: f.holder(at)}
		many.put(-1, r, f.end(at))
	}
	return many
}

// ToFew copies the leases to few. It returns false if they need more than maxBytes; then few is
// unusable until the next Load.
func (s *Leases) ToFew(few *Few, maxBytes int) (ok bool) {
	if s.live*atHolder > maxBytes {
		return false
	}
	few.Load(nil)
	for _, slot := range s.order[:s.live] {
		l := &s.slots[slot]
		few.add([]byte(l.Holder))
		at := len(few.leases) - atHolder - len(l.Holder)
		few.setEnd(at, l.End)
		few.setQuantity(at, l.Quantity)
		if len(few.leases) > maxBytes {
			return false
		}
	}
	few.recount()
	return true
}

// Acquire implements Table.
func (f *Few) Acquire(now int64, r Request, maxHolders int) (d quota.Decision, changed bool, err error) {
	return acquire(f, now, r, maxHolders)
}

// Peek implements Table.
func (f *Few) Peek(now int64, r Request, maxHolders int) (d quota.Decision, err error) {
	d, _, err = peek(f, instant(now), r, maxHolders)
	return d, err
}

// Untaken implements Table.
func (f *Few) Untaken(now int64, r Request) quota.Decision { return untaken(f, now, r) }

// Gap implements Table.
func (f *Few) Gap(now int64, r Request) Gap { return gap(f, now, r) }

// Renew implements Table.
func (f *Few) Renew(now int64, ttl time.Duration, holder []byte) bool {
	return renew(f, now, ttl, holder)
}

// Release implements Table.
func (f *Few) Release(now int64, holder []byte) int64 { return release(f, now, holder) }

// Holders implements Table.
func (f *Few) Holders(now int64) iter.Seq[Lease] {
	return func(yield func(Lease) bool) {
		for at := f.firstLive(instant(now)); at < len(f.leases); at = f.next(at) {
			if !yield(Lease{Holder: string(f.holder(at)), Quantity: f.quantity(at), End: f.end(at)}) {
				return
			}
		}
	}
}

// Expires implements Table.
func (f *Few) Expires() int64 { return f.last }

// Len implements Table.
func (f *Few) Len() int { return f.count }

func (f *Few) permits() int64 { return f.held }

func (f *Few) end(at int) int64         { return int64(binary.LittleEndian.Uint64(f.leases[at:])) }
func (f *Few) setEnd(at int, end int64) { binary.LittleEndian.PutUint64(f.leases[at:], uint64(end)) }
func (f *Few) quantity(at int) int64 {
	return int64(binary.LittleEndian.Uint64(f.leases[at+atQuantity:]))
}
func (f *Few) setQuantity(at int, n int64) {
	binary.LittleEndian.PutUint64(f.leases[at+atQuantity:], uint64(n))
}
func (f *Few) holder(at int) []byte { return f.leases[at+atHolder : f.next(at)] }

// next returns the position of the lease that follows the one at a position.
func (f *Few) next(at int) int {
	return at + atHolder + int(binary.LittleEndian.Uint16(f.leases[at+atLength:]))
}

// firstLive returns the position of the first lease that has not ended at now.
func (f *Few) firstLive(now int64) (at int) {
	for at < len(f.leases) && f.end(at) <= now {
		at = f.next(at)
	}
	return at
}

func (f *Few) expire(now int64) {
	ended := f.firstLive(now)
	for at := 0; at < ended; at = f.next(at) {
		f.count--
		f.held -= f.quantity(at)
	}
	if f.leases = f.leases[ended:]; f.count == 0 {
		f.last = 0
	}
}

func (f *Few) position(holder []byte) int {
	for at := 0; at < len(f.leases); at = f.next(at) {
		if string(f.holder(at)) == string(holder) {
			return at
		}
	}
	return -1
}

// add appends a lease that consists of a holder only.
func (f *Few) add(holder []byte) {
	var header [atHolder]byte
	f.leases = append(f.leases, header[:]...)
	binary.LittleEndian.PutUint16(f.leases[len(f.leases)-atHolder+atLength:], uint16(len(holder)))
	f.leases = append(f.leases, holder...)
	if cap(f.leases) > cap(f.buffer) {
		f.buffer = f.leases
	}
}

func (f *Few) put(position int, r Request, end int64) {
	if position < 0 {
		position = len(f.leases)
		f.add(r.holder)
		f.count++
	}
	f.held += r.quantity - f.quantity(position)
	f.setQuantity(position, r.quantity)
	f.move(position, end)
}

func (f *Few) drop(position int) {
	f.leases = slices.Delete(f.leases, position, f.next(position))
	f.recount()
}

// move changes the end of a lease and moves it to its position in the order. Usually that is the
// last position, where a new lease is.
func (f *Few) move(position int, end int64) {
	f.setEnd(position, end)
	next, holder := f.next(position), f.holder(position)
	if f.last < end && next == len(f.leases) {
		f.last = end
		return
	}
	to := 0 // position of the first other lease that follows it in the order
	for to < len(f.leases) &&
		(to == position || f.end(to) < end || f.end(to) == end && bytes.Compare(f.holder(to), holder) < 0) {
		to = f.next(to)
	}
	f.scratch = append(f.scratch[:0], f.leases[position:next]...)
	switch {
	case to < position:
		copy(f.leases[to+len(f.scratch):], f.leases[to:position])
		copy(f.leases[to:], f.scratch)
	case to > next:
		copy(f.leases[position:], f.leases[next:to])
		copy(f.leases[to-len(f.scratch):], f.scratch)
	}
	f.recount()
}

func (f *Few) endOfOthers(position int, permits int64) int64 {
	others := f.held
	if position >= 0 {
		others -= f.quantity(position)
	}
	for at := 0; at < len(f.leases); at = f.next(at) {
		if at == position {
			continue
		}
		if others -= f.quantity(at); others <= permits {
			return f.end(at)
		}
	}
	return f.last
}

func (f *Few) lastOther(position int) (end int64) {
	if position < 0 || f.next(position) < len(f.leases) {
		return f.last
	}
	for at := 0; at < position; at = f.next(at) {
		end = f.end(at)
	}
	return end
}
