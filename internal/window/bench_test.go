package window

import (
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/quota"
)

// The clock advances, so that branch prediction cannot learn the outcome, and the limit is reached
// now and then.

func BenchmarkFixed(b *testing.B) {
	l, err := NewLimit(15, 60)
	require.NoError(b, err)
	now, s := epoch, Fixed{}
	b.ReportAllocs()
	for b.Loop() {
		now += l.period / 20
		_, s, _ = l.StepFixed(now, s, 1, quota.Take)
	}
}

func BenchmarkSliding(b *testing.B) {
	l, err := NewLimit(15, 60)
	require.NoError(b, err)
	now, s := epoch, Sliding{}
	b.ReportAllocs()
	for b.Loop() {
		now += l.period / 20
		_, s, _ = l.StepSliding(now, s, 1, quota.Take)
	}
}

// ring is a deque like a store's: edits take constant time.
type ring struct {
	entries []Entry // the length is a power of two
	first   int
	count   int
}

func (r *ring) Len() int       { return r.count }
func (r *ring) At(i int) Entry { return r.entries[(r.first+i)&(len(r.entries)-1)] }

func (r *ring) edit(e Edit) {
	r.first += e.Drop
	r.count -= e.Drop + e.Cut
	if e.Push {
		r.entries[(r.first+r.count)&(len(r.entries)-1)] = e.Entry
		r.count++
	}
}

func benchmarkLog(b *testing.B, size, quantity int64, stands bool) {
	l, err := NewLogLimit(size, 60, int(size))
	require.NoError(b, err)
	now, s := epoch, Log{}
	entries := &ring{entries: make([]Entry, 1<<17)}
	gap := l.period/(size+size/4) - 1
	step := func(quantity int64) {
		now += gap
		_, next, edit, _ := l.StepLog(now, s, entries, quantity, quota.Take)
		if (edit != Edit{}) {
			s = next
			entries.edit(edit)
		}
	}
	for range 2 * size {
		step(1)
	}
	if stands { // otherwise the log would become empty while every call is refused
		gap = 0
	}
	b.ReportAllocs()
	for b.Loop() {
		step(quantity)
	}
}

func BenchmarkLog15(b *testing.B)            { benchmarkLog(b, 15, 1, false) }
func BenchmarkLog100000(b *testing.B)        { benchmarkLog(b, 100_000, 1, false) }
func BenchmarkLog100000Refused(b *testing.B) { benchmarkLog(b, 100_000, 50_000, true) }

func TestAllocatesNothing(t *testing.T) {
	l, err := NewLogLimit(15, 60, 15)
	require.NoError(t, err)
	now, atOnce, weighed, s := epoch, Fixed{}, Sliding{}, Log{}
	entries := &ring{entries: make([]Entry, 64)}
	allocs := testing.AllocsPerRun(100, func() {
		for mode := quota.Take; mode <= quota.Force; mode++ {
			for quantity := int64(-2); quantity <= 17; quantity++ {
				now += 1e9
				_, atOnce, _ = l.StepFixed(now, atOnce, quantity, mode)
				_, weighed, _ = l.StepSliding(now, weighed, quantity, mode)
				if _, next, edit, _ := l.StepLog(now, s, entries, quantity, mode); edit != (Edit{}) {
					s = next
					entries.edit(edit)
				}
			}
		}
	})
	require.Zero(t, allocs)
}
