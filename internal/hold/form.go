package hold

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
)

// formVersion begins the form of a book. firstVersion began forms that are still read.
const formVersion, firstVersion = 2, 1

// ErrForm means that bytes are not the form of a book.
var ErrForm = errors.New("the form of holds is invalid")

// The bounds of a form. They are larger than the bounds of a store, and keep a damaged form from taking memory.
const (
	maxOpen  = 1 << 16
	maxWord  = 1 << 16
	maxMarks = 1 << 16
)

// A record is an open hold as bytes: the length of the record in 2, the length of the ID in 1, the end in 8, the ID,
// then Number, Counter, Quantity and Unit as varints. Words and the reply follow, unless there is neither.
type record []byte

const (
	recordIDLength = 2
	recordEnds     = 3
	recordID       = 11
	longestRecord  = math.MaxUint16
	longestID      = math.MaxUint8
)

// first returns the record at the beginning of several.
func (r record) first() record { return r[:binary.LittleEndian.Uint16(r)] }

func (r record) ends() int64 { return int64(binary.LittleEndian.Uint64(r[recordEnds:])) }
func (r record) id() []byte  { return r[recordID : recordID+int(r[recordIDLength])] }

func (r record) open() Open {
	o, _ := r.numbers()
	o.ID = r.id()
	return o
}

// numbers returns the hold of a record without its ID. ok is false if the record is damaged.
func (r record) numbers() (o Open, ok bool) {
	if len(r) < recordID || len(r) < recordID+int(r[recordIDLength]) {
		return o, false
	}
	rest := reader{left: r[recordID+int(r[recordIDLength]):]}
	o.Ends = r.ends()
	o.Number, o.Counter = rest.unsigned(), rest.counter()
	o.Quantity, o.Unit = rest.signed(), rest.signed()
	if len(rest.left) > 0 {
		o.Words = rest.word()
	}
	if len(rest.left) > 0 {
		o.Reply = rest.left
	}
	return o, !rest.bad && o.Quantity >= 0 && o.Unit >= 0
}

func appendRecord(dst []byte, o *Open) []byte {
	begin := len(dst)
	dst = append(dst, 0, 0, byte(len(o.ID)))
	dst = append(binary.LittleEndian.AppendUint64(dst, uint64(o.Ends)), o.ID...)
	dst = appendCounter(binary.AppendUvarint(dst, o.Number), o.Counter)
	dst = binary.AppendVarint(binary.AppendVarint(dst, o.Quantity), o.Unit)
	if o.Words != 0 || len(o.Reply) > 0 {
		dst = append(binary.LittleEndian.AppendUint64(dst, o.Words), o.Reply...)
	}
	binary.LittleEndian.PutUint16(dst[begin:], uint16(len(dst)-begin))
	return dst
}

func appendCounter(dst []byte, c Counter) []byte {
	return binary.AppendVarint(binary.AppendVarint(dst, c.At), c.Span)
}

func appendPath(dst []byte, p *Path) []byte {
	dst = binary.AppendUvarint(binary.AppendVarint(dst, p.Last), p.Number)
	dst = binary.AppendUvarint(dst, uint64(len(p.Marks)))
	for i := range p.Marks {
		m := &p.Marks[i]
		dst = appendCounter(binary.AppendUvarint(dst, m.From), m.Counter)
		dst = binary.AppendUvarint(binary.AppendVarint(dst, m.Low), uint64(m.Holds))
	}
	return dst
}

// readPath returns the path of a book. It is valid until the path is read again.
func (b *Book) readPath(x *parts) Path {
	r := reader{left: x.path}
	return r.path(b.marks)
}

func (r *reader) path(buffer []Mark) (p Path) {
	if p.Marks = buffer; len(r.left) == 0 {
		return p
	}
	p.Last, p.Number = r.signed(), r.unsigned()
	marks := r.count(maxMarks)
	if marks >= cap(buffer) {
		p.Marks = make([]Mark, 0, marks+1) // with room for another one
	}
	for range marks {
		m := Mark{From: r.unsigned(), Counter: r.counter(), Low: r.signed(), Holds: int(min(r.unsigned(), maxOpen))}
		r.bad = r.bad || m.Low < 0 || m.Holds == 0
		p.Marks = append(p.Marks, m)
	}
	return p
}

// Append appends the form of a book.
func (b *Book) Append(dst []byte) []byte {
	if len(b.form) == 0 {
		empty := Book{}
		empty.set(&parts{}, &Path{}, nil)
		return append(dst, empty.form...)
	}
	return append(dst, b.form...)
}

