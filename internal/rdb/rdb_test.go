package rdb

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// small is the size of the smallest buffer that a reader can work with. With it, everything that
// can cross the end of a buffer does.
const small = 16

func readerOf(file []byte, bufferBytes int) *Reader {
	return newReader(bytes.NewReader(file), bufferBytes)
}

// kept is a copy of a Record, as one line.
func (rec Record) String() string {
	s := fmt.Sprintf("%d %q %v", rec.Database, rec.Key, rec.Type)
	switch {
	case rec.Module != "":
		s += " " + rec.Module
	case rec.IsInteger:
		s += " " + strconv.FormatInt(rec.Integer, 10)
	case rec.Type == String:
		s += fmt.Sprintf(" %q", rec.Bytes)
	}
	if rec.Expires != Never {
		s += " expires " + strconv.FormatInt(rec.Expires, 10)
	}
	return s
}

// readAll returns the records of a file, and the error that ended it.
func readAll(r *Reader) (lines []string, err error) {
	for {
		rec, err := r.Next()
		if err != nil {
			return lines, err
		}
		lines = append(lines, rec.String())
	}
}

// written returns the file that a function writes.
func written(t testing.TB, write func(w *Writer)) []byte {
	var file bytes.Buffer
	w := NewWriter(&file)
	write(w)
	require.NoError(t, w.Close())
	require.Equal(t, int64(file.Len()), w.Written())
	return file.Bytes()
}

// example calls each method of a Writer.
func example(t testing.TB) []byte {
	return written(t, func(w *Writer) {
		require.NoError(t, w.Field("redis-ver", "7.0.15"))
		require.NoError(t, w.Database(0, 3, 1))
		require.NoError(t, w.Bytes([]byte("key"), []byte("value"), Never))
		require.NoError(t, w.Bytes([]byte("limit"), []byte("1700000000123456789"), 1_700_000_000_124))
		require.NoError(t, w.Integer([]byte(""), -1, Never))
		require.NoError(t, w.Database(15, 1, 0))
		require.NoError(t, w.Integer([]byte("n"), 1_700_000_000_123_456_789, Never))
	})
}

// The encoding must never change: other programs must be able to load the files.
func TestGoldenFile(t *testing.T) {
	require.Equal(t, "REDIS0010"+
		"\xfa\x09redis-ver\x067.0.15"+
		"\xfe\x00\xfb\x03\x01"+
		"\x00\x03key\x05value"+
		"\xfc\x7c\x68\xe5\xcf\x8b\x01\x00\x00\x00\x05limit\x131700000000123456789"+
		"\x00\x00\xc0\xff"+
		"\xfe\x0f\xfb\x01\x00"+
		"\x00\x01n\x131700000000123456789"+
		"\xff\xa8\x00z\x1c\xa7\xc5\xec ", string(example(t)))
}

func TestReadsWhatItWrites(t *testing.T) {
	for _, size := range []int{small, bufferBytes} {
		r := readerOf(example(t), size)
		lines, err := readAll(r)
		require.Equal(t, io.EOF, err)
		require.Equal(t, []string{
			`0 "key" string "value"`,
			`0 "limit" string "1700000000123456789" expires 1700000000124`,
			`0 "" string -1`,
			`15 "n" string "1700000000123456789"`,
		}, lines)
		require.Equal(t, "7.0.15", r.Field("redis-ver"))
		require.Equal(t, int64(len(example(t))), r.Offset())
		require.NoError(t, Verify(bytes.NewReader(example(t))))
	}
}

func TestEmptyFile(t *testing.T) {
	file := written(t, func(*Writer) {})
	require.Len(t, file, 18)
	lines, err := readAll(readerOf(file, small))
	require.Equal(t, io.EOF, err)
	require.Empty(t, lines)
}

