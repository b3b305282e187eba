package lease

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
