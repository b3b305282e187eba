package lease

import (
	"iter"
	"slices"
	"sort"
	"strings"
	"time"

	"cellserver/internal/quota"
)

// Leases holds any number of leases of a key. The zero value is empty.
//
// Leases stay in the slot they were put in, and order lists the slots by end, then by holder.
// Changing an end therefore moves only 4 bytes per lease, 40 KB if the first of 10,000 becomes the
// last. Free slots are at the end of order, so that they need no list of their own. In addition to
// its name a holder takes 36 bytes in slices, up to 45 with slack while they grow, and about 45
// bytes in the index. Keys with few holders, the usual case, take less memory as Few.
type Leases struct {
	slots      []Lease
	order      []int32 // order[:live] lists the leases, the rest are free slots
	live       int
	index      map[string]int32 // the slot of each holder
	held       int64            // sum of all quantities; at most the largest limit so far, so it cannot overflow
	namesTotal int              // bytes taken by the holders' names
	blocks     blocks           // sums of the quantities in order
}

// minSlots is the number of slots below which memory is not given back.
const minSlots = 16

// Acquire implements Table.
func (s *Leases) Acquire(now int64, r Request, maxHolders int) (d quota.Decision, changed bool, err error) {
	return acquire(s, now, r, maxHolders)
}

// Peek implements Table.
func (s *Leases) Peek(now int64, r Request, maxHolders int) (d quota.Decision, err error) {
	d, _, err = peek(s, instant(now), r, maxHolders)
	return d, err
}

// Untaken implements Table.
func (s *Leases) Untaken(now int64, r Request) quota.Decision { return untaken(s, now, r) }

// Gap implements Table.
func (s *Leases) Gap(now int64, r Request) Gap { return gap(s, now, r) }

// Renew implements Table.
func (s *Leases) Renew(now int64, ttl time.Duration, holder []byte) bool {
	return renew(s, now, ttl, holder)
}

// Release implements Table.
func (s *Leases) Release(now int64, holder []byte) int64 { return release(s, now, holder) }

// Holders implements Table.
func (s *Leases) Holders(now int64) iter.Seq[Lease] {
	return func(yield func(Lease) bool) {
		for _, slot := range s.order[s.ended(instant(now)):s.live] {
			if !yield(s.slots[slot]) {
				return
			}
		}
	}
}

// Expires implements Table.
func (s *Leases) Expires() int64 {
	if s.live == 0 {
		return 0
	}
	return s.slots[s.order[s.live-1]].End
}

// Len implements Table.
func (s *Leases) Len() int { return s.live }

// Bytes returns the memory that the leases take, precisely enough for a memory limit.
func (s *Leases) Bytes() int {
	const base, perSlot, perOrder, perHolder = 120, 32, 4, 45
	return base + cap(s.slots)*perSlot + cap(s.order)*perOrder + len(s.index)*perHolder + s.namesTotal
}

// nameBytes returns the approximate size of the allocation for a name.
func nameBytes(holder string) int { return (len(holder) + 15) &^ 15 }

// Clone returns a copy. It shares only the names, which are immutable.
func (s *Leases) Clone() *Leases {
	clone := *s
	clone.rebuild(0)
	return &clone
}

// ended returns how many leases have ended at now; they are the first in order.
func (s *Leases) ended(now int64) int {
	if s.live == 0 || s.slots[s.order[0]].End > now {
		return 0
	}
	return sort.Search(s.live, func(i int) bool { return s.slots[s.order[i]].End > now })
}

// expire removes the leases that have ended. That is not observable, because an ended lease never
// counts. Leases do not come back if the clock runs backwards, which the store prevents in any
// case.
func (s *Leases) expire(now int64) {
	ended := s.ended(now)
	switch {
	case ended == 0:
		return
	case s.live-ended <= len(s.slots)/4: // few are left: rebuilding costs no more than removing the others
		for _, slot := range s.order[:ended] {
			s.held -= s.slots[slot].Quantity
			s.namesTotal -= nameBytes(s.slots[slot].Holder)
		}
		s.rebuild(ended)
		return
	}
	slots := slices.Clone(s.order[:ended])
	if ended < blockLeases {
		s.removeFromBlocks(ended)
	}
	copy(s.order, s.order[ended:s.live])
	s.live -= ended
	copy(s.order[s.live:], slots)
	for _, slot := range slots {
		s.clearSlot(slot)
	}
	if ended >= blockLeases {
		s.sumBlocks()
	}
}

