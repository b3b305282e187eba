package store

// slab holds what does not fit in records, by number: state of any size, which has pointers. Numbers are used again.
type slab[T any] struct {
	items []*T
	free  []uint32
	bytes int64 // that the items take with what they hold; for their owner to keep
}

func (s *slab[T]) add() (n uint32, item *T) {
	item = new(T)
	if k := len(s.free); k > 0 {
		n, s.free = s.free[k-1], s.free[:k-1]
		s.items[n] = item
		return n, item
	}
	s.items = append(s.items, item)
	return uint32(len(s.items) - 1), item
}

func (s *slab[T]) at(n uint32) *T { return s.items[n] }

// remove forgets an item. When none is left, so is the room for them.
func (s *slab[T]) remove(n uint32) {
	s.items[n] = nil
	if s.free = append(s.free, n); len(s.free) == len(s.items) {
		s.items, s.free = nil, nil
	}
}
