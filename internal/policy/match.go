package policy

import (
	"bytes"
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
// address, and a zone is removed, because a client can make it up. A text with anything else, such as a port, is
// not an address.
func (p *Policy) Subject(text []byte) Subject {
	if !p.cidr {
		return Subject{Text: text}
	}
	written := text
	if zone := bytes.IndexByte(text[:min(len(text), maxAddress+1)], '%'); zone >= 0 {
		written = text[:zone]
	}
	if len(written) > maxAddress {
		return Subject{Text: text}
	}
	address, err := netip.ParseAddr(string(written))
	if err != nil {
		return Subject{Text: text}
	}
	address = address.Unmap()
	return Subject{address.AppendTo(nil), address}
}

// Treatment is how a policy treats a subject.
type Treatment struct {
	Effect   Effect
	Limits   []Limit // if the Effect is Limited
	Plan     string  // the plan that the limits are from; empty if the subject has none of its own
	Override int     // the index of the override; -1 for none, and for a subject that is too long
}

// limitsIn returns the limits of a treatment, or the policy's if the treatment has no limits. A ban shows
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

// TreatsAlike reports whether the policy has no overrides. Then it has the same limits for all subjects, and subjects
// are written as they are.
func (p *Policy) TreatsAlike() bool { return len(p.Overrides) == 0 }

// IsSimple reports whether the policy has one limit, the same for all subjects.
func (p *Policy) IsSimple() bool { return p.simple }

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
// how many steps it took to find that out. A long subject that would take more than matchSteps is Blocked: its override
// is not known, and if that were an error, a client that chooses its subject could choose to have no decision.
func (p *Policy) TreatCounted(s Subject) (t Treatment, steps int) {
	left := matchSteps
	for i := range p.Overrides {
		o := &p.Overrides[i]
		var matches bool
		if matches, left = o.matches(s, left); left <= 0 {
			return Treatment{Effect: Blocked, Override: -1}, matchSteps
		}
		if matches {
			return Treatment{Effect: o.Effect, Limits: o.Limits, Override: i}, matchSteps - left
		}
	}
	return Treatment{Effect: Limited, Limits: p.Limits, Override: -1}, matchSteps - left
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
