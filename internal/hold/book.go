package hold

import "slices"

// Book holds the open holds of a key.
type Book struct {
	Path
	Kind byte   // of the limiter that the path is about; 0 if there is none
	Open []Open // in the order of the charges
}

// Open is an open hold.
type Open struct {
	ID       string
	Number   uint64 // of the charge: they are in ascending order
	Counter  Counter
	Quantity int64 // that was charged
	Unit     int64 // of the level, for one of the quantity; 0 if nothing was charged
	Ends     int64 // instant at which the hold lapses
	Words    uint64
	Reply    string // of the call that made the hold, if this is the first of its keys
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

// Add adds a hold. kind is that of the limiter that was charged, and level that of the counter, with the charge; tat
// is that of CL.THROTTLE, 0 for other kinds. If the unit is 0, nothing was charged.
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
	b.Open = append(b.Open, o)
}

// Begin must be called at the beginning of an event of a kind of limiter. If the key is of another kind than before,
// its counters are gone.
func (b *Book) Begin(kind byte, now int64) {
	if b.Kind != kind {
		b.Kind, b.Marks = kind, nil
	}
	if len(b.Marks) > 0 && b.Marks[0].Counter == (Counter{}) {
		b.Decay(now)
	}
}

// Close removes the hold with an index. What it charged stays as it is.
func (b *Book) Close(i int) {
	o := b.Open[i]
	b.Open = slices.Delete(b.Open, i, i+1)
	b.Forget(o.Number, o.Counter, func(from, to uint64) bool {
		return slices.ContainsFunc(b.Open, func(other Open) bool {
			return other.Number >= from && other.Number < to && other.Unit > 0
		})
	})
}
