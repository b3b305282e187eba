package persist

import (
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/store"
	"cellserver/internal/store/memory"
)

// benchKeys is the number of keys of a large store, in these benchmarks.
const benchKeys = 1_000_000

// touch makes steps on keys of a store.
func touch(b *testing.B, data *memory.Store, keys int) {
	v := data.View()
	key := make([]byte, 0, 32)
	for i := range keys {
		v.Begin()
		key = fmt.Appendf(key[:0], "user:%09d", i)
		value := store.Value{Integer: int64(i), IsInteger: true}
		require.NoError(b, v.Write(ctx, key, value, v.Now()+int64(time.Hour)))
	}
}

func openBench(b *testing.B, dir string) (*Folder, *memory.Store) {
	f, err := Open(ctx, dir, Options{})
	require.NoError(b, err)
	data := memory.New(memory.Options{Clock: f.Clock()})
	require.NoError(b, f.Load(ctx, data.Load()))
	return f, data
}

// One operation is a pass with 100,000 changed keys, synced.
func BenchmarkPass(b *testing.B) {
	f, data := openBench(b, b.TempDir())
	defer data.Close()
	require.NoError(b, f.Run(data, nil))
	defer f.Close()
	touch(b, data, benchKeys)
	require.NoError(b, f.Flush())
	for b.Loop() {
		b.StopTimer()
		touch(b, data, 100_000)
		b.StartTimer()
		require.NoError(b, f.Flush())
	}
	b.ReportMetric(float64(f.Status().Passes.LastBytes), "bytes/pass")
}

// One operation is a snapshot of a million keys.
func BenchmarkSnapshot(b *testing.B) {
	f, data := openBench(b, b.TempDir())
	defer data.Close()
	require.NoError(b, f.Run(data, nil))
	defer f.Close()
	touch(b, data, benchKeys)
	for b.Loop() {
		before := f.Status().Journal.LastCompaction
		require.NoError(b, f.Compact())
		for f.Status().Journal.LastCompaction == before {
			require.NoError(b, f.Flush())
		}
	}
}

// One operation is the load of a million keys, from a snapshot and from the journal.
func BenchmarkLoad(b *testing.B) {
	for _, by := range []string{"snapshot", "journal"} {
		b.Run(by, func(b *testing.B) {
			dir := b.TempDir()
			f, data := openBench(b, dir)
			require.NoError(b, f.Run(data, nil))
			touch(b, data, benchKeys)
			if by == "snapshot" {
				require.NoError(b, f.Compact())
				for f.Status().Journal.BaseSize == 0 {
					require.NoError(b, f.Flush())
				}
			}
			require.NoError(b, f.Close())
			data.Close()
			for b.Loop() {
				f, data := openBench(b, dir)
				require.NoError(b, f.Close())
				data.Close()
			}
		})
	}
}

// One operation is an RDB file of a million keys.
func BenchmarkWriteRDB(b *testing.B) {
	data := memory.New(memory.Options{})
	defer data.Close()
	touch(b, data, benchKeys)
	for b.Loop() {
		require.NoError(b, WriteRDB(ctx, io.Discard, data))
	}
}
