package resp

import (
	"encoding/binary"
	"math"
	"slices"
	"strconv"

	"github.com/tidwall/redcon"
)

// keptReply is the most memory, in bytes, that an emptied Writer holds: a pipeline's replies fit,
// an idle crowd's do not add up.
const keptReply = 64 << 10

// Writer gathers replies as bytes. What RESP2 has no type for is written as what Redis writes for
// it there, so a command says what its reply is and not who asked. The zero value is empty and
// speaks RESP2. Writing never fails.
type Writer struct {
	buf    []byte
	full   [][]byte // what went before it, of a writer InPieces
	before int      // bytes of these
	resp3  bool
	split  bool // it is one
}

// Protocol is the version spoken: 2 or 3.
func (w *Writer) Protocol() int {
	if w.resp3 {
		return 3
	}
	return 2
}

// SetProtocol makes what is written from here on RESP3 if version is 3, else RESP2.
func (w *Writer) SetProtocol(version int) { w.resp3 = version == 3 }

// Bytes returns what has been written, borrowed until the next write, Rewind or Reset.
func (w *Writer) Bytes() []byte { return w.buf }

// Len is the number of bytes written.
func (w *Writer) Len() int { return w.before + len(w.buf) }

// Capacity is the bytes of memory that it has.
func (w *Writer) Capacity() int { return cap(w.buf) }

// Reset empties the writer, and says whether it gave memory back: it keeps at most 64 KiB for the
// next replies, and the protocol.
func (w *Writer) Reset() (gaveBack bool) {
	if cap(w.buf) > keptReply {
		release(w.buf)
		w.buf, gaveBack = nil, true
	}
	w.buf = w.buf[:0]
	return gaveBack
}

// Mark is a place to Rewind to: before a reply of which parts may be written before it is known to
// succeed.
func (w *Writer) Mark() int { return w.before + len(w.buf) }

// Rewind forgets everything written since mark, which must come from Mark and not lie behind a
// Rewind or Reset.
func (w *Writer) Rewind(mark int) {
	for mark < w.before {
		last := len(w.full) - 1
		release(w.buf)
		w.buf, w.full = w.full[last], w.full[:last]
		w.before -= len(w.buf)
	}
	w.buf = w.buf[:mark-w.before]
}

// pieceBytes is the size of the pieces that a long reply is made in.
const pieceBytes = 256 << 10

// UsePieces is for whoever takes what is written by Pieces alone. A reply of a hundred megabytes in
// one piece would be moved each time that it grew, and nothing stops such a move: everybody would
// wait for it.
func (w *Writer) UsePieces() { w.split = true }

// Break is called between the elements of a reply that may be long: what is written next may go to
// memory of its own.
func (w *Writer) Break() {
	if w.split && len(w.buf) >= pieceBytes {
		w.full = append(w.full, w.buf)
		w.before += len(w.buf)
		w.buf = allocate(pieceBytes + around)
	}
}

// Pieces is everything that was written, for the caller to keep. The writer is empty then.
func (w *Writer) Pieces() [][]byte {
	pieces := append(w.full, w.buf)
	w.full, w.buf, w.before = nil, nil, 0
	return pieces
}

// Raw writes bytes that are RESP already.
func (w *Writer) Raw(b []byte) { w.buf = append(w.buf, b...) }

// Adopt appends bytes already encoded, and may take their memory over: a large reply that was made
// elsewhere is not copied.
func (w *Writer) Adopt(b []byte) {
	if len(w.buf) == 0 && len(b) > cap(w.buf) {
		w.buf = b
		return
	}
	w.Raw(b)
}

// Int writes an integer.
func (w *Writer) Int(n int64) { w.buf = redcon.AppendInt(w.buf, n) }

// Ints writes an array of integers. Small ones, which most of ours are, come from a table, eight
// bytes at once, of which the last are too many and written over.
func (w *Writer) Ints(numbers ...int64) {
	w.Array(len(numbers))
	at := len(w.buf)
	buf := slices.Grow(w.buf, len(numbers)*longestInt)
	buf = buf[:cap(buf)]
	for _, n := range numbers {
		if i := uint64(n + 1); i < uint64(len(smallInts)) {
			binary.LittleEndian.PutUint64(buf[at:], smallInts[i])
			at += int(smallInts[i] >> 56)
		} else {
			at = len(redcon.AppendInt(buf[:at], n))
		}
	}
	w.buf = buf[:at]
}

// longestInt is how many bytes an encoded integer takes at most.
const longestInt = len(":-9223372036854775808\r\n")

// smallInts are the encodings of -1, 0, 1 and so on: at most 7 bytes, and in the eighth how many.
var smallInts = encodeInts()

func encodeInts() (table [1026]uint64) {
	for i := range table {
		var encoded [8]byte
		encoded[7] = byte(len(redcon.AppendInt(encoded[:0], int64(i)-1)))
		table[i] = binary.LittleEndian.Uint64(encoded[:])
	}
	return table
}

// Bulk writes a string of any bytes.
func (w *Writer) Bulk(b []byte) {
	if len(b) > keptReply {
		w.makeRoom(len(b) + longestInt)
	}
	w.buf = redcon.AppendBulk(w.buf, b)
}

