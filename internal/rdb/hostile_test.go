package rdb

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// If any byte of a file is changed to any other, Verify and a reader return an error.
func TestEveryChangedByteIsFound(t *testing.T) {
	everyByte(t, example(t), func(file []byte) { requireDamaged(t, file) })
}

// requireDamaged calls functions of require only for failures, because it is called many times.
func requireDamaged(t *testing.T, file []byte) {
	if verify(bytes.NewReader(file), small) == nil {
		require.Fail(t, "Verify finds nothing", "%q", file)
	}
	for r := readerOf(file, small); ; {
		if _, err := r.Next(); err == io.EOF || err == ErrNoChecksum {
			require.Fail(t, "a reader finds nothing", "%q", file)
		} else if err != nil {
			return
		}
	}
}

func everyByte(t *testing.T, original []byte, check func(changed []byte)) {
	file := bytes.Clone(original)
	for i := range file {
		for change := 1; change < 256; change++ {
			file[i] ^= byte(change)
			check(file)
			file[i] ^= byte(change)
		}
	}
	require.Equal(t, original, file)
}

func TestEveryChangedByteOfRedisIsFound(t *testing.T) {
	file := fixture(t, "redis-8.6.rdb")
	for i := range file {
		file[i] ^= 1 << (i % 8)
		requireDamaged(t, file)
		file[i] ^= 1 << (i % 8)
	}
}

// The error for a file that is truncated at any byte has the offset of its end.
func TestEveryCutIsFound(t *testing.T) {
	for _, file := range [][]byte{example(t), fixture(t, "redis-8.6.rdb")} {
		for cut := range file {
			for _, size := range []int{small, bufferBytes} {
				_, err := readAll(readerOf(file[:cut], size))
				var at *Error
				require.ErrorAs(t, err, &at)
				require.Equal(t, &Error{int64(cut), io.ErrUnexpectedEOF}, at)
			}
			require.Error(t, Verify(bytes.NewReader(file[:cut])))
		}
	}
}

// Bytes after the end of a file are an error: they can be the commands of an append-only file.
func TestMoreThanTheFile(t *testing.T) {
	file := example(t)
	more := append(bytes.Clone(file), "*1\r\n$4\r\nPING\r\n"...)
	_, err := readAll(readerOf(more, small))
	var at *Error
	require.ErrorAs(t, err, &at)
	require.Equal(t, int64(len(file)), at.Offset)
	require.ErrorIs(t, err, ErrMalformed)
	require.Error(t, Verify(bytes.NewReader(more)))
}

func TestWithoutChecksum(t *testing.T) {
	file := finished("REDIS0011", "\x00"+stored("a")+stored("b"))
	copy(file[len(file)-8:], make([]byte, 8))
	old := []byte("REDIS0001" + "\x00" + stored("a") + stored("b") + "\xff")
	for _, file := range [][]byte{file, old} {
		lines, err := readAll(readerOf(file, small))
		require.Equal(t, ErrNoChecksum, err)
		require.Len(t, lines, 1)
		require.Equal(t, ErrNoChecksum, Verify(bytes.NewReader(file)))
	}
}

func TestHeaders(t *testing.T) {
	for header, want := range map[string]error{
		"REDIS0000": ErrVersion, "REDIS0014": ErrVersion, "REDIS0080": ErrVersion, "REDIS9999": ErrVersion,
		"VALKEY079": ErrVersion, "VALKEY081": ErrVersion, "VALKEY011": ErrVersion,
		"REDIS 010": ErrMagic, "redis0010": ErrMagic, "REDIS001a": ErrMagic, "*1\r\n$4\r\nP": ErrMagic,
		"REDIS0005": nil, "REDIS0013": nil, "VALKEY080": nil,
	} {
		_, err := readAll(readerOf(finished(header), small))
		verified := Verify(bytes.NewReader(finished(header)))
		if want == nil {
			require.True(t, err == io.EOF || err == ErrNoChecksum, "%s: %v", header, err)
			continue
		}
		require.ErrorIs(t, err, want, header)
		require.Equal(t, err, verified)
	}
}

