package hold

import (
	"bytes"
	"encoding/binary"
	"iter"
	"math"
)

// Book holds the open holds of a key, as bytes: there may be a million, and a hold takes little more than its ID and
// the reply for a repetition. A journal and a shared store keep the same bytes, so nothing is converted.
//
//	version  1 byte
//	kind     1 byte, see Kind
//	path     its length, then Path.Last, Path.Number and the marks
//	holds    their number, then each hold in the order of the charges: see record
//
// The zero Book has no holds.
type Book struct {
	form  []byte
	marks []Mark // memory for the path in a step
}

// Open is an open hold. Its texts are in the book, and valid until it changes.
type Open struct {
	ID       []byte // at most 255 bytes
	Number   uint64 // number of the charge; 0 if nothing was charged
	Counter  Counter
	Quantity int64  // the quantity that was charged
	Unit     int64  // level units for a quantity of 1; 0 if nothing was charged
	Ends     int64  // instant at which the hold lapses
	Words    uint64 // hash of the words of the call that made the hold, on its first key only
	Reply    []byte // reply to this call, on its first key only; nil for none
}

// parts are the parts of a book.
type parts struct {
	kind  byte
	path  []byte
	count int
	open  []byte
}

// parts returns the parts of a book, which are valid until it changes.
func (b *Book) parts() (x parts) {
	if len(b.form) == 0 {
		return x
	}
	r := reader{left: b.form[2:]}
	x.kind = b.form[1]
	x.path = r.take(r.count(math.MaxInt32))
	x.count = int(r.unsigned())
	x.open = r.left
	return x
}

// Len returns the number of open holds.
func (b *Book) Len() int { return b.parts().count }

// Kind returns the kind of the limiter that was charged; 0 if none was.
func (b *Book) Kind() byte { return b.parts().kind }

// HasMarks reports whether something may be given back.
func (b *Book) HasMarks() bool {
	x := b.parts()
	p := b.readPath(&x)
	return len(p.Marks) > 0
}

// Bytes returns the form of the book, which is valid until it changes.
func (b *Book) Bytes() []byte { return b.form }

// Of returns the book whose form is in a buffer. Bytes has returned this form. Changes of the book may be made in the
// buffer, as far as it has the capacity, and a step keeps the marks of the path in another one.
func Of(form []byte, marks []Mark) Book { return Book{form, marks[:0]} }

// All returns the open holds in the order of the charges. The book must not change meanwhile.
func (b *Book) All() iter.Seq[Open] {
	x := b.parts()
	return func(yield func(Open) bool) {
		for left := x.open; len(left) > 0; {
			r := record(left).first()
			if !yield(r.open()) {
				return
			}
			left = left[len(r):]
		}
	}
}

// find returns where the record of a hold begins; -1 if there is none. A key may have a thousand.
func (x *parts) find(id []byte) int {
	for at := 0; at < len(x.open); {
		r := x.open[at:]
		if int(r[recordIDLength]) == len(id) && string(r[recordID:recordID+len(id)]) == string(id) {
			return at
		}
		at += int(binary.LittleEndian.Uint16(r))
	}
	return -1
}

// Find returns a hold by its ID.
func (b *Book) Find(id []byte) (o Open, found bool) {
	x := b.parts()
	if at := x.find(id); at >= 0 {
		return record(x.open[at:]).first().open(), true
	}
	return o, false
}

// First returns the hold that ends first. There must be one.
func (b *Book) First() Open {
	x := b.parts()
	first := record(x.open)
	for left := x.open; len(left) > 0; {
		r := record(left).first()
		if r.ends() < first.ends() {
			first = r
		}
		left = left[len(r):]
	}
	return first.first().open()
}

// Ends returns the first and the last instant at which a hold lapses.
func (b *Book) Ends() (first, last int64) {
	x := b.parts()
	first = math.MaxInt64
	for left := x.open; len(left) > 0; {
		r := record(left).first()
		first, last = min(first, r.ends()), max(last, r.ends())
		left = left[len(r):]
	}
	return first, last
}

// Held returns what all holds have charged.
func (b *Book) Held() (quantity int64) {
	x := b.parts()
	for left := x.open; len(left) > 0; {
		r := record(left).first()
		o, _ := r.numbers()
		if quantity += o.Quantity; quantity < 0 {
			return math.MaxInt64
		}
		left = left[len(r):]
	}
	return quantity
}

// Event is an event of a key: a correction or a refund. It changes the path.
type Event struct {
	Path
	parts parts
}

