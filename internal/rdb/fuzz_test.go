package rdb

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// No input makes a reader panic, or return more bytes than the input can be expanded to. The result
// does not depend on the size of the reader's buffer.
func FuzzReader(f *testing.F) {
	f.Add(example(f))
	f.Add(fixture(f, "redis-8.6.rdb"))
	f.Add(fixture(f, "redis-8.6-cluster.rdb"))
	for version := 1; version <= 4; version++ {
		f.Add(finished("REDIS0013", "\x0f"+stored("k")+streamValue(version)))
	}
	f.Add(finished("VALKEY080", "\x16"+stored("h")+lengths(1)+stored("f")+stored("v")+eightBytes))
	f.Fuzz(func(t *testing.T, file []byte) {
		want, wantErr := readBounded(t, readerOf(file, small), len(file))
		got, err := readBounded(t, readerOf(file, bufferBytes), len(file))
		require.Equal(t, want, got)
		require.Equal(t, wantErr, err)
		if verified := Verify(bytes.NewReader(file)); verified == nil {
			require.NotErrorIs(t, err, ErrChecksum)
		} else if err == io.EOF {
			require.NoError(t, verified)
		}
	})
}

func readBounded(t *testing.T, r *Reader, length int) (lines []string, err error) {
	size := 0
	for {
		rec, err := r.Next()
		if err != nil {
			var at *Error
			require.True(t, err == io.EOF || err == ErrNoChecksum || errors.As(err, &at), "%v", err)
			require.LessOrEqual(t, r.Offset(), int64(length))
			return lines, err
		}
		size += len(rec.Key) + len(rec.Bytes)
		require.LessOrEqual(t, size, maxExpansion*length)
		lines = append(lines, rec.String())
	}
}

func FuzzDump(f *testing.F) {
	for _, payload := range [][]byte{
		AppendDump(nil, []byte("value")), AppendIntegerDump(nil, 1<<40), AppendIntegerDump(nil, 7),
	} {
		f.Add(payload[:len(payload)-footerBytes])
	}
	f.Add([]byte("\x15" + streamValue(3)))
	f.Add([]byte("\x00\xc3\x06\x0b\x01ab\xe0\x00\x01"))
	f.Fuzz(func(t *testing.T, value []byte) {
		_, _ = ReadDump(value)
		payload := binary.LittleEndian.AppendUint16(bytes.Clone(value), Version)
		payload = binary.LittleEndian.AppendUint64(payload, checksum(0, payload))
		rec, err := ReadDump(payload)
		if err == nil {
			require.LessOrEqual(t, len(rec.Bytes), maxExpansion*len(value))
			require.LessOrEqual(t, len(rec.Bytes), DumpSize(value))
			_, err = ReadDumpLimit(payload, max(len(rec.Bytes), 1))
			require.NoError(t, err)
		}
	})
}

func FuzzUnpack(f *testing.F) {
	f.Add([]byte("\x01ab\xe0\x00\x01"), 11)
	f.Add([]byte("\x00a\xe0\xff\x00\x00b"), 266)
	f.Fuzz(func(t *testing.T, packed []byte, n int) {
		n = min(max(n, 0), maxExpansion*len(packed))
		want, ok := unpackSlowly(packed, n)
		got, err := unpack(nil, packed, n)
		require.Equal(t, ok, err == nil)
		if ok {
			require.True(t, bytes.Equal(want, got))
		}
	})
}

// unpackSlowly is a simple implementation of unpack, which copies byte by byte.
func unpackSlowly(packed []byte, n int) (out []byte, ok bool) {
	next := func() (b int) {
		if ok = len(packed) > 0; ok {
			b, packed = int(packed[0]), packed[1:]
		}
		return b
	}
	for ok = true; ok && len(packed) > 0; {
		control := next()
		if control < 32 {
			for range control + 1 {
				out = append(out, byte(next()))
				if !ok {
					return nil, false
				}
			}
			continue
		}
		length := control >> 5
		if length == 7 {
			length += next()
		}
		low := next()
		at := len(out) - (control&31<<8 | low) - 1
		if !ok || at < 0 {
			return nil, false
		}
		for i := range length + 2 {
			out = append(out, out[at+i])
		}
	}
	return out, ok && len(out) == n
}

// A Reader returns the keys that a Writer has written.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var want []string
		file := written(t, func(w *Writer) {
			for database := range rapid.IntRange(0, 3).Draw(rt, "databases") {
				require.NoError(t, w.Database(1000*database, rapid.Uint64().Draw(rt, "keys"), 0))
				for range rapid.IntRange(0, 5).Draw(rt, "keys") {
					rec := drawRecord(rt)
					rec.Database = 1000 * database
					if rec.IsInteger {
						require.NoError(t, w.Integer(rec.Key, rec.Integer, rec.Expires))
						rec = asRead(rec)
					} else {
						require.NoError(t, w.Bytes(rec.Key, rec.Bytes, rec.Expires))
					}
					want = append(want, rec.String())
				}
			}
		})
		require.NoError(t, Verify(bytes.NewReader(file)))
		lines, err := readAll(readerOf(file, rapid.SampledFrom([]int{small, small + 1, 100, bufferBytes}).Draw(rt, "buffer")))
		require.Equal(t, io.EOF, err)
		require.Equal(t, want, lines)
	})
}

func drawRecord(rt *rapid.T) Record {
	return Record{
		Key:       rapid.SliceOfN(rapid.Byte(), -1, 300).Draw(rt, "key"),
		Bytes:     rapid.SliceOfN(rapid.Byte(), -1, 300).Draw(rt, "value"),
		Integer:   rapid.Int64().Draw(rt, "integer"),
		IsInteger: rapid.Bool().Draw(rt, "is integer"),
		Expires:   rapid.SampledFrom([]int64{Never, 0, -1, 1_700_000_000_123, 1 << 60}).Draw(rt, "expires"),
	}
}

// asRead returns an integer as a Reader does: as digits, if it has more than 32 bits.
func asRead(rec Record) Record {
	if rec.Integer != int64(int32(rec.Integer)) {
		rec.IsInteger = false
		rec.Bytes = appendInteger(nil, rec.Integer)[1:]
	}
	return rec
}