// A Writer uses the shortest form of each length, and a Reader reads all forms.
func TestLengths(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "\x00", 63: "\x3f", 64: "\x40\x40", 1<<14 - 1: "\x7f\xff", 1 << 14: "\x80\x00\x00\x40\x00",
		1<<32 - 1: "\x80\xff\xff\xff\xff", 1 << 32: "\x81\x00\x00\x00\x01\x00\x00\x00\x00",
		1<<64 - 1: "\x81\xff\xff\xff\xff\xff\xff\xff\xff",
	} {
		require.Equal(t, want, string(appendLength(nil, n)))
		in := input{buf: []byte(want), end: len(want)}
		got, err := in.readLength()
		require.NoError(t, err)
		require.Equal(t, n, got)
	}
	for _, long := range []string{"\x40\x05", "\x80\x00\x00\x00\x05", "\x81\x00\x00\x00\x00\x00\x00\x00\x05"} {
		in := input{buf: []byte(long), end: len(long)}
		got, err := in.readLength()
		require.NoError(t, err)
		require.Equal(t, uint64(5), got)
	}
}

func TestIntegers(t *testing.T) {
	for n, want := range map[int64]string{
		0: "\xc0\x00", 127: "\xc0\x7f", -128: "\xc0\x80", 128: "\xc1\x80\x00", -129: "\xc1\x7f\xff",
		32767: "\xc1\xff\x7f", -32768: "\xc1\x00\x80", 32768: "\xc2\x00\x80\x00\x00", -1 << 31: "\xc2\x00\x00\x00\x80",
		1<<31 - 1: "\xc2\xff\xff\xff\x7f", 1 << 31: "\x0a2147483648", -1 << 63: "\x14-9223372036854775808",
	} {
		require.Equal(t, want, string(appendInteger(nil, n)))
		d := decoder{input: input{buf: []byte(want), end: len(want)}}
		got, err := d.readString()
		require.NoError(t, err)
		if !got.isInteger {
			got.integer, err = strconv.ParseInt(string(got.bytes), 10, 64)
			require.NoError(t, err)
		}
		require.Equal(t, n, got.integer)
	}
}

// Strings that just fit in the buffer, and strings that just do not fit, are read as they were
// written.
func TestLongStrings(t *testing.T) {
	var values [][]byte
	for _, n := range []int{63, 64, bufferBytes - 20, bufferBytes, bufferBytes + 1, 3*bufferBytes + 7} {
		values = append(values, bytes.Repeat([]byte{byte(n)}, n))
	}
	file := written(t, func(w *Writer) {
		for _, v := range values {
			require.NoError(t, w.Bytes(v, v, 5))
		}
	})
	require.NoError(t, Verify(bytes.NewReader(file)))
	r := readerOf(file, bufferBytes)
	for _, v := range values {
		rec, err := r.Next()
		require.NoError(t, err)
		require.True(t, bytes.Equal(v, rec.Key))
		require.True(t, bytes.Equal(v, rec.Bytes))
		require.Equal(t, int64(5), rec.Expires)
	}
	_, err := r.Next()
	require.Equal(t, io.EOF, err)
}

// failing is an io.Writer that fails after some bytes.
type failing int

func (f *failing) Write(p []byte) (int, error) {
	n := min(len(p), int(*f))
	*f -= failing(n)
	if n < len(p) {
		return n, errFull
	}
	return n, nil
}

var errFull = errors.New("no space left")

func TestWriterReportsTheFirstError(t *testing.T) {
	room := failing(100_000)
	w := NewWriter(&room)
	var err error
	for i := 0; err == nil && i < 1000; i++ {
		err = w.Bytes([]byte("key"), make([]byte, 1000), Never)
	}
	require.Equal(t, errFull, err)
	require.Equal(t, errFull, w.Close())
	require.Equal(t, int64(100_000), w.Written())
	require.Error(t, w.Close())
}

func TestClosedWriter(t *testing.T) {
	w := NewWriter(io.Discard)
	require.NoError(t, w.Close())
	require.Error(t, w.Bytes(nil, nil, Never))
	require.Error(t, w.Close())
}

func TestTypeNames(t *testing.T) {
	require.Equal(t, "zset", SortedSet.String())
	require.Equal(t, "module", Module.String())
	require.Equal(t, "type 9", Type(9).String())
	require.True(t, slices.IsSorted([]Type{String, List, Set, SortedSet, Hash, Stream, Module}))
}
