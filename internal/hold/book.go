package hold

import "slices"

// Book holds the open holds of a key.
type Book struct {
	Path
	Kind byte   // kind of the limiter that was charged; 0 if none was
	Open []Open // in the order of the charges
}

// Open is an open hold.
type Open struct {
	ID       string
	Number   uint64 // number of the charge; numbers ascend
	Counter  Counter
	Quantity int64 // the quantity that was charged
	Unit     int64 // level units for a quantity of 1; 0 if nothing was charged
	Ends     int64 // instant at which the hold lapses
	Words    uint64
	Reply    string // reply to the call that made the hold, on its first key only
}

// Find returns the index of a hold; -1 if there is none.
func (b *Book) Find(id []byte) int {
	for i := range b.Open {
		if b.Open[i].ID == string(id) {
			return i
		}
	}
	return -1
}

// Add adds a hold. kind is the kind of the limiter that was charged, and level the level of its counter after the
// charge. tat is the TAT of a CL.THROTTLE, 0 for other kinds. A hold with a Unit of 0 has charged nothing.
func (b *Book) Add(o Open, kind byte, now, level, tat int64) {
	o.Number = 1
	if n := len(b.Open); n > 0 {
		o.Number = b.Open[n-1].Number + 1
	}
	if o.Unit > 0 {
		b.Begin(kind, now)
		if n := len(b.Marks); n > 0 {
			o.Number = max(o.Number, b.Marks[n-1].From+1)
		}
		b.Charge(o.Number, o.Counter, level)
		b.Last = tat
	}
	b.Open = append(room(b.Open), o)
}

// Begin must be called at the beginning of each event, with the kind of the limiter. If the key was of another kind
// before, its counters are gone.
func (b *Book) Begin(kind byte, now int64) {
	if b.Kind != kind {
		b.Kind, b.Marks = kind, nil
	}
	if len(b.Marks) > 0 && b.Marks[0].Counter == (Counter{}) {
		b.Decay(now)
	}
}

// Close removes the hold at an index. What it charged stays charged. A mark is removed with the last of its holds, so
// there are never more marks than holds.
func (b *Book) Close(i int) {
	o := b.Open[i]
	b.Open = fit(slices.Delete(b.Open, i, i+1))
	b.Forget(o.Number, o.Counter, func(from, to uint64) bool {
		return slices.ContainsFunc(b.Open, func(other Open) bool {
			return other.Counter == o.Counter && other.Number >= from && other.Number < to && other.Unit > 0
		})
	})
}

// room returns a list with capacity for one more element. The capacity grows by an eighth, not to twice as much,
// because there may be a million holds.
func room[T any](list []T) []T {
	if n := len(list); n == cap(list) {
		list = append(make([]T, 0, n+n/8+1), list...)
	}
	return list
}

// fit returns a list without most of its unused capacity, if it has much: a client might make a thousand holds on each
// of many keys, and settle all but one.
func fit[T any](list []T) []T {
	if n := len(list); cap(list) > 4*n+4 {
		list = append(make([]T, 0, n), list...)
	}
	return list
}
