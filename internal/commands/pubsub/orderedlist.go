package pubsub

import "slices"

// orderedList is a list of members in the order in which they were added. It can be read in pieces
// while it changes: each member has a number, larger than the numbers of all members before it, and a
// reader continues after the last number that it has seen. The caller locks the list.
type orderedList[T any] struct {
	Entries []orderedEntry[T]
	removed int // entries whose members were removed
}

type orderedEntry[T any] struct {
	number uint64
	member *T // nil if it was removed
}

func (r *orderedList[T]) len() int { return len(r.Entries) - r.removed }

// add appends a member. Its number must be larger than all before it.
func (r *orderedList[T]) add(number uint64, member *T) {
	r.Entries = append(r.Entries, orderedEntry[T]{number, member})
}

// from returns the index of the first entry with this number or a larger one.
func (r *orderedList[T]) from(number uint64) int {
	at, _ := slices.BinarySearchFunc(r.Entries, number, func(e orderedEntry[T], n uint64) int {
		if e.number < n {
			return -1
		}
		return 1
	})
	return at
}

// remove removes the member with a number. Entries without members are deleted when they are more than
// half of the list, so that the cost per member is constant on average.
func (r *orderedList[T]) remove(number uint64) {
	at := r.from(number)
	if at == len(r.Entries) || r.Entries[at].number != number || r.Entries[at].member == nil {
		return
	}
	r.Entries[at].member = nil
	if r.removed++; r.removed*2 > len(r.Entries) {
		r.Entries = slices.DeleteFunc(r.Entries, func(e orderedEntry[T]) bool { return e.member == nil })
		r.Entries = slices.Clip(slices.Clone(r.Entries))
		r.removed = 0
	}
}

// piece reads up to size entries with numbers above last and up to until, and appends their members to
// dst. It returns the last number that it has read, or until if there are no more such entries.
func (r *orderedList[T]) piece(dst []*T, last, until uint64, size int) ([]*T, uint64) {
	for _, e := range r.Entries[r.from(last+1):] {
		if e.number > until {
			break
		}
		if size == 0 {
			return dst, last
		}
		size--
		if last = e.number; e.member != nil {
			dst = append(dst, e.member)
		}
	}
	return dst, until
}
