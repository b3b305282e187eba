package lease

import (
	"iter"
	"slices"
	"sort"
	"strings"
	"time"

	"cellserver/internal/quota"
)

// Leases are a key's leases, any number of them. The zero value has none.
//
// They stand where they were put, and order lists their places by end, then by holder: what a call
// moves is 4 bytes a lease, 40 KB if the first of 10,000 becomes the last. Places that are free
// stand at the end of order, and so need no list of their own. Beside its name a holder takes 36
// bytes in slices, with their slack up to 45 while it grows, and some 45 in the index. Few holders,
// which is what most keys have, are better off as Few.
type Leases struct {
	places []Lease
	order  []int32 // [:live] lists leases, the rest free places
	live   int
	index  map[string]int32 // the place of each holder
	held   int64            // permits of all leases; at most the largest limit that has been, so it never overflows
	names  int              // bytes that the holders' names take
}

// fewPlaces are not worth giving back.
const fewPlaces = 16

// Acquire is Table's.
func (s *Leases) Acquire(now int64, r Request, maxHolders int) (d quota.Decision, changed bool, err error) {
	return acquire(s, now, r, maxHolders)
}

// Renew is Table's.
func (s *Leases) Renew(now int64, ttl time.Duration, holder []byte) bool {
	return renew(s, now, ttl, holder)
}

// Release is Table's.
func (s *Leases) Release(now int64, holder []byte) int64 { return release(s, now, holder) }

// Holders is Table's.
func (s *Leases) Holders(now int64) iter.Seq[Lease] {
	return func(yield func(Lease) bool) {
		for _, place := range s.order[s.over(instant(now)):s.live] {
			if !yield(s.places[place]) {
				return
			}
		}
	}
}

// Expires is Table's.
func (s *Leases) Expires() int64 {
	if s.live == 0 {
		return 0
	}
	return s.places[s.order[s.live-1]].End
}

// Len is Table's.
func (s *Leases) Len() int { return s.live }

// Bytes is how much memory the leases take, near enough for a memory limit.
func (s *Leases) Bytes() int {
	const perLeases, perPlace, perOrder, perIndexed = 96, 32, 4, 45
	return perLeases + cap(s.places)*perPlace + cap(s.order)*perOrder + len(s.index)*perIndexed + s.names
}

// nameBytes is what the allocator takes for a name, near enough.
func nameBytes(holder string) int { return (len(holder) + 15) &^ 15 }

// Clone is a copy that shares nothing but the names, which never change.
func (s *Leases) Clone() *Leases {
	clone := *s
	clone.rebuild(0)
	return &clone
}

// over is how many leases have ended at now; they are the first in order.
func (s *Leases) over(now int64) int {
	if s.live == 0 || s.places[s.order[0]].End > now {
		return 0
	}
	return sort.Search(s.live, func(i int) bool { return s.places[s.order[i]].End > now })
}

// expire drops the leases that have ended. Nobody can see that: an ended lease counts nowhere. A
// clock that runs back does not bring them back either, which the store keeps it from in any case.
func (s *Leases) expire(now int64) {
	ended := s.over(now)
	switch {
	case ended == 0:
		return
	case s.live-ended <= len(s.places)/4: // fewer are left than go: build anew from them, at their cost
		for _, place := range s.order[:ended] {
			s.held -= s.places[place].Quantity
			s.names -= nameBytes(s.places[place].Holder)
		}
		s.rebuild(ended)
		return
	}
	places := slices.Clone(s.order[:ended])
	copy(s.order, s.order[ended:s.live])
	s.live -= ended
	copy(s.order[s.live:], places)
	for _, place := range places {
		s.forget(place)
	}
}

// forget clears a place that order no longer lists.
func (s *Leases) forget(place int32) {
	s.held -= s.places[place].Quantity
	s.names -= nameBytes(s.places[place].Holder)
	delete(s.index, s.places[place].Holder)
	s.places[place] = Lease{} // the name can be collected
}

