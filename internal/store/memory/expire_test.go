package memory

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/gcra"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// traffic is a minute of new keys that live for a second each, as if a client invents keys.
type traffic struct {
	rate       func(second int) int // new keys in each second of the minute
	keySize    int                  // bytes
	sweepEvery time.Duration
}

// aPage is the length of a key whose record has a page to itself. A sweep visits 1/50 of a shard's
// pages and one more, so only shards with hundreds of pages need a whole round. With such keys,
// even a small table has hundreds of pages.
const aPage = 1100

func steady(rate int) func(int) int { return func(int) int { return rate } }

// bursts is traffic in every twentieth second.
func bursts(size int) func(int) int {
	return func(second int) int {
		if second%20 == 0 {
			return size
		}
		return 0
	}
}

// report is the result of a minute.
type report struct {
	stale    float64 // the largest share of records that had expired over 10 s ago, at the end of any second
	overdue  int     // records that two rounds of the sweep missed
	least    int64   // bytes in use, smallest and largest from second 15 on
	most     int64
	emptied  store.Usage // usage after everything has expired and there was time to sweep it
	atOnce   int         // the largest number of records
	index    int64       // bytes of the index at the end
	finished error       // violated invariants at the end
}

// minute simulates a minute of traffic, and 20 s without traffic after it.
func (tr traffic) minute() (r report) {
	const minute, silence = 60, 20
	clock := store.NewStillClock(1_700_000_000e9)
	m := New(Options{Databases: 1, Clock: clock, SweepEvery: -1})
	v := m.View()
	brief, _ := gcra.NewLimit(0, 1, 1)
	key, made, sinceSweep := make([]byte, tr.keySize), uint64(0), time.Duration(0)
	for second := range minute + silence {
		for tick := range 10 {
			v.Begin()
			for n := 0; second < minute && n < tr.rate(second)/10; n++ {
				binary.BigEndian.PutUint64(key, made)
				made++
				v.Throttle(background, key, brief, 1, quota.Take)
			}
			clock.Advance(SweepInterval)
			if sinceSweep += SweepInterval; sinceSweep >= tr.sweepEvery {
				m.Sweep()
				sinceSweep = 0
			}
			if tick == 9 {
				r.look(m, second >= 15 && second < minute)
			}
		}
	}
	r.emptied = m.Usage()[0]
	r.index, _ = m.indexBytes(0)
	r.finished = m.check()
	return r
}

func (r *report) look(m *Store, flat bool) {
	records, stale := m.expiredFor(int64(10 * time.Second))
	if records > 0 {
		r.stale = max(r.stale, float64(stale)/float64(records))
	}
	// A round of the sweep takes longer on a table that grows meanwhile, up to twice the time when
	// it grows from nothing.
	_, overdue := m.expiredFor(int64(2 * sweepRound))
	r.overdue += overdue
	r.atOnce = max(r.atOnce, records)
	if bytes := m.Usage()[0].Bytes; flat {
		r.most = max(r.most, bytes)
		if r.least == 0 || bytes < r.least {
			r.least = bytes
		}
	}
}

// emptyShard is the memory that an empty shard may keep: the first block of its index, and a page.
const emptyShard = 2 * pageBytes

// verdict returns the violations of what the sweep must achieve: at any rate of traffic, less than
// a tenth of the records expired over 10 s ago, memory is constant under steady traffic, and it is
// freed when the keys are gone.
func (r report) verdict(steady bool) error {
	errs := []error{r.finished}
	if r.stale >= 0.1 {
		errs = append(errs, fmt.Errorf("%.0f %% of the records expired more than 10 s ago", 100*r.stale))
	}
	if r.overdue > 0 {
		errs = append(errs, fmt.Errorf("two rounds of the sweep passed by %d records", r.overdue))
	}
	if steady && float64(r.most) > 1.3*float64(r.least) {
		errs = append(errs, fmt.Errorf("memory is not flat: from %d to %d bytes", r.least, r.most))
	}
	if r.emptied.Keys > 0 || r.emptied.Bytes > shards*emptyShard || r.index > shards*emptyShard {
		errs = append(errs, fmt.Errorf("an empty table keeps %+v, %d bytes of index", r.emptied, r.index))
	}
	return errors.Join(errs...)
}

// perSecond reduces a rate under the race detector.
func perSecond(rate int) int {
	if raceEnabled {
		return rate / 20
	}
	return rate
}

func TestSweepKeepsUp(t *testing.T) {
	t.Parallel()
	for name, tr := range map[string]traffic{
		"a trickle":      {steady(perSecond(2000)), 17, SweepInterval},
		"a flood":        {steady(perSecond(50_000)), 17, SweepInterval},
		"of large keys":  {steady(perSecond(8000)), aPage, SweepInterval},
		"bursts":         {bursts(perSecond(500_000)), 17, SweepInterval},
		"bursts of them": {bursts(perSecond(50_000)), aPage, SweepInterval},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := tr.minute()
			t.Logf("at most %d records, %.1f %% stale; %d to %d bytes; %d at the end", r.atOnce, 100*r.stale, r.least, r.most,
				r.emptied.Bytes)
			require.NoError(t, r.verdict(tr.rate(1) > 0))
		})
	}
}

// A sweep at a tenth of the rate must not pass.
func TestLazySweepFallsBehind(t *testing.T) {
	t.Parallel()
	for name, rate := range map[string]func(int) int{"steady": steady(400), "bursts": bursts(8000)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := traffic{rate, aPage, 10 * SweepInterval}.minute()
			require.ErrorContains(t, r.verdict(false), "expired more than 10 s ago")
		})
	}
}

// The index grows with the number of records and shrinks with it, one bucket per call.
func TestIndexShrinksBack(t *testing.T) {
	clock := store.NewStillClock(1e18)
	m := New(Options{Databases: 1, Clock: clock, SweepEvery: -1})
	v, brief := m.View(), nanosecond
	keys := inOneShard(v, "key", 2500)
	for _, key := range keys {
		v.Throttle(background, []byte(key), brief, 1e9, quota.Force)
	}
	full, _ := m.indexBytes(0)
	clock.Advance(time.Second)
	swept := 0
	for range slicesPerRound {
		swept += m.Sweep()
	}
	require.Equal(t, len(keys), swept)
	empty, moving := m.indexBytes(0)
	require.Zero(t, moving)
	require.Greater(t, full, 5*empty)
	require.NoError(t, m.check())
}
