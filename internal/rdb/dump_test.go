package rdb

import (
	"encoding/binary"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The payloads are those of redis-server 7.0.15, byte by byte.
func TestGoldenDumps(t *testing.T) {
	ten := "\x00\xc0\n\n\x00n\x9fWE\x0e\xaec\xbb" // from the manual of DUMP
	require.Equal(t, ten, string(AppendIntegerDump(nil, 10)))
	rec, err := ReadDump([]byte(ten))
	require.NoError(t, err)
	require.Equal(t, Record{Integer: 10, IsInteger: true, Expires: Never}, rec)
	require.Equal(t, "before"+ten, string(AppendIntegerDump([]byte("before"), 10)))
}

func TestDumpsOfStrings(t *testing.T) {
	for _, s := range []string{"", "a", string(make([]byte, 100_000)), "1700000000123456789"} {
		rec, err := ReadDump(AppendDump(nil, []byte(s)))
		require.NoError(t, err)
		require.Equal(t, String, rec.Type)
		require.Equal(t, s, string(rec.Bytes))
		require.False(t, rec.IsInteger)
	}
}

func withFooter(payload []byte) []byte {
	payload = binary.LittleEndian.AppendUint16(payload, Version)
	return binary.LittleEndian.AppendUint64(payload, checksum(0, payload))
}

// For a value of another type, ReadDump returns the type.
func TestDumpsOfOtherTypes(t *testing.T) {
	rec, err := ReadDump(withFooter([]byte("\x01" + lengths(2) + stored("a") + "\xc0\x01")))
	require.NoError(t, err)
	require.Equal(t, Record{Type: List, Expires: Never}, rec)
	rec, err = ReadDump(withFooter([]byte("\x07\x81\xbd\xe7\x2d\xa2\xbb\x1e\xb4\x00\x00")))
	require.NoError(t, err)
	require.Equal(t, Record{Type: Module, Module: "vectorset", Expires: Never}, rec)
}

// A string that is too long is refused before any memory is allocated for it.
func TestLongStringsInDumps(t *testing.T) {
	packed := "\xc3" + "\x06" + "\x81\x00\x00\x00\x00\x00\x00\x02\x10" // 6 bytes stand for 528
	for _, value := range []string{"\x00" + stored(strings.Repeat("v", 528)), "\x00" + packed + "\x01ab\xe0\xff\x01"} {
		payload := withFooter([]byte(value))
		require.Equal(t, 528, DumpSize(payload))
		_, err := ReadDumpLimit(payload, 527)
		require.ErrorIs(t, err, ErrTooLong)
		_, err = ReadDumpLimit(payload, 528)
		require.NotErrorIs(t, err, ErrTooLong)
	}
	require.Zero(t, DumpSize(nil))
	require.Zero(t, DumpSize([]byte("\x00")))
	require.Zero(t, DumpSize([]byte("\x00\xc3\x06")))
	require.Zero(t, DumpSize([]byte("\x01\x06abcdef")))
	require.Equal(t, 3, DumpSize([]byte("\x00\x3f."))) // the header says 63 bytes
	require.Equal(t, maxIntegerBytes, DumpSize(AppendIntegerDump(nil, 1000)))
}

func TestDumpsThatAreRefused(t *testing.T) {
	payload := AppendDump(nil, []byte("value"))
	everyByte(t, payload, func(changed []byte) {
		_, err := ReadDump(changed)
		require.Error(t, err)
	})
	for cut := range payload {
		_, err := ReadDump(payload[:cut])
		require.Error(t, err)
	}
	_, err := ReadDump(withFooter(nil))
	require.Equal(t, &Error{0, io.ErrUnexpectedEOF}, err)
	_, err = ReadDump(withFooter([]byte("\x00\x05abc")))
	require.Equal(t, &Error{5, io.ErrUnexpectedEOF}, err)
	_, err = ReadDump(withFooter([]byte("\x00\x03abcd")))
	require.ErrorIs(t, err, ErrMalformed)
	later := binary.LittleEndian.AppendUint16([]byte("\x00\x01a"), lastVersion+1)
	_, err = ReadDump(binary.LittleEndian.AppendUint64(later, checksum(0, later)))
	require.ErrorIs(t, err, ErrVersion)
	require.EqualError(t, err, "at byte 3: unknown version 14")
}
