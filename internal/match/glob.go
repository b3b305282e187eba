// Package match matches strings against glob-style patterns, with the syntax of Redis.
package match

import "math"

// Glob reports whether text matches pattern, as stringmatchlen of Redis does: * matches any bytes,
// ? any one byte, [a-z] a class, [^x] a negated class, and \ makes the next byte literal. With
// fold, the case of ASCII letters is ignored. The time is at most the product of the two lengths,
// because on a mismatch only the last * is tried again, which is sufficient. The recursion in Redis
// takes exponential time for patterns such as a*a*a*b.
func Glob(pattern, text []byte, fold bool) bool {
	ok, _ := GlobWithin(pattern, text, fold, math.MaxInt)
	return ok
}

// GlobWithin is Glob with a bound on its work, in steps of a few nanoseconds each. It returns how
// many steps are left; when there are none, it reports no match.
func GlobWithin(pattern, text []byte, fold bool, left int) (bool, int) {
	p, t := 0, 0
	starPattern, starText := -1, 0 // positions after the last * in pattern, and in text where it was last tried
	for t < len(text) {
		if p < len(pattern) && pattern[p] == '*' {
			p++
			starPattern, starText = p, t
			if p == len(pattern) {
				return true, left
			}
			if left--; left < 0 {
				return false, 0
			}
			continue
		}
		n, ok := globOne(pattern[p:], text[t], fold)
		if left -= stepsOf(n); left < 0 { // a class may be long
			return false, 0
		}
		if ok {
			p, t = p+n, t+1
			continue
		}
		if starPattern < 0 {
			return false, left
		}
		starText++
		p, t = starPattern, starText
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern), left
}

// stepsOf returns the steps of comparing a byte with an element of a pattern, of a length.
func stepsOf(length int) int { return 1 + length/4 }

// MostSteps returns the most steps that GlobWithin takes for a text: fixed ones, and some for each of its
// bytes. Before the first *, each element is compared once at most; after it, the elements up to the next *
// with the bytes at each position.
func MostSteps(pattern []byte) (fixed, perByte int) {
	stars, segment := 0, 1 // a step at the end of the pattern
	fixed = segment
	for len(pattern) > 0 {
		if pattern[0] == '*' {
			stars, segment, pattern = stars+1, 1, pattern[1:]
			continue
		}
		n, _ := globOne(pattern, 0, false)
		pattern = pattern[n:]
		if segment += stepsOf(n); stars == 0 {
			fixed = segment
		} else {
			perByte = max(perByte, segment)
		}
	}
	return fixed + stars, perByte
}

// Element returns the length of the first element of a pattern that does not begin with *, and whether it matches a
// byte. The length is the same for all bytes.
func Element(pattern []byte, c byte) (length int, ok bool) { return globOne(pattern, c, false) }

// globOne matches one byte against the first element of a pattern and returns the length of that
// element.
func globOne(pattern []byte, c byte, fold bool) (length int, ok bool) {
	if len(pattern) == 0 {
		return 0, false
	}
	switch {
	case pattern[0] == '?':
		return 1, true
	case pattern[0] == '[':
		return globClass(pattern, c, fold)
	case pattern[0] == '\\' && len(pattern) > 1:
		return 2, lower(pattern[1], fold) == lower(c, fold)
	default:
		return 1, lower(pattern[0], fold) == lower(c, fold)
	}
}

// globClass matches one byte against a class in brackets. A class without a closing bracket ends at
// the end of the pattern, as in Redis. The bytes of a range are signed, as Redis compares them on amd64: those
// from 0x80 on come before the others.
func globClass(pattern []byte, c byte, fold bool) (n int, ok bool) {
	i := 1
	negated := i < len(pattern) && pattern[i] == '^'
	if negated {
		i++
	}
	c = lower(c, fold)
	for i < len(pattern) && pattern[i] != ']' {
		switch {
		case pattern[i] == '\\' && i+1 < len(pattern):
			ok = ok || lower(pattern[i+1], fold) == c
			i += 2
		case i+2 < len(pattern) && pattern[i+1] == '-':
			lo, hi := int8(lower(pattern[i], fold)), int8(lower(pattern[i+2], fold))
			ok = ok || min(lo, hi) <= int8(c) && int8(c) <= max(lo, hi)
			i += 3
		default:
			ok = ok || lower(pattern[i], fold) == c
			i++
		}
	}
	return min(i+1, len(pattern)), ok != negated
}

func lower(b byte, fold bool) byte {
	if fold && 'A' <= b && b <= 'Z' {
		return b + 'a' - 'A'
	}
	return b
}
