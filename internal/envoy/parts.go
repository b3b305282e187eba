package envoy

import (
	"bytes"
	"slices"
	"strings"
	"sync"
)

// parts are the texts between two * of all patterns of a level, in a tree by their bytes. A node has children only
// while several parts begin alike; the rest of a part is then compared at once. The children of a node follow each
// other, and the root is node 0.
type parts struct {
	texts  []string
	byText map[string]int32
	had    []int32 // by how many patterns each part is had

	below  []int32 // of each node: its first child. Its last child is before the first child of the next node.
	labels []byte  // of each node: the byte that leads to it
	ends   []int32 // of each node: the part that ends there, or that alone goes on; -1 if there is none
	tops   *[256]int32
	free   sync.Pool // of *found
}

// add adds a part that a pattern has, and returns its number.
func (p *parts) add(text string) int32 {
	if number, is := p.byText[text]; is {
		p.had[number]++
		return number
	}
	if p.byText == nil {
		p.byText = map[string]int32{}
	}
	number := int32(len(p.texts))
	p.texts, p.had, p.byText[text] = append(p.texts, text), append(p.had, 1), number
	return number
}

// rarest returns the part that the fewest patterns have; -1 if there is no part.
func (p *parts) rarest(of []int32) int32 {
	if len(of) == 0 {
		return -1
	}
	return slices.MinFunc(of, func(a, b int32) int { return int(p.had[a] - p.had[b]) })
}

// seal makes the tree. It is to be called once, after the last add.
func (p *parts) seal() {
	p.byText = nil
	sorted := make([]int32, len(p.texts))
	for i := range sorted {
		sorted[i] = int32(i)
	}
	slices.SortFunc(sorted, func(a, b int32) int { return strings.Compare(p.texts[a], p.texts[b]) })
	type span struct{ from, to, depth int32 } // parts that begin with the same bytes
	nodes := []span{{0, int32(len(sorted)), 0}}
	p.labels = append(p.labels, 0)
	for i := 0; i < len(nodes); i++ {
		s := nodes[i]
		p.below = append(p.below, int32(len(nodes)))
		p.ends = append(p.ends, -1)
		if s.from == s.to {
			continue // there are no parts
		}
		if s.from+1 == s.to && i > 0 || len(p.texts[sorted[s.from]]) == int(s.depth) {
			p.ends[i] = sorted[s.from]
			s.from++
		}
		for s.from < s.to {
			label, end := p.texts[sorted[s.from]][s.depth], s.from+1
			for end < s.to && p.texts[sorted[end]][s.depth] == label {
				end++
			}
			nodes, p.labels = append(nodes, span{s.from, end, s.depth + 1}), append(p.labels, label)
			s.from = end
		}
	}
	p.below = append(p.below, int32(len(nodes)))
	p.tops = new([256]int32)
	for node := p.below[0]; node < p.below[1]; node++ {
		p.tops[p.labels[node]] = node
	}
}

// found is where parts are in a text.
type found struct {
	parts  []int32 // each once
	first  []int32 // of each part of the level: where in places its first place is; 0 if it was not found
	places []place32
}

// place32 is a place of a part.
type place32 struct {
	at   int32 // the index in the text
	next int32 // where in places the next place of the same part is; 0 for none
}

// in finds the parts in a text, which is shorter than 2^31 bytes. It stops when no steps are left.
func (p *parts) in(text []byte, steps *int) *found {
	f, _ := p.free.Get().(*found)
	if f == nil {
		f = &found{first: make([]int32, len(p.texts)), places: make([]place32, 1)}
	}
	for i := len(text) - 1; i >= 0 && *steps >= 0; i-- { // backwards, so that the first place of a part is added last
		node := p.tops[text[i]]
		for end := i + 1; node != 0; end++ {
			*steps--
			if part := p.ends[node]; part >= 0 && bytes.HasPrefix(text[end:], []byte(p.texts[part][end-i:])) {
				*steps--
				f.add(part, i)
			}
			if end == len(text) {
				break
			}
			node = p.child(node, text[end])
		}
	}
	return f
}

// child returns the child of a node to which a byte leads; 0 if there is none.
func (p *parts) child(node int32, label byte) int32 {
	first := p.below[node]
	i := bytes.IndexByte(p.labels[first:p.below[node+1]], label)
	if i < 0 {
		return 0
	}
	return first + int32(i)
}

func (f *found) add(part int32, at int) {
	next := f.first[part]
	if next == 0 {
		f.parts = append(f.parts, part)
	}
	f.first[part] = int32(len(f.places))
	f.places = append(f.places, place32{int32(at), next})
}

// release makes what in has returned available to others.
func (p *parts) release(f *found) {
	for _, part := range f.parts {
		f.first[part] = 0
	}
	f.parts, f.places = f.parts[:0], f.places[:1]
	p.free.Put(f)
}