// Begin begins an event. kind is the kind of the key's limiter; if the key was of another kind before, its counters are
// gone. The book must not be changed before End.
func (b *Book) Begin(kind byte, now int64) Event {
	x := b.parts()
	return Event{b.begin(&x, kind, now), x}
}

// Close removes a hold in the event that corrects it.
func (e *Event) Close(id []byte) {
	if at := e.parts.find(id); at >= 0 {
		e.parts.close(&e.Path, at)
	}
}

// End writes what an event has changed.
func (b *Book) End(e *Event) { b.set(&e.parts, &e.Path, nil) }

// Edit makes an event.
func (b *Book) Edit(kind byte, now int64, event func(p *Path)) {
	e := b.Begin(kind, now)
	event(&e.Path)
	b.End(&e)
}

// Verify forgets counters that have lost charges: a program that does not know the book has deleted the key, and the
// key may have been made again since. A hold gives nothing back to them. level returns the present level of a counter,
// 0 if it is gone.
func (b *Book) Verify(now int64, level func(Counter) int64) {
	x := b.parts()
	p := b.begin(&x, x.kind, now)
	before := len(p.Marks)
	if p.lose(level); len(p.Marks) < before {
		b.set(&x, &p, nil)
	}
}

func (b *Book) begin(x *parts, kind byte, now int64) Path {
	p := b.readPath(x)
	if x.kind != kind {
		x.kind, p.Marks = kind, p.Marks[:0]
	}
	if len(p.Marks) > 0 && p.Marks[0].Counter == (Counter{}) {
		p.Decay(now)
	}
	return p
}

// Add adds a hold. kind is the kind of the limiter that was charged, and level the level of its counter after the
// charge. tat is the TAT of a CL.THROTTLE, 0 for other kinds. A hold with a Unit of 0 has charged nothing.
func (b *Book) Add(o Open, kind byte, now, level, tat int64) {
	x := b.parts()
	var p Path
	if o.Number = 0; o.Unit > 0 {
		p = b.begin(&x, kind, now)
		o.Number, p.Last = p.Charge(o.Counter, level), tat
	} else {
		p = b.readPath(&x)
	}
	x.count++
	var few [256]byte
	b.set(&x, &p, appendRecord(few[:0], &o))
}

// close removes the hold whose record begins at an index.
func (x *parts) close(p *Path, at int) {
	r := record(x.open[at:]).first()
	if o, _ := r.numbers(); o.Unit > 0 {
		p.Forget(o.Number, o.Counter)
	}
	x.open = append(x.open[:at], x.open[at+len(r):]...)
	x.count--
}

// Close removes a hold. What it charged stays charged. It returns false if there is no such hold.
func (b *Book) Close(id []byte) bool {
	x := b.parts()
	at := x.find(id)
	if at < 0 {
		return false
	}
	p := b.readPath(&x)
	x.close(&p, at)
	b.set(&x, &p, nil)
	return true
}

// Lapse removes the holds whose time is over, and returns them, with copies of their texts.
func (b *Book) Lapse(now int64) (lapsed []Open) {
	x := b.parts()
	p, kept := b.readPath(&x), x.open[:0]
	for left := x.open; len(left) > 0; {
		r := record(left).first()
		left = left[len(r):]
		if r.ends() > now {
			kept = append(kept, r...) // moves it down, or nowhere
			continue
		}
		o := r.open()
		if o.ID, o.Reply = bytes.Clone(o.ID), bytes.Clone(o.Reply); o.Unit > 0 {
			p.Forget(o.Number, o.Counter)
		}
		lapsed = append(lapsed, o)
	}
	x.open, x.count = kept, x.count-len(lapsed)
	b.set(&x, &p, nil)
	return lapsed
}

// set writes the form. The holds may be a part of the present form. A record is added to them.
func (b *Book) set(x *parts, p *Path, added []byte) {
	var few [320]byte
	path := appendPath(few[:0], p)
	var some [336]byte
	head := binary.AppendUvarint(append(some[:0], formVersion, x.kind), uint64(len(path)))
	head = binary.AppendUvarint(append(head, path...), uint64(x.count))
	form, from := b.form, len(head)
	size := from + len(x.open) + len(added)
	if size > cap(form) || cap(form) > 4*size+256 {
		form = make([]byte, size, size+size/8)
	}
	form = form[:size]
	copy(form[from:], x.open) // before the head, which may overwrite them
	copy(form, head)
	copy(form[from+len(x.open):], added)
	b.form = form
}
