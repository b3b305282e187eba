package lease

// Of is a table of these leases, each of another holder, as they were read from where they had been
// written down. Those that have ended meanwhile go at the first call.
func Of(leases []Lease) *Leases {
	s := &Leases{}
	for i := range leases {
		l := &leases[i]
		s.put(-1, Request{quantity: l.Quantity, holder: []byte(l.Holder)}, l.End)
	}
	return s
}
