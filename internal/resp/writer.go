package resp

import (
	"encoding/binary"
	"math"
	"slices"
	"strconv"

	"github.com/tidwall/redcon"
)

// maxKept is the largest buffer, in bytes, that a Writer keeps after Reset. The replies of a
// pipeline fit, and the buffers of many idle connections do not use too much memory.
const maxKept = 64 << 10

// Writer encodes replies. A type that RESP2 lacks is encoded as Redis encodes it for RESP2 clients,
// so that commands need not know the version of their client. The zero value is empty and writes
// RESP2. Writing never fails.
type Writer struct {
	buf         []byte
	pieces      [][]byte // that precede buf; there are none unless usesPieces
	pieceLength int      // bytes in pieces
	resp3       bool
	usesPieces  bool
}

// Protocol returns the version of RESP: 2 or 3.
func (w *Writer) Protocol() int {
	if w.resp3 {
		return 3
	}
	return 2
}

// SetProtocol sets the version of RESP for what is written from now on: 3, or any other number for
// 2.
func (w *Writer) SetProtocol(version int) { w.resp3 = version == 3 }

// Bytes returns what has been written. It is valid until the next write, Rewind or Reset.
func (w *Writer) Bytes() []byte { return w.buf }

// Len returns the number of bytes written.
func (w *Writer) Len() int { return w.pieceLength + len(w.buf) }

// Capacity returns the size of the buffer in bytes.
func (w *Writer) Capacity() int { return cap(w.buf) }

// Reset empties the writer, and reports whether it released its buffer. It keeps a buffer of at
// most 64 KiB, and the version of RESP.
func (w *Writer) Reset() (released bool) {
	if cap(w.buf) > maxKept {
		release(w.buf)
		w.buf, released = nil, true
	}
	w.buf = w.buf[:0]
	return released
}

// Mark returns the current position for Rewind. Use it if a part of a reply may be written
// before the command is known to succeed.
func (w *Writer) Mark() int { return w.pieceLength + len(w.buf) }

// Rewind removes everything written since mark, which Mark must have returned. A mark is invalid
// after Reset, and after a Rewind to an earlier mark.
func (w *Writer) Rewind(mark int) {
	for mark < w.pieceLength {
		last := len(w.pieces) - 1
		release(w.buf)
		w.buf, w.pieces = w.pieces[last], w.pieces[:last]
		w.pieceLength -= len(w.buf)
	}
	w.buf = w.buf[:mark-w.pieceLength]
}

// minPiece is the size, in bytes, from which Break begins another piece.
const minPiece = 256 << 10

// UsePieces lets Break divide replies into pieces, which only Pieces returns. A reply of a hundred
// megabytes in one buffer would be copied each time the buffer grows. Such a copy cannot be
// interrupted, so it would delay all clients.
func (w *Writer) UsePieces() { w.usesPieces = true }

// Break may end the current piece of a writer that uses pieces. It is called between the elements
// of a reply that may be long.
func (w *Writer) Break() {
	if w.usesPieces && len(w.buf) >= minPiece {
		w.pieces = append(w.pieces, w.buf)
		w.pieceLength += len(w.buf)
		w.buf = allocate(minPiece + overhead)
	}
}

// Pieces returns everything that was written, and empties the writer. The memory belongs to the
// caller.
func (w *Writer) Pieces() [][]byte {
	pieces := append(w.pieces, w.buf)
	w.pieces, w.buf, w.pieceLength = nil, nil, 0
	return pieces
}

// Raw writes bytes that are encoded already.
func (w *Writer) Raw(b []byte) { w.buf = append(w.buf, b...) }

// Adopt is like Raw, but may use b as its buffer, so that a large reply is not copied. The caller
// must not use b any more.
func (w *Writer) Adopt(b []byte) {
	if len(w.buf) == 0 && len(b) > cap(w.buf) {
		w.buf = b
		return
	}
	w.Raw(b)
}

// Int writes an integer.
func (w *Writer) Int(n int64) {
	at, buf := len(w.buf), slices.Grow(w.buf, maxIntLength)
	if buf = buf[:cap(buf)]; uint64(n+1) < uint64(len(smallInts)) {
		binary.LittleEndian.PutUint64(buf[at:], smallInts[n+1])
		at += int(smallInts[n+1] >> 56)
	} else {
		at = putInt(buf, at, n)
	}
	w.buf = buf[:at]
}

// Ints writes an array of integers. Small ones, which most are here, are copied from a table, eight
// bytes at a time: the next integer overwrites the surplus bytes.
func (w *Writer) Ints(numbers ...int64) {
	w.Array(len(numbers))
	at := len(w.buf)
	buf := slices.Grow(w.buf, len(numbers)*maxIntLength)
	buf = buf[:cap(buf)]
	for _, n := range numbers {
		if i := uint64(n + 1); i < uint64(len(smallInts)) {
			binary.LittleEndian.PutUint64(buf[at:], smallInts[i])
			at += int(smallInts[i] >> 56)
		} else {
			at = putInt(buf, at, n)
		}
	}
	w.buf = buf[:at]
}

// putInt puts an integer into buf, where there is room for maxIntLength bytes, and returns its end. One of up to twelve
// digits is put together from groups of three in the table.
func putInt(buf []byte, at int, n int64) int {
	if uint64(n) >= 1e12 || n < 1000 {
		return len(redcon.AppendInt(buf[:at], n))
	}
	head, group := uint64(n)/1000, uint64(n)%1000
	if head < uint64(len(smallInts))-1 {
		binary.LittleEndian.PutUint64(buf[at:], smallInts[head+1])
		at += int(smallInts[head+1]>>56) - len("\r\n")
	} else {
		at = putInt(buf, at, int64(head)) - len("\r\n")
	}
	binary.LittleEndian.PutUint64(buf[at:], smallInts[1001+group]>>16) // without ":1"
	return at + len("000\r\n")
}

