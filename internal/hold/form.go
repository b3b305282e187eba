package hold

import (
	"encoding/binary"
	"errors"
)

// formVersion begins the form of a book.
const formVersion = 1

// ErrForm means that bytes are not the form of a book.
var ErrForm = errors.New("the form of holds is invalid")

// longForm is the length in bytes above which the texts that are read from a form share one copy of the form.
// leastBytes is the least length of a mark or of a hold.
const longForm, leastBytes = 1024, 4

// The bounds of a form. They are larger than the bounds of a store, and keep a damaged form from taking memory.
const (
	maxOpen  = 1 << 16
	maxWord  = 1 << 16
	maxMarks = 1 << 16
)

// Append appends the form of a book: the version, the kind, the TAT, the marks and the open holds, each list after its
// length. Numbers are varints, as in encoding/binary.
func (b *Book) Append(dst []byte) []byte {
	dst = append(dst, formVersion, b.Kind)
	dst = binary.AppendVarint(dst, b.Last)
	dst = binary.AppendUvarint(dst, uint64(len(b.Marks)))
	for i := range b.Marks {
		m := &b.Marks[i]
		dst = appendCounter(binary.AppendUvarint(dst, m.From), m.Counter)
		dst = binary.AppendVarint(dst, m.Low)
	}
	dst = binary.AppendUvarint(dst, uint64(len(b.Open)))
	for i := range b.Open {
		o := &b.Open[i]
		dst = appendCounter(binary.AppendUvarint(dst, o.Number), o.Counter)
		for _, n := range [...]int64{o.Quantity, o.Unit, o.Ends} {
			dst = binary.AppendVarint(dst, n)
		}
		dst = binary.LittleEndian.AppendUint64(dst, o.Words)
		dst = append(binary.AppendUvarint(dst, uint64(len(o.ID))), o.ID...)
		dst = append(binary.AppendUvarint(dst, uint64(len(o.Reply))), o.Reply...)
	}
	return dst
}

func appendCounter(dst []byte, c Counter) []byte {
	return binary.AppendVarint(binary.AppendVarint(dst, c.At), c.Span)
}

// Read reads the form of a book.
func (b *Book) Read(form []byte) error {
	r := reader{left: form}
	if len(form) > longForm {
		r.whole = string(form)
	}
	if r.byte() != formVersion {
		return ErrForm
	}
	*b = Book{Kind: r.byte()}
	b.Last = r.signed()
	marks := r.count(maxMarks)
	b.Marks = make([]Mark, 0, min(marks, len(r.left)/leastBytes+1))
	for range marks {
		m := Mark{From: r.unsigned(), Counter: r.counter(), Low: r.signed()}
		r.bad = r.bad || m.Low < 0
		b.Marks = append(b.Marks, m)
	}
	last, open := uint64(0), r.count(maxOpen)
	b.Open = make([]Open, 0, min(open, len(r.left)/leastBytes+1))
	for range open {
		o := Open{Number: r.unsigned(), Counter: r.counter(), Quantity: r.signed(), Unit: r.signed(), Ends: r.signed()}
		o.Words, o.ID, o.Reply = r.word(), r.text(), r.text()
		r.bad = r.bad || o.Number <= last || o.Quantity < 0 || o.Unit < 0
		if last = o.Number; r.bad {
			break
		}
		b.Open = append(b.Open, o)
	}
	if r.bad || len(r.left) > 0 {
		return ErrForm
	}
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
	move(&b.Last)
	for i := range b.Marks {
		if !unix {
			move(&b.Marks[i].Counter.At)
		}
	}
	for i := range b.Open {
		if move(&b.Open[i].Ends); !unix {
			move(&b.Open[i].Counter.At)
		}
	}
	return fits
}

// reader reads the parts of a form. bad is set if one of them is missing or invalid.
type reader struct {
	left  []byte
	whole string // the form; "" if it is short
	bad   bool
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
	n, size := binary.Uvarint(r.left)
	if r.take(max(size, 0)); size <= 0 {
		r.bad = true
	}
	return n
}

func (r *reader) signed() int64 {
	n, size := binary.Varint(r.left)
	if r.take(max(size, 0)); size <= 0 {
		r.bad = true
	}
	return n
}

// count reads the length of a list.
func (r *reader) count(most uint64) int {
	n := r.unsigned()
	if r.bad = r.bad || n > most || n > uint64(len(r.left)); r.bad {
		return 0
	}
	return int(n)
}

// text reads a text. The texts of a long form share one copy of it, because each step on a remote key reads its book.
func (r *reader) text() string {
	n := r.count(maxWord)
	if from := len(r.whole) - len(r.left); r.whole != "" && !r.bad {
		r.take(n)
		return r.whole[from : from+n]
	}
	return string(r.take(n))
}

func (r *reader) counter() Counter { return Counter{At: r.signed(), Span: r.signed()} }
