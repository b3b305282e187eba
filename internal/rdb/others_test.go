package rdb

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A file of redis-server 8.6.3, of version 13, with keys of all its types: hashes of each encoding
// with fields that expire, streams with groups and producers, a module's value, and a library of
// functions. The type of the value "vs" is that of a module of Redis 8.
func TestFileOfRedis86(t *testing.T) {
	file := fixture(t, "redis-8.6.rdb")
	require.NoError(t, Verify(bytes.NewReader(file)))
	for _, size := range []int{small, bufferBytes} {
		r := readerOf(file, size)
		lines, err := readAll(r)
		require.Equal(t, io.EOF, err)
		require.Equal(t, "8.6.3", r.Field("redis-ver"))
		require.Equal(t, "64", r.Field("redis-bits"))
		require.Equal(t, 1, r.Libraries)
		require.Equal(t, strings.TrimSpace(string(fixture(t, "redis-8.6.txt"))), strings.Join(lines, "\n"))
	}
}

// A file of the same server in a cluster, in which each slot precedes its keys, and keys have their
// frequency of use.
func TestFileOfACluster(t *testing.T) {
	lines, err := readAll(readerOf(fixture(t, "redis-8.6-cluster.rdb"), small))
	require.Equal(t, io.EOF, err)
	require.Equal(t, []string{
		`0 "b" string 2 expires 1796321828505`, `0 "c" string "hello"`, `0 "d" hash`, `0 "a" string 1`,
	}, lines)
}

func fixture(t testing.TB, name string) []byte {
	content, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)
	return content
}

// stored returns the encoding of a string.
func stored(s string) string { return string(appendLength(nil, uint64(len(s)))) + s }

func lengths(n ...uint64) string {
	var p []byte
	for _, n := range n {
		p = appendLength(p, n)
	}
	return string(p)
}

// finished returns a file that consists of a header, sections, the end and a checksum.
func finished(header string, sections ...string) []byte {
	file := []byte(header + strings.Join(sections, "") + "\xff")
	return binary.LittleEndian.AppendUint64(file, checksum(0, file))
}

const (
	eightBytes   = "\xff\xff\xff\xff\xff\xff\xff\xff"
	sixteenBytes = eightBytes + eightBytes
)

// group returns a group of a stream, with at least one element in each part.
func group(version int) string {
	s := stored("group") + lengths(1, 2)
	if version >= 2 {
		s += lengths(3)
	}
	s += lengths(2) + sixteenBytes + eightBytes + lengths(1) + sixteenBytes + eightBytes + lengths(1<<20)
	s += lengths(2)
	for range 2 {
		s += stored("consumer") + eightBytes
		if version >= 3 {
			s += eightBytes
		}
		s += lengths(1) + sixteenBytes
	}
	return s
}

func streamValue(version int) string {
	s := lengths(1) + stored(sixteenBytes) + stored("listpack") + lengths(1, 1<<40, 7)
	if version >= 2 {
		s += lengths(1<<40, 7, 0, 0, 1)
	}
	s += lengths(2) + group(version) + group(version)
	if version >= 4 {
		s += lengths(100, 100, 1) + stored("producer") + lengths(1) + stored("id") + lengths(1<<40, 7) + lengths(1, 0)
	}
	return s
}

// Encodings that no current redis-server writes are made by hand. The reader must find the key
// after each value.
func TestSkipsEveryType(t *testing.T) {
	packed := "\xc3\x06\x0b\x01ab\xe0\x00\x01" // LZF, which is skipped
	for kind, v := range map[byte]struct {
		of    Type
		value string
	}{
		1: {List, lengths(3) + stored("a") + "\xc0\x01" + packed},
		2: {Set, lengths(2) + stored("a") + stored("b")},
		3: {SortedSet, lengths(4) + stored("a") + "\x031.5" + stored("b") + "\xfd" + stored("c") + "\xfe" + "\xc0\x04\xff"},
		4: {Hash, lengths(1) + stored("f") + stored("v")},
		5: {SortedSet, lengths(1) + stored("a") + eightBytes},
		7: {Module, lengths(1<<63, 1, 5, 2, 6, 3) + "abcd" + lengths(4) + eightBytes + lengths(5) +
			packed + "\x00"},
		9:  {Hash, stored("zipmap")},
		10: {List, packed},
		11: {Set, stored("intset")},
		12: {SortedSet, stored("ziplist")},
		13: {Hash, stored("ziplist")},
		14: {List, lengths(2) + stored("ziplist") + packed},
		15: {Stream, streamValue(1)},
		16: {Hash, stored("listpack")},
		17: {SortedSet, stored("listpack")},
		18: {List, lengths(2, 1) + stored("plain") + lengths(2) + packed},
		19: {Stream, streamValue(2)},
		20: {Set, stored("listpack")},
		21: {Stream, streamValue(3)},
		22: {Hash, lengths(1, 1<<40) + stored("f") + stored("v")},
		23: {Hash, stored("listpack")},
		24: {Hash, eightBytes + lengths(2, 0) + stored("f") + stored("v") + lengths(9) + stored("g") + stored("w")},
		25: {Hash, eightBytes + stored("listpack")},
		26: {Stream, streamValue(4)},
	} {
		key := string(kind) + stored("key") + v.value
		file := finished("REDIS0013", key, "\x00"+stored("next")+stored("value"))
		for _, size := range []int{small, bufferBytes} {
			lines, err := readAll(readerOf(file, size))
			require.Equal(t, io.EOF, err, "type %d", kind)
			require.Len(t, lines, 2)
			require.Contains(t, lines[0], `0 "key" `+v.of.String())
			require.Equal(t, `0 "next" string "value"`, lines[1])
		}
		for cut := range len(key) {
			_, err := readAll(readerOf([]byte("REDIS0013"+key[:cut]), small))
			require.ErrorIs(t, err, io.ErrUnexpectedEOF, "type %d, cut at %d", kind, cut)
		}
	}
}