// shrink gives memory back once three places in four are free: at that rate it costs nothing on
// average.
func (s *Leases) shrink() {
	if len(s.places) > fewPlaces && s.live <= len(s.places)/4 || s.live == 0 {
		s.rebuild(0)
	}
}

// rebuild copies the leases, but for the first few in order, into places that follow order.
func (s *Leases) rebuild(but int) {
	order := s.order[but:s.live]
	from := s.places
	*s = Leases{live: len(order), held: s.held, names: s.names}
	if len(order) == 0 {
		return
	}
	s.places, s.order = make([]Lease, len(order)), make([]int32, len(order))
	for i, place := range order {
		s.places[i], s.order[i] = from[place], int32(i)
	}
	s.index = make(map[string]int32, s.live)
	for _, place := range s.order {
		s.index[s.places[place].Holder] = place
	}
}

// place is where a holder's lease stands, or -1.
func (s *Leases) place(holder []byte) int32 {
	if place, found := s.index[string(holder)]; found {
		return place
	}
	return -1
}

// position is where order lists a holder's lease, or -1.
func (s *Leases) position(holder []byte) int {
	place := s.place(holder)
	if place < 0 {
		return -1
	}
	return s.search(s.places[place].End, s.places[place].Holder, s.live)
}

// search finds, among the first n in order, the first that does not stand before an end and a
// holder.
func (s *Leases) search(end int64, holder string, n int) int {
	return sort.Search(n, func(i int) bool {
		lease := &s.places[s.order[i]]
		return lease.End > end || lease.End == end && strings.Compare(lease.Holder, holder) >= 0
	})
}

func (s *Leases) quantity(position int) int64 { return s.places[s.order[position]].Quantity }

func (s *Leases) permits() int64 { return s.held }

func (s *Leases) drop(position int) {
	place := s.order[position]
	copy(s.order[position:s.live], s.order[position+1:s.live])
	s.live--
	s.order[s.live] = place
	s.forget(place)
	s.shrink()
}

// put gives a holder its quantity until end: the lease at position, or a new one if that is -1.
func (s *Leases) put(position int, r Request, end int64) {
	if position < 0 {
		position = s.add(Lease{Holder: string(r.holder), End: end})
	}
	lease := &s.places[s.order[position]]
	s.held += r.quantity - lease.Quantity
	lease.Quantity = r.quantity
	s.move(position, end)
}

// add puts a new lease last in order, whatever its end, and returns its position: move puts it
// where it belongs.
func (s *Leases) add(lease Lease) int {
	if s.live == len(s.order) {
		s.order = append(s.order, int32(len(s.places)))
		s.places = append(s.places, Lease{})
	}
	place, position := s.order[s.live], s.live
	s.places[place] = lease
	s.names += nameBytes(lease.Holder)
	s.live++
	if s.index == nil {
		s.index = map[string]int32{}
	}
	s.index[lease.Holder] = place
	return position
}

// move gives the lease at position another end, and its position in order. What lies between the
// old one and the new one shifts by one.
func (s *Leases) move(position int, end int64) {
	place := s.order[position]
	copy(s.order[position:s.live], s.order[position+1:s.live]) // take it out
	to := s.search(end, s.places[place].Holder, s.live-1)
	copy(s.order[to+1:s.live], s.order[to:s.live-1]) // and in
	s.order[to] = place
	s.places[place].End = end
}

// endOfOthers is when the leases but the one at position have ended so far that no more than room
// permits of them are held. They hold more now. It looks at those that must end, and no further.
func (s *Leases) endOfOthers(position int, room int64) int64 {
	others := s.held
	if position >= 0 {
		others -= s.places[s.order[position]].Quantity
	}
	for i, place := range s.order[:s.live] {
		if i == position {
			continue
		}
		if others -= s.places[place].Quantity; others <= room {
			return s.places[place].End
		}
	}
	return s.Expires()
}

// Has says whether a holder has a lease, which may have ended since the last call.
func (l *Leases) Has(holder []byte) bool { return l.position(holder) >= 0 }
