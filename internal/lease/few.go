package lease

import (
	"bytes"
	"encoding/binary"
	"iter"
	"slices"
	"time"

	"cellserver/internal/quota"
)

// Few are a key's leases in bytes, for an owner that keeps them beside the key, where they are at
// hand when the key is: one after the other in order, by end, then by holder. Each is looked at by
// every call, so they should be few. The zero value has none.
//
//	 0  end       8 bytes
//	 8  quantity  8 bytes
//	16  length    2 bytes  of the holder's name, at most 1024
//	18  holder
type Few struct {
	leases []byte
	count  int
	held   int64  // permits of all
	last   int64  // when the last one ends
	room   []byte // for leases, from its beginning
	moving []byte // the lease that changes its place
}

const (
	atQuantity = 8
	atLength   = 16
	atHolder   = 18
)

// Load copies leases as Bytes had them.
func (f *Few) Load(leases []byte) {
	f.room = append(f.room[:0], leases...)
	f.leases = f.room
	f.sum()
}

// sum counts what is there.
func (f *Few) sum() {
	f.count, f.held, f.last = 0, 0, 0
	for at := 0; at < len(f.leases); at = f.after(at) {
		f.count++
		f.held += f.quantity(at)
		f.last = f.end(at)
	}
}

// Bytes are the leases, lent until the next call.
func (f *Few) Bytes() []byte { return f.leases }

// Many are the same leases as a table for any number.
func (f *Few) Many() *Leases {
	many := &Leases{}
	for at := 0; at < len(f.leases); at = f.after(at) {
		r := Request{quantity: f.quantity(at), holder: f.holder(at)}
		many.put(-1, r, f.end(at))
	}
	return many
}

// Few are the same leases in bytes; ok is false if they take more than room.
func (s *Leases) Few(few *Few, room int) (ok bool) {
	if s.live*atHolder > room {
		return false
	}
	few.Load(nil)
	for _, place := range s.order[:s.live] {
		l := &s.places[place]
		few.add([]byte(l.Holder))
		at := len(few.leases) - atHolder - len(l.Holder)
		few.setEnd(at, l.End)
		few.setQuantity(at, l.Quantity)
		if len(few.leases) > room {
			return false
		}
	}
	few.sum()
	return true
}

// Acquire is Table's.
func (f *Few) Acquire(now int64, r Request, maxHolders int) (d quota.Decision, changed bool, err error) {
	return acquire(f, now, r, maxHolders)
}

// Renew is Table's.
func (f *Few) Renew(now int64, ttl time.Duration, holder []byte) bool {
	return renew(f, now, ttl, holder)
}

// Release is Table's.
func (f *Few) Release(now int64, holder []byte) int64 { return release(f, now, holder) }

// Holders is Table's.
func (f *Few) Holders(now int64) iter.Seq[Lease] {
	return func(yield func(Lease) bool) {
		for at := f.over(instant(now)); at < len(f.leases); at = f.after(at) {
			if !yield(Lease{Holder: string(f.holder(at)), Quantity: f.quantity(at), End: f.end(at)}) {
				return
			}
		}
	}
}

// Expires is Table's.
func (f *Few) Expires() int64 { return f.last }

// Len is Table's.
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
func (f *Few) holder(at int) []byte { return f.leases[at+atHolder : f.after(at)] }

// after is where the lease behind the one at a position stands.
func (f *Few) after(at int) int {
	return at + atHolder + int(binary.LittleEndian.Uint16(f.leases[at+atLength:]))
}

// over is the position of the first lease that has not ended at now.
func (f *Few) over(now int64) (at int) {
	for at < len(f.leases) && f.end(at) <= now {
		at = f.after(at)
	}
	return at
}

func (f *Few) expire(now int64) {
	ended := f.over(now)
	for at := 0; at < ended; at = f.after(at) {
		f.count--
		f.held -= f.quantity(at)
	}
	if f.leases = f.leases[ended:]; f.count == 0 {
		f.last = 0
	}
}

func (f *Few) position(holder []byte) int {
	for at := 0; at < len(f.leases); at = f.after(at) {
		if string(f.holder(at)) == string(holder) {
			return at
		}
	}
	return -1
}

// add puts a lease last that has nothing but a holder.
func (f *Few) add(holder []byte) {
	var bare [atHolder]byte
	f.leases = append(f.leases, bare[:]...)
	binary.LittleEndian.PutUint16(f.leases[len(f.leases)-atHolder+atLength:], uint16(len(holder)))
	f.leases = append(f.leases, holder...)
	if cap(f.leases) > cap(f.room) {
		f.room = f.leases
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
	f.leases = slices.Delete(f.leases, position, f.after(position))
	f.sum()
}

// move gives a lease another end, and the place that is due to it. Mostly that is the last, where a
// new one stands.
func (f *Few) move(position int, end int64) {
	f.setEnd(position, end)
	behind, holder := f.after(position), f.holder(position)
	if f.last < end && behind == len(f.leases) {
		f.last = end
		return
	}
	to := 0 // the first of the others that stands behind it
	for to < len(f.leases) &&
		(to == position || f.end(to) < end || f.end(to) == end && bytes.Compare(f.holder(to), holder) < 0) {
		to = f.after(to)
	}
	f.moving = append(f.moving[:0], f.leases[position:behind]...)
	switch {
	case to < position:
		copy(f.leases[to+len(f.moving):], f.leases[to:position])
		copy(f.leases[to:], f.moving)
	case to > behind:
		copy(f.leases[position:], f.leases[behind:to])
		copy(f.leases[to-len(f.moving):], f.moving)
	}
	f.sum()
}

func (f *Few) endOfOthers(position int, room int64) int64 {
	others := f.held
	if position >= 0 {
		others -= f.quantity(position)
	}
	for at := 0; at < len(f.leases); at = f.after(at) {
		if at == position {
			continue
		}
		if others -= f.quantity(at); others <= room {
			return f.end(at)
		}
	}
	return f.last
}
