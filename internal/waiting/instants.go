package waiting

import "math"

// instants is a heap of lines or calls by instant, and by number at the same instant. Each knows its
// index, so that it can be removed.
type instants[E element] []E

type element interface {
	instant() int64
	order() int64
	setIndex(index int)
}

func (l *line[T]) instant() int64     { return l.at }
func (l *line[T]) order() int64       { return l.number }
func (l *line[T]) setIndex(index int) { l.index = index }

// instant returns the deadline, or an instant before all others if the time of the call is over.
func (c *Call[T]) instant() int64 {
	if c.over {
		return math.MinInt64
	}
	return c.deadline
}

func (c *Call[T]) order() int64       { return c.number }
func (c *Call[T]) setIndex(index int) { c.index = index }

// The methods below are for package heap.

func (h instants[E]) Len() int { return len(h) }

func (h instants[E]) Less(i, j int) bool {
	a, b := h[i].instant(), h[j].instant()
	return a < b || a == b && h[i].order() < h[j].order()
}

func (h instants[E]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].setIndex(i)
	h[j].setIndex(j)
}

func (h *instants[E]) Push(one any) {
	e := one.(E)
	e.setIndex(len(*h))
	*h = append(*h, e)
}

func (h *instants[E]) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	clear((*h)[last:])
	*h = (*h)[:last]
	e.setIndex(-1)
	return e
}