// Read reads the form of a book, and keeps a copy of it.
func (b *Book) Read(form []byte) error {
	if len(form) > 0 && form[0] == firstVersion {
		return b.readFirst(form)
	}
	if len(form) < 2 || form[0] != formVersion {
		return ErrForm
	}
	r := reader{left: form[2:]}
	path := reader{left: r.take(r.count(math.MaxInt32))}
	p := path.path(nil)
	open := r.count(maxOpen)
	if r.bad || path.bad || len(path.left) > 0 || len(p.Marks) > open || p.Number > math.MaxInt64 {
		return ErrForm
	}
	last := uint64(0)
	for range open {
		if len(r.left) < recordID {
			return ErrForm
		}
		o, ok := record(r.take(int(binary.LittleEndian.Uint16(r.left)))).numbers()
		if !ok || o.Unit > 0 && o.Number <= last {
			return ErrForm
		}
		last = max(last, o.Number)
	}
	if len(r.left) > 0 || last > p.Number {
		return ErrForm
	}
	b.form = slices.Clone(form)
	return nil
}

// readFirst reads a form of the first version.
func (b *Book) readFirst(form []byte) error {
	r := reader{left: form[1:]}
	x, p := parts{kind: r.byte()}, Path{Last: r.signed()}
	for range r.count(maxMarks) {
		m := Mark{From: r.unsigned(), Counter: r.counter(), Low: r.signed()}
		r.bad = r.bad || m.Low < 0
		p.Marks = append(p.Marks, m)
	}
	last := uint64(0)
	for range r.count(maxOpen) {
		o := Open{Number: r.unsigned(), Counter: r.counter(), Quantity: r.signed(), Unit: r.signed(), Ends: r.signed()}
		o.Words, o.ID, o.Reply = r.word(), r.text(), r.text()
		r.bad = r.bad || o.Number <= last || o.Quantity < 0 || o.Unit < 0 || len(o.ID) > longestID
		if last = o.Number; r.bad || recordID+len(o.ID)+len(o.Reply)+64 > longestRecord {
			return ErrForm
		}
		if i := p.find(o.Number, o.Counter); i >= 0 && o.Unit > 0 {
			p.Marks[i].Holds++
		}
		x.open = appendRecord(x.open, &o)
		x.count++
	}
	p.Marks = slices.DeleteFunc(p.Marks, func(m Mark) bool { return m.Holds == 0 })
	if p.Number = last; r.bad || len(r.left) > 0 {
		return ErrForm
	}
	b.form = nil
	b.set(&x, &p, nil)
	return nil
}

// Field is the name of the fields of an RDB file in which the open holds of keys are. Redis ignores these fields.
const Field = "cellserver-holds"

// AppendField appends the value of a Field: the length of the key as a varint, the key, and the form of its book.
func AppendField(dst, key, form []byte) []byte {
	dst = append(binary.AppendUvarint(dst, uint64(len(key))), key...)
	return append(dst, form...)
}

// ReadField reads the value of a Field.
func ReadField(value []byte) (key, form []byte, err error) {
	r := reader{left: value}
	key = r.take(r.count(uint64(len(value))))
	if r.bad {
		return nil, nil, ErrForm
	}
	return key, r.left, nil
}

// Shift converts the instants of a book to a clock that is ahead by a number of nanoseconds. If unix is set, the
// counters of its kind have Unix times, which do not change. Shift returns false if an instant cannot be converted.
func (b *Book) Shift(by int64, unix bool) bool {
	fits := true
	move := func(at *int64) {
		if *at != 0 { // 0 is no instant
			sum := *at + by
			fits = fits && sum > 0 == (*at > -by)
			*at = sum
		}
	}
	x := b.parts()
	p := b.readPath(&x)
	move(&p.Last)
	for i := range p.Marks {
		if !unix {
			move(&p.Marks[i].Counter.At)
		}
	}
	var open []byte
	for o := range b.All() {
		if move(&o.Ends); !unix {
			move(&o.Counter.At)
		}
		open = appendRecord(open, &o)
	}
	x.open = open
	b.set(&x, &p, nil)
	return fits
}

// reader reads the parts of a form. bad is set if one of them is missing or invalid.
type reader struct {
	left []byte
	bad  bool
}

func (r *reader) take(n int) []byte {
	if r.bad || n > len(r.left) {
		r.bad, r.left = true, nil
		return nil
	}
	taken := r.left[:n]
	r.left = r.left[n:]
	return taken
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) word() uint64 {
	if b := r.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (r *reader) unsigned() uint64 {
	if len(r.left) > 0 && r.left[0] < 0x80 { // most are short
		n := r.left[0]
		r.left = r.left[1:]
		return uint64(n)
	}
	n, size := binary.Uvarint(r.left)
	if size <= 0 {
		r.bad, r.left = true, nil
		return n
	}
	r.left = r.left[size:]
	return n
}

func (r *reader) signed() int64 {
	n := r.unsigned()
	return int64(n>>1) ^ -int64(n&1)
}

// count reads the length of a list.
func (r *reader) count(most uint64) int {
	n := r.unsigned()
	if r.bad = r.bad || n > most || n > uint64(len(r.left)); r.bad {
		return 0
	}
	return int(n)
}

func (r *reader) text() []byte { return r.take(r.count(maxWord)) }

func (r *reader) counter() Counter { return Counter{At: r.signed(), Span: r.signed()} }
