package window

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/quota"
)

// errorCounts compares a sliding window counter with two exact logs on random traffic: one that
// counts what the counter admitted, and one that decides the same calls by itself.
type errorCounts struct {
	admitted, tooMany int64 // admitted by the counter, and how many of these the log would have refused
	most              int64 // the largest number admitted in one period
	exactly           int64 // admitted by the log that decides by itself
}

func (s errorCounts) beyond() float64 { return 100 * float64(s.tooMany) / float64(s.admitted) }
func (s errorCounts) offBy() float64  { return 100 * (float64(s.admitted)/float64(s.exactly) - 1) }
func (s errorCounts) within() bool    { return s.beyond() < 20 && math.Abs(s.offBy()) < 10 }
func (s errorCounts) String() string {
	return fmt.Sprintf("%5.1f %% of its admissions beyond the limit, %d at most in a period; admits %+.1f %% beside the exact log",
		s.beyond(), s.most, s.offBy())
}

// measureError makes calls of quantity 1 at independent random instants, load times as many as the
// limit allows.
func measureError(l Limit, load float64, step stepFunc[Sliding]) (s errorCounts) {
	random := rand.New(rand.NewPCG(7, 1))
	exact := LogLimit{Limit: l, maxEntries: 1 << 17}
	counted := &storedLog{ring: ring{entries: make([]Entry, 1<<14)}}
	decided := &storedLog{ring: ring{entries: make([]Entry, 1<<14)}}
	now, between := epoch, float64(l.period)/float64(l.size)/load // ns
	var state Sliding
	for range int(12_000 * load) { // at least 12 periods, since the first one, on an unused key, is not typical
		now += int64(random.ExpFloat64() * between)
		if !decided.take(exact, now, quota.Take).Limited {
			s.exactly++
		}
		d, next, _ := step(l, now, state, 1, quota.Take)
		if state = next; d.Limited {
			continue
		}
		s.admitted++
		if counted.take(exact, now, quota.Force).Limited {
			s.tooMany++
		}
		newest, _ := counted.log.newest(counted)
		r := exact.readLog(now, counted.log, counted, newest)
		s.most = max(s.most, r.used)
	}
	return s
}

// storedLog is a log as a store keeps it.
type storedLog struct {
	ring
	log Log
}

func (k *storedLog) take(l LogLimit, now int64, mode quota.Mode) quota.Decision {
	d, next, edit, _ := l.StepLog(now, k.log, k, 1, mode)
	if edit != (Edit{}) {
		k.log = next
		k.edit(edit)
	}
	return d
}

// TestErrorOnRandomTraffic prints the figures that docs/limiters.md quotes; run go test -v to see
// them.
func TestErrorOnRandomTraffic(t *testing.T) {
	for _, size := range []int64{10, 100, 1000} {
		for _, load := range []float64{0.8, 1, 1.2, 3} {
			l, err := NewLimit(size, 60)
			require.NoError(t, err)
			s := measureError(l, load, Limit.StepSliding)
			t.Logf("limit %4d, load %.1f: %v", size, load, s)
			require.Less(t, s.most, 2*size-1)
			require.True(t, size < 100 || s.within())
		}
	}
	l, err := NewLimit(100, 60)
	require.NoError(t, err)
	for _, name := range []string{"the window before is forgotten", "the window before counts whole"} {
		s := measureError(l, 1.2, slidingFaults[name])
		t.Logf("%s: %v", name, s)
		require.False(t, s.within(), name)
	}
}
