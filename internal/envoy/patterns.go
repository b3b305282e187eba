package envoy

import (
	"bytes"
	"slices"
	"strings"
)

// patterns are the descriptors of a level whose texts have a *, which stands for any number of bytes. The first one in
// the order of the file counts. Most have bytes before the first * or after the last one, so they are kept by these
// bytes: of ten thousand patterns such as path_/users/*, a text is compared with the few that may match it.
type patterns struct {
	n      int
	heads  []int // the lengths of what stands before the first *, each once, ascending
	byHead map[string]*tails
}

// tails are the patterns with one beginning, by what stands after the last *.
type tails struct {
	lengths []int
	byTail  map[string][]pattern
}

// pattern is what stands between the first and the last * of a descriptor's text.
type pattern struct {
	order  int
	middle [][]byte // nil if there is one *
	pairs  pairs    // of all middles
	level  *level
}

// add adds a text with a *.
func (p *patterns) add(text string, l *level) {
	parts := strings.Split(text, "*")
	head, tail := parts[0], parts[len(parts)-1]
	if p.byHead == nil {
		p.byHead = map[string]*tails{}
	}
	t := p.byHead[head]
	if t == nil {
		t = &tails{byTail: map[string][]pattern{}}
		p.byHead[head] = t
		p.heads = withLength(p.heads, len(head))
	}
	added := pattern{order: p.n, level: l}
	for _, part := range parts[1 : len(parts)-1] {
		if part != "" {
			added.middle = append(added.middle, []byte(part))
			added.pairs.add([]byte(part))
		}
	}
	t.byTail[tail] = append(t.byTail[tail], added)
	t.lengths = withLength(t.lengths, len(tail))
	p.n++
}

// withLength adds a length to ascending ones, unless it is among them.
func withLength(lengths []int, n int) []int {
	at, found := slices.BinarySearch(lengths, n)
	if found {
		return lengths
	}
	return slices.Insert(lengths, at, n)
}

// find returns the descriptor of the first pattern that matches a text; nil if there is none.
func (p *patterns) find(text []byte) *level {
	if p.n == 0 {
		return nil
	}
	s := search{text: text, best: pattern{order: p.n}}
	for _, head := range p.heads {
		if head > len(text) {
			break
		}
		if t := p.byHead[string(text[:head])]; t != nil {
			s.look(t, text[head:])
		}
	}
	return s.best.level
}

// search is what find knows of a text.
type search struct {
	text  []byte
	pairs *pairs  // of the text; nil before they are needed
	best  pattern // the first in order of those that match
}

// look looks for a better pattern among those with one beginning, given what follows in the text.
func (s *search) look(t *tails, rest []byte) {
	for _, tail := range t.lengths {
		if tail > len(rest) {
			return
		}
		between := rest[:len(rest)-tail]
		list := t.byTail[string(rest[len(between):])]
		for i := range list {
			if list[i].order >= s.best.order {
				break
			}
			if list[i].middle == nil || s.mayMatch(&list[i]) && list[i].matches(between) {
				s.best = list[i]
				break
			}
		}
	}
}

func (s *search) mayMatch(p *pattern) bool {
	if s.pairs == nil {
		s.pairs = new(pairs)
		s.pairs.add(s.text)
	}
	return s.pairs.has(&p.pairs)
}

// matches reports whether the bytes between the head and the tail have all middles, in order.
func (p *pattern) matches(between []byte) bool {
	for _, middle := range p.middle {
		at := bytes.Index(between, middle)
		if at < 0 {
			return false
		}
		between = between[at+len(middle):]
	}
	return true
}

// pairs is a set of pairs of adjacent bytes, by a hash of 8 bits. A text that lacks a pair of a pattern does not match
// it, which is found out in a tenth of the time of a search.
type pairs [4]uint64

func (p *pairs) add(text []byte) {
	for i := 1; i < len(text); i++ {
		h := (uint16(text[i-1])*31 + uint16(text[i])*131) % 257 & 255
		p[h>>6] |= 1 << (h & 63)
	}
}

// has reports whether all pairs of another set are in the set.
func (p *pairs) has(other *pairs) bool {
	return (other[0]&^p[0])|(other[1]&^p[1])|(other[2]&^p[2])|(other[3]&^p[3]) == 0
}