func TestMalformed(t *testing.T) {
	for name, sections := range map[string]string{
		"length":               "\x00\x82a",
		"length, encoded":      "\xfe\xc0\x01",
		"encoding":             "\x00\xc4a",
		"long string":          "\x00\x80\x20\x00\x00\x01",
		"endless string":       "\x00\x81\xff\xff\xff\xff\xff\xff\xff\xff",
		"endless expansion":    "\x00\xc3\x05\x81\xff\xff\xff\xff\xff\xff\xff\xffaaaaa",
		"too much expansion":   "\x00\xc3\x05\x41\xb9aaaaa",
		"packed, too short":    "\x00\xc3\x02\x05\x00a" + stored("v"),
		"packed, too long":     "\x00\xc3\x03\x01\x01ab" + stored("v"),
		"packed, before it":    "\x00\xc3\x04\x05\x00a\x20\x05" + stored("v"),
		"packed, cut off":      "\x00\xc3\x03\x05\x00a\x20" + stored("v"),
		"packed, cut off long": "\x00\xc3\x03\x50\x00a\xe0" + stored("v"),
		"packed, no more":      "\x00\xc3\x02\x05\x04a" + stored("v"),
		"database":             "\xfe\x80\x80\x00\x00\x00",
		"part of a module":     "\x07" + stored("k") + "\x00\x06",
	} {
		_, err := readAll(readerOf(finished("REDIS0013", sections), bufferBytes))
		require.ErrorIs(t, err, ErrMalformed, name)
	}
}

// A skipped string may be longer than maxString. Its length does not overflow.
func TestSkipsToTheEndAtMost(t *testing.T) {
	for _, value := range []string{
		"\x0a" + stored("k") + "\x81\xff\xff\xff\xff\xff\xff\xff\xff" + "abc",
		"\x0a" + stored("k") + "\x81\x7f\xff\xff\xff\xff\xff\xff\xff" + "abc",
		"\x01" + stored("k") + "\x81\xff\xff\xff\xff\xff\xff\xff\xff" + "\x00\x00",
		"\x0a" + stored("k") + "\xc3\x81\xff\xff\xff\xff\xff\xff\xff\xff\x00" + "abc",
	} {
		file := "REDIS0010" + value
		_, err := readAll(readerOf([]byte(file), small))
		var at *Error
		require.ErrorAs(t, err, &at)
		require.Equal(t, &Error{int64(len(file)), io.ErrUnexpectedEOF}, at)
	}
}

// A large length allocates no memory before the bytes have been read.
func TestPromisesTakeNoMemory(t *testing.T) {
	const most = 1 << 20
	for _, value := range []string{
		"\x00" + stored("k") + "\x80\x20\x00\x00\x00" + "abc",
		"\x00\x80\x20\x00\x00\x00" + "abc",
		"\x00" + stored("k") + "\xc3\x80\x20\x00\x00\x00\x80\x20\x00\x00\x00" + "abc",
		"\x04" + stored("k") + "\x80\xff\xff\xff\xff" + "abc",
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := readAll(readerOf([]byte("REDIS0010"+value), small))
		runtime.ReadMemStats(&after)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(most))

		payload := withFooter([]byte(strings.Replace(value, stored("k"), "", 1)))
		runtime.ReadMemStats(&before)
		_, err = ReadDump(payload)
		runtime.ReadMemStats(&after)
		require.Error(t, err)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(most))
	}
}

func TestReadersOfAllKinds(t *testing.T) {
	file := fixture(t, "redis-8.6.rdb")
	want, _ := readAll(readerOf(file, bufferBytes))
	for _, from := range []io.Reader{
		iotest.OneByteReader(bytes.NewReader(file)), iotest.HalfReader(bytes.NewReader(file)),
		iotest.DataErrReader(bytes.NewReader(file)),
	} {
		lines, err := readAll(NewReader(from))
		require.Equal(t, io.EOF, err)
		require.Equal(t, want, lines)
	}
	for _, from := range []io.Reader{
		iotest.DataErrReader(iotest.OneByteReader(bytes.NewReader(file))), iotest.HalfReader(bytes.NewReader(file)),
	} {
		require.NoError(t, Verify(from))
	}
}

// An error of the input is returned with the offset, and again by each later call.
func TestInputFails(t *testing.T) {
	broken := errors.New("broken disk")
	r := NewReader(io.MultiReader(bytes.NewReader(example(t)[:40]), iotest.ErrReader(broken)))
	_, err := readAll(r)
	require.Equal(t, &Error{40, broken}, err)
	_, again := r.Next()
	require.Equal(t, err, again)
	require.Equal(t, &Error{0, broken}, Verify(iotest.ErrReader(broken)))
	_, err = NewReader(idle{}).Next()
	require.ErrorIs(t, err, io.ErrNoProgress)
}

// idle is an io.Reader that never returns any bytes.
type idle struct{}

func (idle) Read([]byte) (int, error) { return 0, nil }