// clearSlot clears a slot that is no longer in use.
func (s *Leases) clearSlot(slot int32) {
	s.held -= s.slots[slot].Quantity
	s.namesTotal -= nameBytes(s.slots[slot].Holder)
	delete(s.index, s.slots[slot].Holder)
	s.slots[slot] = Lease{} // so that the name can be garbage collected
}

// shrink gives memory back when three slots in four are free, so that the amortized cost is
// constant.
func (s *Leases) shrink() {
	if len(s.slots) > minSlots && s.live <= len(s.slots)/4 || s.live == 0 {
		s.rebuild(0)
	}
}

// rebuild moves the leases, except for the first few in order, to new slots that are in order.
func (s *Leases) rebuild(skip int) {
	order := s.order[skip:s.live]
	from := s.slots
	*s = Leases{live: len(order), held: s.held, namesTotal: s.namesTotal}
	if len(order) == 0 {
		return
	}
	s.slots, s.order = make([]Lease, len(order)), make([]int32, len(order))
	for i, slot := range order {
		s.slots[i], s.order[i] = from[slot], int32(i)
	}
	s.index = make(map[string]int32, s.live)
	for _, slot := range s.order {
		s.index[s.slots[slot].Holder] = slot
	}
	s.sumBlocks()
}

// slot returns the slot of a holder's lease, or -1.
func (s *Leases) slot(holder []byte) int32 {
	if slot, found := s.index[string(holder)]; found {
		return slot
	}
	return -1
}

// position returns the index in order of a holder's lease, or -1.
func (s *Leases) position(holder []byte) int {
	slot := s.slot(holder)
	if slot < 0 {
		return -1
	}
	return s.search(s.slots[slot].End, s.slots[slot].Holder, s.live)
}

// search returns the first position below n whose lease does not precede a lease with this end and
// holder; n if there is none.
func (s *Leases) search(end int64, holder string, n int) int {
	return sort.Search(n, func(i int) bool {
		lease := &s.slots[s.order[i]]
		return lease.End > end || lease.End == end && strings.Compare(lease.Holder, holder) >= 0
	})
}

func (s *Leases) quantity(position int) int64 { return s.slots[s.order[position]].Quantity }

func (s *Leases) end(position int) int64 { return s.slots[s.order[position]].End }

func (s *Leases) permits() int64 { return s.held }

func (s *Leases) drop(position int) {
	slot := s.order[position]
	copy(s.order[position:s.live], s.order[position+1:s.live])
	s.live--
	s.order[s.live] = slot
	s.moveInBlocks(position, s.live)
	s.addToBlock(s.live, -s.slots[slot].Quantity)
	s.clearSlot(slot)
	s.shrink()
}

// put gives a holder a quantity until end. It changes the lease at position, or adds one if that is
// -1.
func (s *Leases) put(position int, r Request, end int64) {
	if position < 0 {
		position = s.add(Lease{Holder: string(r.holder), End: end})
	}
	lease := &s.slots[s.order[position]]
	s.held += r.quantity - lease.Quantity
	s.addToBlock(position, r.quantity-lease.Quantity)
	lease.Quantity = r.quantity
	s.move(position, end)
}

// add appends a lease to order and returns its position. The caller must then call move, which puts
// it in its place in the order.
func (s *Leases) add(lease Lease) int {
	if s.live == len(s.order) {
		s.order = append(s.order, int32(len(s.slots)))
		s.slots = append(s.slots, Lease{})
	}
	slot, position := s.order[s.live], s.live
	s.slots[slot] = lease
	s.namesTotal += nameBytes(lease.Holder)
	s.live++
	if s.index == nil {
		s.index = map[string]int32{}
	}
	s.index[lease.Holder] = slot
	return position
}

// move changes the end of the lease at position and moves it to its place in the order; the
// positions between shift by one.
func (s *Leases) move(position int, end int64) {
	slot := s.order[position]
	copy(s.order[position:s.live], s.order[position+1:s.live]) // remove it
	to := s.search(end, s.slots[slot].Holder, s.live-1)
	copy(s.order[to+1:s.live], s.order[to:s.live-1]) // insert it
	s.order[to] = slot
	s.slots[slot].End = end
	s.moveInBlocks(position, to)
}

func (s *Leases) lastOther(position int) int64 {
	switch {
	case position < 0 || position < s.live-1:
		return s.Expires()
	case position == 0:
		return 0
	}
	return s.slots[s.order[position-1]].End
}

// Has reports whether a holder has a lease, which may have ended since the last call.
func (s *Leases) Has(holder []byte) bool { return s.position(holder) >= 0 }
