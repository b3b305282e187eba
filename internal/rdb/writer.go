package rdb

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
)

// bufferBytes is the size of the buffers of Reader and Writer.
const bufferBytes = 64 << 10

// Writer writes a file of version 10. After an error, all later calls return the same error.
//
// Strings are not compressed, because the states of limiters do not become smaller: instants and
// counts hardly repeat. With redis-server 7.0.15, which compresses strings of more than 20 bytes, a
// file of sliding windows, or of logs, has exactly the same size with compression and without, and
// takes 1.6 and 2.5 times as long to write. Only leases of holders with long, similar names become
// smaller, by a third.
type Writer struct {
	to      io.Writer
	buf     []byte // bytes that have not been written, and that sum does not include
	sum     uint64
	written int64
	err     error
}

// NewWriter returns a writer of a new file. It writes to w in large pieces, the last of them at
// Close.
func NewWriter(w io.Writer) *Writer {
	return &Writer{to: w, buf: fmt.Appendf(make([]byte, 0, bufferBytes), "%s%04d", magic, Version)}
}

// Field writes a field about the file, such as "redis-ver". Fields precede keys. Redis ignores
// unknown fields.
func (w *Writer) Field(name, value string) error {
	w.putByte(opField)
	w.putString([]byte(name))
	w.putString([]byte(value))
	return w.err
}

// Database begins the keys of a database. keys is the approximate number of its keys, and expiring
// the number of keys that expire. Redis allocates its tables accordingly. Database is called once for
// each database. Redis refuses a file with more databases than it is configured for; the default is
// 16.
func (w *Writer) Database(number int, keys, expiring uint64) error {
	w.putByte(opDatabase)
	w.putLength(uint64(number))
	w.putByte(opSizes)
	w.putLength(keys)
	w.putLength(expiring)
	return w.err
}

// Bytes writes a key that holds a string. expires is in Unix milliseconds, or Never.
func (w *Writer) Bytes(key, value []byte, expires int64) error {
	w.putKey(key, expires)
	w.putString(value)
	return w.err
}

// Integer writes a key that holds an integer. It is shorter than what Bytes writes for its
// digits.
func (w *Writer) Integer(key []byte, n int64, expires int64) error {
	w.putKey(key, expires)
	w.reserve(maxIntegerBytes)
	w.buf = appendInteger(w.buf, n)
	return w.err
}

// Close ends the file with its checksum, and writes the remaining bytes. It does not close the
// io.Writer.
func (w *Writer) Close() error {
	w.putByte(opEnd)
	w.flush()
	w.buf = binary.LittleEndian.AppendUint64(w.buf, w.sum)
	w.flush()
	if w.err == nil {
		w.err = errClosed
		return nil
	}
	return w.err
}

var errClosed = errors.New("rdb: the file has been closed")

// Written returns the number of bytes that have been written. After Close it is the size of the
// file.
func (w *Writer) Written() int64 { return w.written }

func (w *Writer) putKey(key []byte, expires int64) {
	if expires != Never {
		w.putByte(opMilliseconds)
		w.reserve(8)
		w.buf = binary.LittleEndian.AppendUint64(w.buf, uint64(expires))
	}
	w.putByte(typeString)
	w.putString(key)
}

func (w *Writer) putByte(b byte) {
	w.reserve(1)
	w.buf = append(w.buf, b)
}

func (w *Writer) putLength(n uint64) {
	w.reserve(maxLengthBytes)
	w.buf = appendLength(w.buf, n)
}

// putString writes a string. One that does not fit into the buffer is not copied.
func (w *Writer) putString(s []byte) {
	w.putLength(uint64(len(s)))
	if len(s) > cap(w.buf)-len(w.buf) {
		w.flush()
	}
	if len(s) > cap(w.buf) {
		w.write(s)
		return
	}
	w.buf = append(w.buf, s...)
}

// reserve makes room for n bytes in the buffer.
func (w *Writer) reserve(n int) {
	if n > cap(w.buf)-len(w.buf) {
		w.flush()
	}
}

func (w *Writer) flush() {
	w.write(w.buf)
	w.buf = w.buf[:0]
}

func (w *Writer) write(p []byte) {
	if w.err != nil || len(p) == 0 {
		return
	}
	w.sum = checksum(w.sum, p)
	n, err := w.to.Write(p)
	w.written += int64(n)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	w.err = err
}

const (
	maxLengthBytes  = 9
	maxIntegerBytes = 21 // a length, and the digits of math.MinInt64
)

func appendLength(dst []byte, n uint64) []byte {
	switch {
	case n < 1<<6:
		return append(dst, byte(n))
	case n < 1<<14:
		return append(dst, length14|byte(n>>8), byte(n))
	case n <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(dst, length32), uint32(n))
	default:
		return binary.BigEndian.AppendUint64(append(dst, length64), n)
	}
}

// appendInteger appends an integer as a string: in the encoding for integers if it has 32 bits or
// fewer, else as its digits.
func appendInteger(dst []byte, n int64) []byte {
	switch {
	case n == int64(int8(n)):
		return append(dst, encoded8, byte(n))
	case n == int64(int16(n)):
		return binary.LittleEndian.AppendUint16(append(dst, encoded16), uint16(n))
	case n == int64(int32(n)):
		return binary.LittleEndian.AppendUint32(append(dst, encoded32), uint32(n))
	}
	at := len(dst)
	dst = strconv.AppendInt(append(dst, 0), n, 10)
	dst[at] = byte(len(dst) - at - 1) // at most 20, so a length of one byte
	return dst
}
