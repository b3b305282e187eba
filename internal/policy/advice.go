package policy

import (
	"fmt"
	"math"
	"slices"
	"time"

	"cellserver/internal/limit"
	"cellserver/internal/match"
	"cellserver/internal/quota"
)

// Advice returns what is valid in the policies, but may not be what was meant: overrides that no request over HTTP
// can match, and throttles that admit much more in a period than their rate says.
func (s *Set) Advice() (lines []string) {
	for _, name := range s.names {
		p := s.policies[name]
		for _, o := range p.Overrides {
			for _, l := range o.Limits {
				lines = append(lines, l.advice(name+", "+o.String())...)
			}
			if p.HTTP.From != nil && o.Networks == nil && !reaches(p.HTTP.From, []byte(o.Pattern)) {
				lines = append(lines, fmt.Sprintf("%s: %v matches no subject that from makes of a request: %s%s", name, o,
					p.HTTP.from, adviceOnHash(&p.HTTP)))
			}
		}
		if p.DefaultPlan == "" {
			for _, l := range p.Limits {
				lines = append(lines, l.advice(name)...)
			}
		}
		for _, plan := range p.Plans {
			for _, l := range plan.Limits {
				lines = append(lines, l.advice(name+", plan "+plan.Name)...)
			}
		}
	}
	return lines
}

func adviceOnHash(h *HTTP) string {
	if !h.has(HashHeader) {
		return ""
	}
	return " (the SHA-256 of a header is 64 digits in lower case; printf %s VALUE | sha256sum prints them)"
}

// advice says how much a throttle admits in a period, if that is more than the count of its rate.
func (l Limit) advice(policy string) []string {
	if l.Kind != limit.Throttle || l.Throttle.Size() < 1 || l.rate.count < 1 || l.Throttle.EmissionInterval() < 1 {
		return nil
	}
	period := l.rate.length()
	most := uint64(l.Throttle.Size()) + uint64((period-1)/l.Throttle.EmissionInterval())
	if most <= uint64(l.rate.count) {
		return nil
	}
	return []string{fmt.Sprintf("%s: %v admits up to %d in %s: the burst, and what comes back meanwhile", policy, &l, most,
		formatPeriod(l.rate.period))}
}

// element is a set of bytes. It stands for one of these bytes or, if many is set, for any number of them.
type element struct {
	bytes [256]bool
	many  bool
}

// reaches reports whether any subject that a template makes matches a pattern. It errs on the side of yes: a
// client address is any text of digits, letters to f, points and colons.
func reaches(from []Part, pattern []byte) bool {
	return meet(elementsOf(from), patternElements(pattern))
}

func elementsOf(from []Part) (all []element) {
	for _, part := range from {
		switch part.Kind {
		case Literal:
			for i := range len(part.Text) {
				all = append(all, elementOf(part.Text[i:i+1], false))
			}
		case HashHeader:
			all = append(all, slices.Repeat([]element{elementOf("0123456789abcdef", false)}, 64)...)
		case ClientIP:
			all = append(all, elementOf("0123456789abcdef.:-", true)) // Shared for a Unix socket
		default:
			all = append(all, anything(true))
		}
	}
	return all
}

func elementOf(bytes string, many bool) (e element) {
	e.many = many
	for i := range len(bytes) {
		e.bytes[bytes[i]] = true
	}
	return e
}

func anything(many bool) (e element) {
	e.many = many
	for i := range e.bytes {
		e.bytes[i] = true
	}
	return e
}

func patternElements(pattern []byte) (all []element) {
	for len(pattern) > 0 {
		if pattern[0] == '*' {
			all, pattern = append(all, anything(true)), pattern[1:]
			continue
		}
		var e element
		length := 0
		for c := range 256 {
			length, e.bytes[c] = match.Element(pattern, byte(c))
		}
		all, pattern = append(all, e), pattern[length:]
	}
	return all
}

// meet reports whether a text can match both sequences of elements. For each number of elements of a that a text may
// have passed, reached has the numbers of elements of b that the same text may have passed.
func meet(a, b []element) bool {
	reached := make([][]bool, len(a)+1)
	for i := range reached {
		reached[i] = make([]bool, len(b)+1)
	}
	reached[0][0] = true
	for i := range reached {
		for j := range reached[i] {
			if !reached[i][j] {
				continue
			}
			manyA, manyB := i < len(a) && a[i].many, j < len(b) && b[j].many
			if manyA { // as often as not
				reached[i+1][j] = true
			}
			if manyB {
				reached[i][j+1] = true
			}
			if i == len(a) || j == len(b) || !overlap(&a[i], &b[j]) {
				continue
			}
			reached[i+1][j+1] = true
			reached[i+1][j] = reached[i+1][j] || manyB
			reached[i][j+1] = reached[i][j+1] || manyA
		}
	}
	return reached[len(a)][len(b)]
}

func overlap(a, b *element) bool {
	for c := range a.bytes {
		if a.bytes[c] && b.bytes[c] {
			return true
		}
	}
	return false
}

// rate is the rate of a throttle as the file has it.
type rate struct {
	count  int64
	period quota.Period
}

// length returns the period as a duration, or the longest one.
func (r rate) length() time.Duration {
	seconds, nanoseconds := r.period.Split()
	if seconds >= math.MaxInt64/int64(time.Second) {
		return math.MaxInt64
	}
	return time.Duration(seconds)*time.Second + time.Duration(nanoseconds)
}
