package lease

import "encoding/binary"

// Of returns a table of stored leases, each of a different holder. The first call of a method
// removes the leases that have ended.
func Of(leases []Lease) *Leases {
	s := &Leases{}
	for i := range leases {
		l := &leases[i]
		s.put(-1, Request{quantity: l.Quantity, holder: []byte(l.Holder)}, l.End)
	}
	return s
}

// Find returns a holder's lease, which may have ended since the last call.
func (s *Leases) Find(holder []byte) (l Lease, found bool) {
	slot := s.slot(holder)
	if slot < 0 {
		return Lease{}, false
	}
	return s.slots[slot], true
}

// Set stores a lease in place of the lease that its holder has. A lease without a quantity removes
// that.
func (s *Leases) Set(l Lease) {
	holder := []byte(l.Holder)
	position := s.position(holder)
	switch {
	case l.Quantity > 0:
		s.put(position, Request{quantity: l.Quantity, holder: holder}, l.End)
	case position >= 0:
		s.drop(position)
	}
}

// FewBytes returns how many bytes AppendFew appends.
func FewBytes(leases []Lease) int {
	n := len(leases) * atHolder
	for i := range leases {
		n += len(leases[i].Holder)
	}
	return n
}

// AppendFew appends leases in the format that Few loads. They must be ordered by end, then by
// holder.
func AppendFew(dst []byte, leases []Lease) []byte {
	for i := range leases {
		l := &leases[i]
		dst = binary.LittleEndian.AppendUint64(dst, uint64(l.End))
		dst = binary.LittleEndian.AppendUint64(dst, uint64(l.Quantity))
		dst = binary.LittleEndian.AppendUint16(dst, uint16(len(l.Holder)))
		dst = append(dst, l.Holder...)
	}
	return dst
}
