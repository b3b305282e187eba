package envoy

import (
	"slices"
	"strings"
)

// patterns are the descriptors of a level whose texts contain a *, which stands for any number of bytes. If several
// match, the first in the order of the file counts.
//
// A text is compared with only a few patterns. They are indexed by the text before the first * and the text after the
// last *; patterns with further text between the two also by the longest part of it. One pass finds which parts a text
// contains. So the time depends on the length of the text, which a client may choose, but hardly on the number of
// patterns.
type patterns struct {
	n      int
	heads  []int // the lengths of the texts before the first *, each once, ascending
	byHead map[string]*tails
	parts  parts
}

// tails are the patterns with the same text before the first *, by the text after the last *.
type tails struct {
	lengths []int
	byTail  map[string]*group
}

// group is the patterns with the same text before the first * and after the last *.
type group struct {
	plain  *pattern             // the first pattern without further parts; nil if there is none
	byPart map[*part][]*pattern // the other patterns, by their longest part, in order
}

type pattern struct {
	order int
	parts []*part // the texts between the first and the last *
	level *level
}

// part is a text between two *.
type part struct{ text string }

// parts are the parts of all patterns of a level.
type parts struct {
	byText  map[string]*part
	lengths []int            // each once, ascending
	starts  *[1 << 10]uint64 // a bit for each two bytes with which a part begins
}

func (p *parts) add(text string) *part {
	if known := p.byText[text]; known != nil {
		return known
	}
	if p.byText == nil {
		p.byText, p.starts = map[string]*part{}, new([1 << 10]uint64)
	}
	added := &part{text}
	p.byText[text] = added
	p.lengths = withLength(p.lengths, len(text))
	if len(text) > 1 {
		p.mark(text[0], text[1])
		return added
	}
	for second := range 256 {
		p.mark(text[0], byte(second))
	}
	return added
}

func (p *parts) mark(first, second byte) {
	p.starts[int(first)<<2|int(second)>>6] |= 1 << (second & 63)
}

// in returns the places of all parts in a text.
func (p *parts) in(text []byte) map[*part][]int {
	found := map[*part][]int{}
	for i, first := range text {
		second := byte(0) // a part of one byte is marked with all
		if i+1 < len(text) {
			second = text[i+1]
		}
		if p.starts[int(first)<<2|int(second)>>6]&(1<<(second&63)) == 0 {
			continue
		}
		for _, length := range p.lengths {
			if i+length > len(text) {
				break
			}
			if known := p.byText[string(text[i:i+length])]; known != nil {
				found[known] = append(found[known], i)
			}
		}
	}
	return found
}

// add adds a text with a *.
func (p *patterns) add(text string, l *level) {
	between := strings.Split(text, "*")
	head, tail := between[0], between[len(between)-1]
	if p.byHead == nil {
		p.byHead = map[string]*tails{}
	}
	t := p.byHead[head]
	if t == nil {
		t = &tails{byTail: map[string]*group{}}
		p.byHead[head] = t
		p.heads = withLength(p.heads, len(head))
	}
	g := t.byTail[tail]
	if g == nil {
		g = &group{byPart: map[*part][]*pattern{}}
		t.byTail[tail] = g
		t.lengths = withLength(t.lengths, len(tail))
	}
	added := &pattern{order: p.n, level: l}
	p.n++
	for _, text := range between[1 : len(between)-1] {
		if text != "" {
			added.parts = append(added.parts, p.parts.add(text))
		}
	}
	if len(added.parts) > 0 {
		longest := slices.MaxFunc(added.parts, func(a, b *part) int { return len(a.text) - len(b.text) })
		g.byPart[longest] = append(g.byPart[longest], added)
	} else if g.plain == nil {
		g.plain = added
	}
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
	s := search{of: p, text: text, best: &pattern{order: p.n}}
	for _, head := range p.heads {
		if head > len(text) {
			break
		}
		if t := p.byHead[string(text[:head])]; t != nil {
			s.look(t, head)
		}
	}
	return s.best.level
}

// search is the state of a find.
type search struct {
	of    *patterns
	text  []byte
	found map[*part][]int // where each part is; nil before that is needed
	best  *pattern        // the first pattern, in order, that matches
}

// look looks for a better pattern among the patterns with the same beginning, which ends at the index head of the text.
func (s *search) look(t *tails, head int) {
	for _, tail := range t.lengths {
		end := len(s.text) - tail
		if end < head {
			return
		}
		g := t.byTail[string(s.text[end:])]
		if g == nil {
			continue
		}
		if g.plain != nil && g.plain.order < s.best.order {
			s.best = g.plain
		}
		if len(g.byPart) == 0 {
			continue
		}
		if s.found == nil {
			s.found = s.of.parts.in(s.text)
		}
		if len(g.byPart) < len(s.found) {
			for _, list := range g.byPart {
				s.choose(list, head, end)
			}
			continue
		}
		for part := range s.found {
			s.choose(g.byPart[part], head, end)
		}
	}
}

// choose looks for a better pattern in a list: the text must have its parts between two indexes.
func (s *search) choose(list []*pattern, head, end int) {
	for _, p := range list {
		if p.order >= s.best.order {
			return
		}
		if s.has(p.parts, head, end) {
			s.best = p
			return
		}
	}
}

// has reports whether the text has parts between two indexes, in order.
func (s *search) has(parts []*part, from, end int) bool {
	for _, part := range parts {
		at := s.found[part]
		i, _ := slices.BinarySearch(at, from)
		if i == len(at) {
			return false
		}
		from = at[i] + len(part.text)
	}
	return from <= end
}
