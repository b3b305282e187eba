package lease

import (
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const many = 10_000

var names = func() (names [][]byte) {
	for i := range many {
		names = append(names, holderName(i))
	}
	return names
}()

// The worst case: the first of 10,000 leases becomes the last.
func BenchmarkRenew10000(b *testing.B) {
	key, now, i := filled(many), epoch, 0
	b.ReportAllocs()
	for b.Loop() {
		now++
		if !key.Renew(now, 20*1000*time.Second, names[i%many]) {
			b.Fatal("lost")
		}
		i++
	}
}

// One holder leaves and another comes.
func BenchmarkAcquireRelease10000(b *testing.B) {
	key, now, i := filled(many), epoch, 0
	b.ReportAllocs()
	for b.Loop() {
		now++
		key.Release(now, names[i%many])
		r, _ := NewRequest(many, 20_000, names[i%many], 1)
		if d, _, _ := key.Acquire(now, r, many); d.Limited {
			b.Fatal("limited")
		}
		i++
	}
}

func benchmarkRefused(b *testing.B, quantity int64) {
	key := filled(many)
	r, _ := NewRequest(many, 20_000, []byte("one more"), quantity)
	b.ReportAllocs()
	for b.Loop() {
		if d, _, _ := key.Acquire(epoch, r, many); !d.Limited {
			b.Fatal("granted")
		}
	}
}

func BenchmarkRefused10000(b *testing.B)    { benchmarkRefused(b, 1) }
func BenchmarkRefusedAll10000(b *testing.B) { benchmarkRefused(b, many) }

func BenchmarkAcquireRelease3(b *testing.B) {
	key, now := filled(3), epoch
	b.ReportAllocs()
	for b.Loop() {
		now++
		key.Release(now, names[1])
		r, _ := NewRequest(3, 20_000, names[1], 1)
		_, _, _ = key.Acquire(now, r, many)
	}
}

// Acquiring again, renewing and being limited do not allocate. A new holder allocates only its
// name.
func TestAllocates(t *testing.T) {
	for _, n := range []int{3, 1000} {
		key := filled(n)
		again, _ := NewRequest(math.MaxInt64, 20_000, names[1], 1)
		refused, _ := NewRequest(1, 20_000, []byte("one more"), 1)
		require.Zero(t, testing.AllocsPerRun(100, func() {
			_, _, _ = key.Acquire(epoch, again, n)
			_, _, _ = key.Acquire(epoch, refused, n)
			key.Renew(epoch, time.Hour, names[2])
		}))
	}
}

// Bytes agrees with the memory that the runtime reports.
func TestBytes(t *testing.T) {
	for _, n := range []int{3, 16, 17, many} {
		keys := max(5, many/n)
		kept := make([]*Leases, keys)
		before := heap()
		for i := range kept {
			kept[i] = filled(n)
		}
		took := float64(heap()-before) / float64(keys)
		t.Logf("%5d holders: %.0f bytes a holder, name included; Bytes says %d", n, took/float64(n), kept[0].Bytes()/n)
		require.InEpsilon(t, took, kept[0].Bytes(), 0.35)
		runtime.KeepAlive(kept)
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