// maxIntLength is the length of the longest encoded integer, in bytes.
const maxIntLength = len(":-9223372036854775808\r\n")

// smallInts are the encodings of the integers from -1 to 1999. Each has at most 7 bytes; the eighth is
// the length.
var smallInts = encodeInts()

func encodeInts() (table [2001]uint64) {
	for i := range table {
		var encoded [8]byte
		encoded[7] = byte(len(redcon.AppendInt(encoded[:0], int64(i)-1)))
		table[i] = binary.LittleEndian.Uint64(encoded[:])
	}
	return table
}

// Bulk writes a binary-safe string.
func (w *Writer) Bulk(b []byte) {
	if len(b) > maxKept {
		w.grow(len(b) + maxIntLength)
	}
	w.buf = redcon.AppendBulk(w.buf, b)
}

// grow makes capacity for n more bytes, if possible in a buffer that is reused. It is for buffers
// that are larger than Reset keeps.
func (w *Writer) grow(n int) {
	if cap(w.buf)-len(w.buf) < n {
		before := w.buf
		w.buf = append(allocate(max(len(before)+n, 2*len(before))), before...)
		release(before)
	}
}

// BulkString writes a binary-safe string.
func (w *Writer) BulkString(s string) { w.buf = redcon.AppendBulkString(w.buf, s) }

// BulkStrings writes an array of strings.
func (w *Writer) BulkStrings(texts []string) {
	w.Array(len(texts))
	for _, text := range texts {
		w.BulkString(text)
		w.Break()
	}
}

// Field writes the name of a field of a map, and returns w, which writes its value.
func (w *Writer) Field(name string) *Writer {
	w.BulkString(name)
	return w
}

// Status writes a simple string such as OK. CR and LF in it become spaces.
func (w *Writer) Status(s string) { w.buf = redcon.AppendString(w.buf, s) }

// Error writes an error. text is a code, a space and a message, without the leading '-'. CR and LF
// in it become spaces.
func (w *Writer) Error(text string) { w.buf = redcon.AppendError(w.buf, text) }

// Array begins an array. Its n elements must be written next.
func (w *Writer) Array(n int) {
	if 0 <= n && n < 10 {
		w.buf = append(w.buf, '*', byte('0'+n), '\r', '\n')
		return
	}
	w.buf = redcon.AppendArray(w.buf, n)
}

// Map begins a map. Its n keys must be written next, each followed by its value. In RESP2, it is an
// array of 2n elements.
func (w *Writer) Map(n int) {
	if w.resp3 {
		w.header('%', n)
		return
	}
	w.Array(2 * n)
}

// Set begins a set. Its n elements must be written next. In RESP2, it is an array.
func (w *Writer) Set(n int) {
	if w.resp3 {
		w.header('~', n)
		return
	}
	w.Array(n)
}

// Push begins a message that is not the reply of a call. Its n elements must be written next. In
// RESP2, it is an array.
func (w *Writer) Push(n int) {
	if w.resp3 {
		w.header('>', n)
		return
	}
	w.Array(n)
}

// Null writes a null. In RESP2, it is a null bulk string.
func (w *Writer) Null() {
	if w.resp3 {
		w.buf = append(w.buf, "_\r\n"...)
		return
	}
	w.buf = redcon.AppendNull(w.buf)
}

// NullArray writes a null array. In RESP3, it is the same as Null.
func (w *Writer) NullArray() {
	if w.resp3 {
		w.Null()
		return
	}
	w.buf = append(w.buf, "*-1\r\n"...)
}

// Double writes a floating-point number in the form of appendDouble. In RESP2, it is a bulk string.
func (w *Writer) Double(f float64) {
	if w.resp3 {
		w.buf = append(appendDouble(append(w.buf, ','), f), '\r', '\n')
		return
	}
	var digits [32]byte // the longest number has 24 bytes: a sign, 17 digits, a point and e-308
	w.Bulk(appendDouble(digits[:0], f))
}

// DoubleText writes a floating-point number that is given as text. In RESP2, it is a bulk string.
func (w *Writer) DoubleText(text []byte) {
	if !w.resp3 {
		w.Bulk(text)
		return
	}
	w.buf = append(append(append(w.buf, ','), text...), '\r', '\n')
}

// Bool writes a boolean. In RESP2, it is the integer 1 or 0.
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

// Verbatim writes a verbatim string: text for humans, in a format that has a name of three letters,
// such as txt or mkd. As in Redis, a longer name is cut and a shorter one padded. In RESP2, it is a
// bulk string of the text.
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

// header writes the first line of a value of RESP3: its type and its length.
func (w *Writer) header(kind byte, n int) {
	w.buf = strconv.AppendInt(append(w.buf, kind), int64(n), 10)
	w.buf = append(w.buf, '\r', '\n')
}

// appendDouble appends f with the fewest digits that are parsed as f again. As C's %.17g, it uses
// an exponent only for numbers below 1e-4 and from 1e17 on. Redis 7.0 prints all 17 digits
// (3.1400000000000001), later versions the fewest; clients accept both. Infinities are inf and
// -inf, and NaN is nan.
func appendDouble(b []byte, f float64) []byte {
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
