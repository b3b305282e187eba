package policy

import (
	"errors"
	"net/netip"

	"cellserver/internal/match"
)

// Subject is the subject of a call as its policy sees it. Keys and patterns refer to its text.
type Subject struct {
	Text    []byte
	address netip.Addr // if the policy has networks and the text is an address
}

// maxAddress is the length of the longest text of an address.
const maxAddress = len("ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255")

// Subject returns the subject with a text. If the policy has networks, an address is written in canonical
// form, so that all of its forms are one subject; an IPv4 address that is mapped to IPv6 is the IPv4
// address. A text with anything else, such as a port or a zone, is not an address.
func (p *Policy) Subject(text []byte) Subject {
	if !p.cidr || len(text) > maxAddress {
		return Subject{Text: text}
	}
	address, err := netip.ParseAddr(string(text))
	if err != nil || address.Zone() != "" {
		return Subject{Text: text}
	}
	address = address.Unmap()
	return Subject{address.AppendTo(nil), address}
}

// Treatment is how a policy treats a subject.
type Treatment struct {
	Effect   Effect
	Limits   []Limit // if the Effect is Limited
	Override int     // the index of the override, or -1
}

// limitsIn returns the limits of a treatment, or those of the policy if the treatment has none. A ban shows
// them, also to subjects that are unlimited otherwise.
func (p *Policy) limitsIn(t Treatment) []Limit {
	if t.Effect == Limited {
		return t.Limits
	}
	return p.Limits
}

// matchSteps bounds the work for one subject, in steps of a few nanoseconds: half a millisecond. It is enough for
// 100 patterns on subjects of 1,000 bytes.
const matchSteps = 1 << 17

// ErrCostly is the error for a long subject that would take too long to be compared with the patterns of
// its policy. The server must not guess which override it has.
var ErrCostly = errors.New("comparing the subject with the patterns of its policy takes too long")

// TreatsAlike reports whether the policy has no overrides, so that its limits are those of all subjects, which
// are written as they are.
func (p *Policy) TreatsAlike() bool { return len(p.Overrides) == 0 }

// MostSteps returns the most steps that TreatCounted takes for a subject of so many bytes.
func (p *Policy) MostSteps(bytes int) int {
	return min(p.fixedSteps+p.byteSteps*min(bytes+1, matchSteps), matchSteps)
}

// MostLimits returns how many limits the policy has for a subject at most.
func (p *Policy) MostLimits() int { return p.mostLimits }

// mostSteps is MostSteps for an override: fixed steps, and some for each byte.
func (o *Override) mostSteps() (fixed, perByte int) {
	if o.Networks != nil {
		return len(o.Networks), 0
	}
	return match.MostSteps([]byte(o.Pattern))
}

// TreatCounted returns how the policy treats a subject, as the first override that matches it says, and
// how many steps it took to find that out. The error is ErrCostly.
func (p *Policy) TreatCounted(s Subject) (t Treatment, steps int, err error) {
	left := matchSteps
	for i := range p.Overrides {
		o := &p.Overrides[i]
		var matches bool
		if matches, left = o.matches(s, left); left <= 0 {
			return Treatment{}, matchSteps, ErrCostly
		}
		if matches {
			return Treatment{o.Effect, o.Limits, i}, matchSteps - left, nil
		}
	}
	return Treatment{Limited, p.Limits, -1}, matchSteps - left, nil
}

// matches reports whether an override is for a subject, and how many steps are left.
func (o *Override) matches(s Subject, left int) (bool, int) {
	if o.Networks == nil {
		return match.GlobWithin([]byte(o.Pattern), s.Text, false, left)
	}
	if !s.address.IsValid() {
		return false, left - 1
	}
	for _, network := range o.Networks {
		if network.Contains(s.address) {
			return true, left
		}
	}
	return false, left - len(o.Networks)
}