// makeRoom makes room for n more bytes, in memory that was used before if there is some: more than
// an emptied writer keeps.
func (w *Writer) makeRoom(n int) {
	if cap(w.buf)-len(w.buf) < n {
		before := w.buf
		w.buf = append(allocate(max(len(before)+n, 2*len(before))), before...)
		release(before)
	}
}

// BulkString writes a string of any bytes.
func (w *Writer) BulkString(s string) { w.buf = redcon.AppendBulkString(w.buf, s) }

// Status writes a simple string such as OK. It is one line: CR and LF in it become spaces.
func (w *Writer) Status(s string) { w.buf = redcon.AppendString(w.buf, s) }

// Error writes a refusal: a code, a space and a sentence, without the leading '-'. It is one line:
// CR and LF become spaces.
func (w *Writer) Error(text string) { w.buf = redcon.AppendError(w.buf, text) }

// Array begins an array; its n elements are to be written next.
func (w *Writer) Array(n int) {
	if 0 <= n && n < 10 {
		w.buf = append(w.buf, '*', byte('0'+n), '\r', '\n')
		return
	}
	w.buf = redcon.AppendArray(w.buf, n)
}

// Map begins a map; its n keys are to be written next, each followed by its value. RESP2: an array
// of 2n.
func (w *Writer) Map(n int) {
	if w.resp3 {
		w.header('%', n)
		return
	}
	w.Array(2 * n)
}

// Set begins a set; its n elements are to be written next. RESP2: an array.
func (w *Writer) Set(n int) {
	if w.resp3 {
		w.header('~', n)
		return
	}
	w.Array(n)
}

// Push begins a message that answers no call; its n elements are to be written next. RESP2: an
// array.
func (w *Writer) Push(n int) {
	if w.resp3 {
		w.header('>', n)
		return
	}
	w.Array(n)
}

// Null writes that there is no value.
func (w *Writer) Null() {
	if w.resp3 {
		w.buf = append(w.buf, "_\r\n"...)
		return
	}
	w.buf = redcon.AppendNull(w.buf)
}

// NullArray writes that there is no array. Only RESP2 tells it from Null.
func (w *Writer) NullArray() {
	if w.resp3 {
		w.Null()
		return
	}
	w.buf = append(w.buf, "*-1\r\n"...)
}

// Double writes a number as AppendDouble does. RESP2: a bulk string.
func (w *Writer) Double(f float64) {
	if w.resp3 {
		w.buf = append(AppendDouble(append(w.buf, ','), f), '\r', '\n')
		return
	}
	var digits [32]byte // the longest is 24: a sign, 17 digits, a point and e-308
	w.Bulk(AppendDouble(digits[:0], f))
}

// DoubleText writes a number that is text already. RESP2: a bulk string.
func (w *Writer) DoubleText(text []byte) {
	if !w.resp3 {
		w.Bulk(text)
		return
	}
	w.buf = append(append(append(w.buf, ','), text...), '\r', '\n')
}

// Bool writes a truth. RESP2: the integer 1 or 0.
func (w *Writer) Bool(b bool) {
	switch {
	case w.resp3 && b:
		w.buf = append(w.buf, "#t\r\n"...)
	case w.resp3:
		w.buf = append(w.buf, "#f\r\n"...)
	case b:
		w.Int(1)
	default:
		w.Int(0)
	}
}

// Verbatim writes text to be shown to a human as it is, in a format of three letters such as txt or
// mkd; like Redis it cuts or pads a name of another length. RESP2: a bulk string of the text alone.
func (w *Writer) Verbatim(format, text string) {
	if !w.resp3 {
		w.BulkString(text)
		return
	}
	w.header('=', len("txt:")+len(text))
	w.buf = append(w.buf, (format + "   ")[:3]...)
	w.buf = append(w.buf, ':')
	w.buf = append(w.buf, text...)
	w.buf = append(w.buf, '\r', '\n')
}

// header writes the line that begins a value of RESP3: its type and its length.
func (w *Writer) header(kind byte, n int) {
	w.buf = strconv.AppendInt(append(w.buf, kind), int64(n), 10)
	w.buf = append(w.buf, '\r', '\n')
}

// AppendDouble appends f with the fewest digits that read back as f, in the shape of C's %.17g: an
// exponent only below 1e-4 and from 1e17 on. Redis 7.0 prints all 17 digits (3.1400000000000001),
// later versions the fewest; every reader takes both. Infinities are inf and -inf, and what is no
// number is nan.
func AppendDouble(b []byte, f float64) []byte {
	switch size := math.Abs(f); {
	case math.IsNaN(f):
		return append(b, "nan"...)
	case math.IsInf(f, 1):
		return append(b, "inf"...)
	case math.IsInf(f, -1):
		return append(b, "-inf"...)
	case size != 0 && size < 1e-4 || size >= 1e17:
		return strconv.AppendFloat(b, f, 'e', -1, 64)
	}
	return strconv.AppendFloat(b, f, 'f', -1, 64)
}
