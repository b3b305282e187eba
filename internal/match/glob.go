// Package match matches texts against glob-style patterns as Redis does.
package match

import "math"

// Glob says whether a text matches a pattern as Redis's stringmatchlen does: * ? [a-z] [^x] and \
// before a byte that stands for itself; with fold, whatever the case of ASCII letters. Only the
// last * seen is ever tried again, which is enough, so the time is at most the product of the
// lengths; Redis's own recursion takes exponential time on patterns such as a*a*a*b.
func Glob(pattern, text []byte, fold bool) bool {
	ok, _ := GlobWithin(pattern, text, fold, math.MaxInt)
	return ok
}

// GlobWithin is Glob in so many steps of a few nanoseconds: it says how many are left, and no when
// there is none.
func GlobWithin(pattern, text []byte, fold bool, left int) (bool, int) {
	p, t := 0, 0
	star, from := -1, 0 // the pattern after the last *, and the text that it was tried on
	for t < len(text) {
		if p < len(pattern) && pattern[p] == '*' {
			p++
			star, from = p, t
			if p == len(pattern) {
				return true, left
			}
			if left--; left < 0 {
				return false, 0
			}
			continue
		}
		n, ok := globOne(pattern[p:], text[t], fold)
		if left -= 1 + n/8; left < 0 { // a class may be long
			return false, 0
		}
		if ok {
			p, t = p+n, t+1
			continue
		}
		if star < 0 {
			return false, left
		}
		from++
		p, t = star, from
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern), left
}

// globOne matches one byte against the piece that a pattern starts with, and says how long that
// piece is.
func globOne(pattern []byte, c byte, fold bool) (n int, ok bool) {
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

// globClass matches a byte against a [class]. One that is not closed ends with the pattern, as in
// Redis.
func globClass(pattern []byte, c byte, fold bool) (n int, ok bool) {
	i := 1
	not := i < len(pattern) && pattern[i] == '^'
	if not {
		i++
	}
	c = lower(c, fold)
	for i < len(pattern) && pattern[i] != ']' {
		switch {
		case pattern[i] == '\\' && i+1 < len(pattern):
			ok = ok || lower(pattern[i+1], fold) == c
			i += 2
		case i+2 < len(pattern) && pattern[i+1] == '-':
			lo, hi := lower(pattern[i], fold), lower(pattern[i+2], fold)
			ok = ok || min(lo, hi) <= c && c <= max(lo, hi)
			i += 3
		default:
			ok = ok || lower(pattern[i], fold) == c
			i++
		}
	}
	return min(i+1, len(pattern)), ok != not
}

func lower(b byte, fold bool) byte {
	if fold && 'A' <= b && b <= 'Z' {
		return b + 'a' - 'A'
	}
	return b
}
