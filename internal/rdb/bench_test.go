package rdb

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

const benchKeys = 1_000_000

// write writes a million throttle keys, each with a name of 17 bytes, a TAT and an expiry.
func write(w *Writer) error {
	key := []byte("limit:0000000000")
	for i := range benchKeys {
		for at, n := len(key)-1, i; n > 0; at, n = at-1, n/10 {
			key[at] = '0' + byte(n%10)
		}
		if err := w.Integer(key, 1_700_000_000_000_000_000+int64(i), 1_700_000_000_000+int64(i)); err != nil {
			return err
		}
	}
	return w.Close()
}

// One operation writes a million keys.
func BenchmarkWrite(b *testing.B) {
	for b.Loop() {
		w := NewWriter(io.Discard)
		require.NoError(b, write(w))
		b.SetBytes(w.Written())
	}
}

func BenchmarkRead(b *testing.B) {
	var file bytes.Buffer
	require.NoError(b, write(NewWriter(&file)))
	b.SetBytes(int64(file.Len()))
	for b.Loop() {
		r := NewReader(bytes.NewReader(file.Bytes()))
		keys := 0
		for {
			if _, err := r.Next(); err != nil {
				require.Equal(b, io.EOF, err)
				break
			}
			keys++
		}
		require.Equal(b, benchKeys, keys)
	}
}

func BenchmarkVerify(b *testing.B) {
	var file bytes.Buffer
	require.NoError(b, write(NewWriter(&file)))
	b.SetBytes(int64(file.Len()))
	for b.Loop() {
		require.NoError(b, Verify(bytes.NewReader(file.Bytes())))
	}
}

func BenchmarkDump(b *testing.B) {
	value := fmt.Appendf(nil, "%d", 1_700_000_000_000_000_000)
	var payload []byte
	b.ReportAllocs()
	for b.Loop() {
		payload = AppendDump(payload[:0], value)
		if _, err := ReadDump(payload); err != nil {
			b.Fatal(err)
		}
	}
}
