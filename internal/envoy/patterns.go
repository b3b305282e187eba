package envoy

import (
	"math"
	"slices"
	"strings"
)

// patterns are the descriptors of a level whose texts contain a *, which stands for any number of bytes. If several
// match, the first in the order of the file counts.
//
// A text is compared with only a few patterns. They are indexed by the text before the first * and the text after the
// last *; patterns with further text between the two also by the part of it that the fewest patterns have. One pass
// finds which parts a text contains: see parts.
//
// A client may write parts of all patterns into a text. So the work for a text is bounded: see maxSteps.
type patterns struct {
	list   []pattern // in the order of the file
	heads  []int     // the lengths of the texts before the first *, each once, ascending
	byHead map[string]*tails
	parts  parts
}

// pattern is a text with a *.
type pattern struct {
	text  string
	level *level
	parts []int32 // the texts between the first and the last *, by their numbers in parts
}

// tails are the patterns with the same text before the first *, by the text after the last *.
type tails struct {
	lengths []int
	byTail  map[string]*group
}

// group is the patterns with the same text before the first * and after the last *. Patterns are named by their places
// in the list.
type group struct {
	plain  int     // the first pattern without further parts; none if there is none
	inner  int     // the first pattern with further parts; none if there is none
	keys   []int32 // the parts by which the patterns with further parts are indexed
	byPart map[int32][]int
}

// none is beyond the places of all patterns.
const none = math.MaxInt

// maxSteps bounds the comparisons for a text: steps in the tree of the parts, parts that are found, and patterns that
// are compared with them. Beyond that, a pattern matches if the text begins and ends like it, whatever is between. So
// such a text still gets a limit, and clients cannot evade the patterns by making them slow.
const maxSteps = 8192

// add adds a text with a *.
func (p *patterns) add(text string, l *level) { p.list = append(p.list, pattern{text: text, level: l}) }

// seal makes the index. It is to be called once, after the last add.
func (p *patterns) seal() {
	if len(p.list) == 0 {
		return
	}
	p.byHead = map[string]*tails{}
	groups := make([]*group, len(p.list))
	for i := range p.list {
		between := strings.Split(p.list[i].text, "*")
		last := len(between) - 1
		groups[i] = p.group(between[0], between[last])
		for _, text := range between[1:last] {
			if text != "" {
				p.list[i].parts = append(p.list[i].parts, p.parts.add(text))
			}
		}
	}
	p.parts.seal()
	for i, g := range groups {
		g.add(i, p.parts.rarest(p.list[i].parts))
	}
}

// group returns the group of patterns with the same beginning and end.
func (p *patterns) group(head, tail string) *group {
	t := p.byHead[head]
	if t == nil {
		t = &tails{byTail: map[string]*group{}}
		p.byHead[head] = t
		p.heads = withLength(p.heads, len(head))
	}
	g := t.byTail[tail]
	if g == nil {
		g = &group{plain: none, inner: none}
		t.byTail[tail] = g
		t.lengths = withLength(t.lengths, len(tail))
	}
	return g
}

// withLength adds a length to ascending ones, unless it is among them.
func withLength(lengths []int, n int) []int {
	at, found := slices.BinarySearch(lengths, n)
	if found {
		return lengths
	}
	return slices.Insert(lengths, at, n)
}

// add adds the pattern at a place, which is after the places of those that were added before. part is the part by which
// it is indexed, or -1 if it has none.
func (g *group) add(place int, part int32) {
	if part < 0 {
		g.plain = min(g.plain, place)
		return
	}
	g.inner = min(g.inner, place)
	if g.byPart == nil {
		g.byPart = map[int32][]int{}
	}
	if g.byPart[part] == nil {
		g.keys = append(g.keys, part)
	}
	g.byPart[part] = append(g.byPart[part], place)
}

// find returns the descriptor of the first pattern that matches a text; nil if there is none.
func (p *patterns) find(text []byte) *level { return p.findIn(text, maxSteps) }

// findIn finds in a number of steps: see maxSteps.
func (p *patterns) findIn(text []byte, steps int) *level {
	if len(p.list) == 0 {
		return nil
	}
	s := search{of: p, steps: steps, best: none}
	for _, head := range p.heads {
		if head > len(text) {
			break
		}
		if t := p.byHead[string(text[:head])]; t != nil {
			s.look(t, text, head)
		}
	}
	if s.found != nil {
		p.parts.release(s.found)
	}
	if s.best == none {
		return nil
	}
	return p.list[s.best].level
}

// search is the state of a find. The text is not part of it: found goes back to a pool, so that the compiler lets
// everything that is in one struct with it escape to the heap.
type search struct {
	of    *patterns
	found *found // where the parts are; nil before that is needed
	steps int    // that are left; negative if there were too few
	best  int    // the place of the first pattern, in order, that matches
}

// look looks for a better pattern among the patterns with the same beginning, which ends at the index head of the text.
func (s *search) look(t *tails, text []byte, head int) {
	for _, tail := range t.lengths {
		end := len(text) - tail
		if end < head {
			return
		}
		g := t.byTail[string(text[end:])]
		if g == nil {
			continue
		}
		s.best = min(s.best, g.plain)
		if g.inner >= s.best {
			continue
		}
		if s.found == nil {
			s.found = s.of.parts.in(text, &s.steps)
		}
		s.compare(g, head, end)
		if s.steps < 0 {
			s.best = min(s.best, g.inner)
		}
	}
}

// compare looks for a better pattern among those of a group that have parts: the text must have these between two
// indexes.
func (s *search) compare(g *group, head, end int) {
	keys := s.found.parts
	if len(g.keys) < len(keys) {
		keys = g.keys
	}
	for _, part := range keys {
		if s.steps--; s.found.first[part] == 0 {
			continue
		}
		for _, place := range g.byPart[part] {
			if s.steps < 0 {
				return
			}
			if place >= s.best {
				break
			}
			if s.has(s.of.list[place].parts, head, end) {
				s.best = place
			}
		}
	}
}

// has reports whether the text has parts between two indexes, in order.
func (s *search) has(parts []int32, from, end int) bool {
	for _, part := range parts {
		i := s.found.first[part]
		for ; i != 0; i = s.found.places[i].next {
			if s.steps--; int(s.found.places[i].at) >= from {
				break
			}
		}
		if i == 0 {
			s.steps--
			return false
		}
		from = int(s.found.places[i].at) + len(s.of.parts.texts[part])
	}
	return from <= end
}