func TestTypesThatAreNotKnown(t *testing.T) {
	for _, kind := range []byte{6, 8, 27, 28, 200, 0xf0, 0xf3, 0xf6} {
		_, err := readAll(readerOf(finished("REDIS0013", string([]byte{kind})+stored("key")+stored("value")), small))
		require.ErrorIs(t, err, ErrMalformed, "type %d", kind)
		require.EqualError(t, err, "at byte 9: malformed: 0x"+hex(kind)+" is neither a section nor a type that is known")
	}
}

func hex(b byte) string {
	const digits = "0123456789abcdef"
	return string([]byte{digits[b>>4], digits[b&15]})
}

// Type 22 differs between Valkey and Redis.
func TestValkey(t *testing.T) {
	value := lengths(1) + stored("f") + stored("v") + eightBytes
	file := finished("VALKEY080", "\x16"+stored("h")+value, "\x00"+stored("next")+"\xc0\x05")
	require.NoError(t, Verify(bytes.NewReader(file)))
	lines, err := readAll(readerOf(file, small))
	require.Equal(t, io.EOF, err)
	require.Equal(t, []string{`0 "h" hash`, `0 "next" string 5`}, lines)

	_, err = readAll(readerOf(finished("VALKEY080", "\x17"+stored("h")+stored("listpack")), small))
	require.ErrorIs(t, err, ErrMalformed)
}

// The reader skips all sections that can precede keys.
func TestSections(t *testing.T) {
	module := lengths(1<<63) + lengths(2, 1) + lengths(5) + stored("x") + "\x00"
	file := finished("REDIS0013",
		"\xfa"+stored("ctime")+"\xc2\x00\x00\x00\x70", "\xf7"+module, "\xf5"+stored("#!lua name=lib"),
		"\xfe\x03", "\xfb"+lengths(100, 1), "\xf4"+lengths(1, 2, 3),
		"\xfd\x10\x00\x00\x00", "\xf8"+lengths(1000), "\xf9\x05", "\x00\xc1\x39\x30"+stored("a"),
		"\x00"+stored("lasting")+stored("b"),
		"\xfc\xff\xff\xff\xff\xff\xff\xff\xff\x00"+stored("old")+stored("c"))
	r := readerOf(file, small)
	lines, err := readAll(r)
	require.Equal(t, io.EOF, err)
	require.Equal(t, []string{
		`3 "12345" string "a" expires 16000`, `3 "lasting" string "b"`, `3 "old" string "c" expires -1`,
	}, lines)
	require.Equal(t, []int{1, 1}, []int{r.Libraries, r.ModuleParts})
	require.Equal(t, "1879048192", r.Field("ctime"))
}

// The memory for fields is bounded: in files of Redis before 7.0, scripts are fields.
func TestFieldsAreBounded(t *testing.T) {
	var sections []string
	for range 1000 {
		sections = append(sections, "\xfa"+stored("lua"+strings.Repeat("x", len(sections)))+stored(strings.Repeat("x", 1000)))
	}
	r := readerOf(finished("REDIS0010", sections...), bufferBytes)
	_, err := readAll(r)
	require.Equal(t, io.EOF, err)
	require.Len(t, r.fields, maxFields)
	require.Len(t, r.Field("lua"), maxFieldBytes)
}

func TestModuleNames(t *testing.T) {
	file := finished("REDIS0010", "\x07"+stored("key")+"\x81\xbd\xe7\x2d\xa2\xbb\x1e\xb4\x00\x00")
	lines, err := readAll(readerOf(file, small))
	require.Equal(t, io.EOF, err)
	require.Equal(t, []string{`0 "key" module vectorset`}, lines)
}
