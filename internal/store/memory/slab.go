package memory

import (
	"math"
	"math/bits"
	"unsafe"
)

// slab holds by number what does not fit in records: state of any size, with pointers. Numbers are
// reused, the lowest first. The items are in pieces, and a piece without items is freed: an item
// that stays keeps alive at most the memory of its piece.
type slab[T any] struct {
	pieces     []*piece[T] // nil for a piece without items
	lowest     int         // the pieces before this one are full
	pieceCount int         // pieces that are not nil
	bytes      int64       // taken by the items and what they hold; maintained by the owner
}

type piece[T any] struct {
	items [pieceItems]*T
	used  uint64 // one bit per item
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

// remove removes an item, and frees the memory of a piece without items.
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

// overhead returns the bytes that the slab takes in addition to its items.
func (s *slab[T]) overhead() int64 {
	return int64(s.pieceCount)*int64(unsafe.Sizeof(piece[T]{})) + int64(cap(s.pieces))*int64(unsafe.Sizeof(&piece[T]{}))
}
