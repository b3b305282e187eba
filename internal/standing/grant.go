package standing

import "encoding/binary"

// The bounds of grants.
const (
	MaxGrants = 8   // of a subject
	MaxLabel  = 160 // bytes of a label; the labels of policies, with name, unit and time zone, are shorter
)

// Grants are what a subject may take beyond limits of its policy, in the order of their labels. No two have the same
// label. They are kept in their encoded form, so that a State can be compared.
type Grants string

// Grant is a quantity that a subject may take beyond a limit for a time: until the window of the limit ends.
type Grant struct {
	Label    string // of the limit; its policy may not have it any more
	Quantity int64
	Term
}

// append appends a grant as Append encodes it.
func (g *Grant) append(dst []byte) []byte {
	return binary.AppendUvarint(appendText(appendTerm(dst, g.Term), g.Label), uint64(g.Quantity))
}

// List returns the grants.
func (g Grants) List() (list []Grant) {
	if g == "" {
		return nil
	}
	for r := (reader{rest: []byte(g)}); len(r.rest) > 0 && !r.failed; {
		if next := r.grant(); !r.failed {
			list = append(list, next)
		}
	}
	return list
}

// with returns the grants for which keep returns true, and one more unless its quantity is 0.
func (g Grants) with(more Grant, keep func(Grant) bool) Grants {
	var all []byte
	add := func(one Grant) {
		if one.Quantity > 0 {
			all = one.append(all)
		}
	}
	for _, one := range g.List() {
		if more.Label != "" && more.Label < one.Label {
			add(more)
			more = Grant{}
		}
		if keep(one) {
			add(one)
		}
	}
	add(more)
	return Grants(all)
}

// at returns the grants that have not ended.
func (g Grants) at(now int64) Grants {
	if g == "" {
		return g
	}
	return g.with(Grant{}, func(one Grant) bool { return now < one.Until })
}

// end returns the instant at which the last grant ends; 0 if there is none.
func (g Grants) end() (end int64) {
	for _, one := range g.List() {
		end = max(end, one.Until)
	}
	return end
}

// check reports whether calls of Grant can have made the grants.
func (g Grants) check() bool {
	r, label := reader{rest: []byte(g)}, ""
	for n := 0; len(r.rest) > 0; n++ {
		one := r.grant()
		if r.failed || n == MaxGrants || one.Label <= label || len(one.Label) > MaxLabel || one.Quantity <= 0 ||
			one.Until <= 0 || !one.Term.check() {
			return false
		}
		label = one.Label
	}
	return true
}

// shifted returns the grants on a clock that is ahead by some nanoseconds. ok is false if an instant would overflow.
func (g Grants) shifted(by int64) (shifted Grants, ok bool) {
	all, ok := []byte(nil), true
	for _, one := range g.List() {
		if one.Until, ok = shift(one.Until, by); !ok {
			return g, false
		}
		all = one.append(all)
	}
	return Grants(all), true
}

// Grant returns the state with a grant, which replaces a grant with the same label; a quantity of 0 only removes that.
// If the subject has MaxGrants others, ok is false, and the state is unchanged.
func (s State) Grant(now int64, grant Grant) (next State, ok bool) {
	next = s.At(now)
	if now >= grant.Until {
		grant.Quantity = 0
	}
	next.Grants = next.Grants.with(grant, func(one Grant) bool { return one.Label != grant.Label })
	if len(next.Grants.List()) > MaxGrants {
		return s, false
	}
	return next, true
}

// grant reads a grant.
func (r *reader) grant() Grant {
	term := r.term()
	return Grant{Term: term, Label: r.text(), Quantity: r.count()}
}

// grants reads the grants of an encoded state, at least one.
func (r *reader) grants() Grants {
	n, from := r.count(), r.rest
	if n < 1 || n > MaxGrants {
		r.failed = true
		return ""
	}
	for range n {
		r.grant()
	}
	return Grants(from[:len(from)-len(r.rest)])
}
