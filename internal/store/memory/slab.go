package memory

import (
	"math"
	"math/bits"
	"unsafe"
)

// slab holds what does not fit in records, by number: state of any size, which has pointers.
// Numbers are used again, the lowest first; they stand in pieces, and a piece that has none in use
// goes: one that lasts keeps its neighbours' room, and not more.
type slab[T any] struct {
	pieces     []*piece[T] // nil: without items
	lowest     int         // the pieces before this one are full
	pieceCount int         // pieces that are not nil
	bytes      int64       // that the items take with what they hold; for their owner to keep
}

type piece[T any] struct {
	items [pieceItems]*T
	used  uint64 // a bit an item
}

const pieceItems = 64

func (s *slab[T]) add() (n uint32, item *T) {
	for s.lowest < len(s.pieces) && s.pieces[s.lowest] != nil && s.pieces[s.lowest].used == math.MaxUint64 {
		s.lowest++
	}
	if s.lowest == len(s.pieces) {
		s.pieces = append(s.pieces, nil)
	}
	p := s.pieces[s.lowest]
	if p == nil {
		p = new(piece[T])
		s.pieces[s.lowest] = p
		s.pieceCount++
	}
	i := bits.TrailingZeros64(^p.used)
	p.used |= 1 << i
	item = new(T)
	p.items[i] = item
	return uint32(s.lowest*pieceItems + i), item
}

func (s *slab[T]) at(n uint32) *T { return s.pieces[n/pieceItems].items[n%pieceItems] }

// remove forgets an item. When none is left, so is the room for them.
func (s *slab[T]) remove(n uint32) {
	at := int(n / pieceItems)
	p := s.pieces[at]
	p.items[n%pieceItems] = nil
	p.used &^= 1 << (n % pieceItems)
	s.lowest = min(s.lowest, at)
	if p.used != 0 {
		return
	}
	s.pieces[at] = nil
	if s.pieceCount--; s.pieceCount == 0 {
		s.pieces, s.lowest = nil, 0
	}
}

// overhead is the bytes that the slab takes beside its items.
func (s *slab[T]) overhead() int64 {
	return int64(s.pieceCount)*int64(unsafe.Sizeof(piece[T]{})) + int64(cap(s.pieces))*int64(unsafe.Sizeof(&piece[T]{}))
}
