package pubsub

import "slices"

// orderedList is a list in the order in which its members came, that can be gone through a piece at a time
// while it changes: each member has a number, larger than all before it, so that who remembers the
// last number seen can go on from there. It needs a lock.
type orderedList[T any] struct {
	Entries []orderedEntry[T]
	removed int // entries without a member
}

type orderedEntry[T any] struct {
	number uint64
	member *T // nil if it has gone
}

func (r *orderedList[T]) len() int { return len(r.Entries) - r.removed }

// add takes numbers in ascending order.
func (r *orderedList[T]) add(number uint64, member *T) {
	r.Entries = append(r.Entries, orderedEntry[T]{number, member})
}

// from is where the entries begin that have this number or a larger one.
func (r *orderedList[T]) from(number uint64) int {
	at, _ := slices.BinarySearchFunc(r.Entries, number, func(e orderedEntry[T], n uint64) int {
		if e.number < n {
			return -1
		}
		return 1
	})
	return at
}

// remove forgets the member with a number. Gaps are closed when they are half of the list, so that
// it costs little on average.
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

// piece looks at up to size entries after the number last, up to the number until, and appends
// their members to dst. It returns the number that it came to, which is until when there are no
// more.
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
