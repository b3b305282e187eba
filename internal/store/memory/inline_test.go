package memory

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/lease"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/racetest"
	"cellserver/internal/store"
	"cellserver/internal/window"
)

// A log behaves like a slice, wherever it is stored; it outgrows its record, and returns to it.
func TestLogsMoveInAndOut(t *testing.T) {
	racetest.HasOneGoroutine(t)
	moves := map[bool]int{}
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 1))
		m := New(Options{Clock: store.NewStillClock(1e18), SweepEvery: -1})
		key := []byte(oneOf(random, []string{"key", "key", fmt.Sprintf("%900d", 1), fmt.Sprintf("%1500d", 1)}))
		_, err := m.View().Throttle(background, []byte("another"), sixteenAMinute, 1,
			quota.Take) // creates the database
		require.NoError(t, err)
		h := m.hash(key)
		s := &m.database(0).shards[h.shard]
		var naive []window.Entry
		most := oneOf(random, []int{3, 20, 200})
		inline := true
		for next := int64(1e18 + 1); next < 1e18+300; next++ {
			e := window.Edit{Push: len(naive) < most, Entry: window.Entry{At: next, Total: uint64(next)}}
			if len(naive) > 0 && random.IntN(most/2+1) == 0 {
				e.Drop = random.IntN(len(naive))
				e.Cut = random.IntN(min(len(naive)-e.Drop, 4))
			}
			at, err := s.lookup(h, key, 1e18, limit.SlidingLog)
			require.NoError(t, err)
			require.NoError(t, s.editLog(&at, e))
			naive = slices.Clone(naive[e.Drop : len(naive)-e.Cut])
			if e.Push {
				naive = append(naive, e.Entry)
			}
			at.record.setField(0, int64(naive[0].Total-1))
			at.record.setExpires(next + 1e9)
			if next%10 == 0 {
				require.NoError(t, m.check())
			}
			log := s.logEntries(at.record)
			require.Equal(t, len(naive), log.Len())
			for i, want := range naive {
				require.Equal(t, want, log.At(i))
			}
			if inline != at.record.isInline() && len(key) == 3 {
				inline = !inline
				moves[inline]++
			}
		}
	}
	require.Positive(t, moves[false], "no log has outgrown its record")
	require.Positive(t, moves[true], "no log has returned to its record")
}

// oneOf returns a random element.
func oneOf[T any](random *rand.Rand, of []T) T { return of[random.IntN(len(of))] }

// Leases behave like a lease.Leases, wherever they are stored.
func TestLeasesMoveInAndOut(t *testing.T) {
	racetest.HasOneGoroutine(t)
	moves := map[bool]int{}
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 1))
		clock := store.NewStillClock(1e18)
		m := New(Options{Clock: clock, SweepEvery: -1})
		v := m.View()
		key := []byte(oneOf(random, []string{"key", "key", fmt.Sprintf("%900d", 1), fmt.Sprintf("%1500d", 1)}))
		most := oneOf(random, []int{2, 8, 60})
		width := oneOf(random, []int{1, 30})
		var table lease.Leases
		inline := true
		for range 400 {
			clock.Advance(time.Duration(random.IntN(1e8)))
			if random.IntN(50) == 0 {
				clock.Advance(time.Duration(max(most-3, 1)) * time.Second) // most leases end
			}
			v.Begin()
			holder := fmt.Sprintf("%*d", width, 1+random.IntN(most))
			if random.IntN(4) == 0 {
				permits, err := v.Release(background, key, []byte(holder))
				require.NoError(t, err)
				require.Equal(t, table.Release(v.Now(), []byte(holder)), permits)
			} else {
				r := plainRequest(1000, int64(1+random.IntN(most)), holder, 1)
				d, err := v.Acquire(background, key, r, 1000)
				want, _, _ := table.Acquire(v.Now(), r, 1000)
				require.NoError(t, err)
				require.Equal(t, want, d)
			}
			holders, err := v.Holders(background, key)
			require.NoError(t, err)
			require.Equal(t, slices.Collect(table.Holders(v.Now())), holders)
			if random.IntN(10) == 0 {
				require.NoError(t, m.check())
			}
			h, db := m.hash(key), m.database(0)
			if db == nil {
				continue
			}
			if r, _ := db.shards[h.shard].find(h, key); r != nil && inline != r.isInline() && len(key) == 3 {
				inline = !inline
				moves[inline]++
			}
		}
	}
	require.Positive(t, moves[false], "no leases have outgrown their record")
	require.Positive(t, moves[true], "no leases have returned to their record")
}

// Small state needs no allocation once the key exists.
func TestSmallStateAllocatesNothing(t *testing.T) {
	clock := store.NewStillClock(1e18)
	m := New(Options{Clock: clock, SweepEvery: -1})
	v, log, leases := m.View(), []byte("log"), []byte("leases")
	rule, n := plainRule(limit.SlidingLog, 100, 1), 0
	holders := make([][]byte, 10)
	for i := range holders {
		holders[i] = fmt.Appendf(nil, "holder %d", i)
	}
	step := func() {
		n++
		clock.Advance(time.Second / 20)
		v.Begin()
		v.Take(background, log, rule, 1, quota.Take)
		r, _ := lease.NewRequest(100, 1, holders[n%len(holders)], 1)
		v.Acquire(background, leases, r, 100)
		if n%3 == 0 {
			v.Release(background, leases, holders[n%7])
		}
	}
	for range 100 {
		step()
	}
	require.Zero(t, testing.AllocsPerRun(1000, step))
	held, err := v.Holders(background, leases)
	require.NoError(t, err)
	require.NotEmpty(t, held)
}
