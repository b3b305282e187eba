package memory

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/lease"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// Each kind of damage that check must find is planted, because damage that check misses would go
// unnoticed in every other test.
func TestCheckFindsWhatDoesNotFit(t *testing.T) {
	for name, plant := range map[string]func(s *shard, log, other, leases record){
		"a log that no record holds":        func(s *shard, _, _, _ record) { s.logs.add() },
		"leases that no record holds":       func(s *shard, _, _, _ record) { s.leases.add() },
		"two records with one log":          func(_ *shard, log, other, _ record) { log.setStateWord(other.stateWord()) },
		"a log that is not there":           func(_ *shard, log, _, _ record) { log.setStateWord(99) },
		"bytes of logs":                     func(s *shard, _, _, _ record) { s.logs.bytes++ },
		"bytes of leases":                   func(s *shard, _, _, _ record) { s.leases.bytes-- },
		"a log that has gone":               func(s *shard, log, _, _ record) { s.logs.remove(log.stateWord()) },
		"a place that is not used":          func(s *shard, _, _, _ record) { s.logs.pieces[0].used |= 1 << 63 },
		"a place that is not known":         func(s *shard, _, _, _ record) { s.logs.lowest++ },
		"a piece too many":                  func(s *shard, _, _, _ record) { s.leases.pieceCount++ },
		"a record that outlives its leases": func(_ *shard, _, _, leases record) { leases.setExpires(leases.expires() + 1) },
		"a log without its entries":         func(s *shard, log, _, _ record) { *s.logs.at(log.stateWord()) = entryLog{} },
		"a log that ends too soon":          func(_ *shard, log, _, _ record) { log.setExpires(1e18) },
		"a record that expires as a quota":  func(_ *shard, log, _, _ record) { log.setExpires(-log.expires()) },
		"a base too high":                   func(_ *shard, log, _, _ record) { log.setField(0, 999) },
	} {
		t.Run(name, func(t *testing.T) {
			clock := store.NewStillClock(1e18)
			m := New(Options{Clock: clock, SweepEvery: -1})
			v := m.View()
			keys := words(inOneShard(v, "key", 4))
			for _, key := range keys[:3] {
				takeMany(t, v, clock, key)
			}
			acquireMany(t, v, keys[3])
			v.Delete(background, keys[2:3]) // leaves a free slot
			require.NoError(t, m.check())
			s := &m.database(0).shards[0]
			held := func(key []byte) record { r, _ := s.find(s.hash(key), key); return r }
			plant(s, held(keys[0]), held(keys[1]), held(keys[3]))
			require.Error(t, m.check())
		})
	}
}

// TestCheckFindsWhatDoesNotFitInARecord does the same for inline state.
func TestCheckFindsWhatDoesNotFitInARecord(t *testing.T) {
	for name, plant := range map[string]func(log, leases record){
		"more entries than there is room for": func(log, _ record) { log.setRing(3, 0, 4) },
		"a first entry that is not there":     func(log, _ record) { log.setRing(3, 3, 1) },
		"a ring that its slot has not":        func(log, _ record) { log.setRing(30, 0, 2) },
		"entries that stand elsewhere":        func(log, _ record) { log.setRing(3, 1, 2) },
		"a log that ends too soon":            func(log, _ record) { log.setExpires(1e18) },
		"a record that outlives its leases":   func(_, leases record) { leases.setExpires(leases.expires() + 1) },
		"leases that are not there":           func(_, leases record) { leases.setStateWord(inlineBit) },
		"leases that its slot has not":        func(_, leases record) { leases.setStateWord(inlineBit | 999) },
	} {
		t.Run(name, func(t *testing.T) {
			clock := store.NewStillClock(1e18)
			m := New(Options{Clock: clock, SweepEvery: -1})
			v := m.View()
			keys := words(inOneShard(v, "key", 2))
			for range 2 {
				v.Take(background, keys[0], plainRule(limit.SlidingLog, 9, 60), 2, quota.Take)
				clock.Advance(1)
				v.Begin()
			}
			v.Acquire(background, keys[1], plainRequest(9, 60, "holder", 1), 10)
			require.NoError(t, m.check())
			s := &m.database(0).shards[0]
			held := func(key []byte) record { r, _ := s.find(s.hash(key), key); return r }
			plant(held(keys[0]), held(keys[1]))
			require.Error(t, m.check())
		})
	}
}

// tooMany is more entries of a log, or leases with holders of 32 bytes, than fit in a record.
const tooMany = maxInline / entryBytes

// takeMany makes a log of so many entries. It advances the clock.
func takeMany(t *testing.T, v store.View, clock *store.StillClock, key []byte) {
	for range tooMany {
		clock.Advance(1)
		v.Begin()
		d, err := v.Take(background, key, plainRule(limit.SlidingLog, 2*tooMany, 60), 2, quota.Take)
		require.NoError(t, err)
		require.False(t, d.Limited)
	}
}

// acquireMany makes so many leases.
func acquireMany(t *testing.T, v store.View, key []byte) {
	for i := range tooMany {
		d, err := v.Acquire(background, key, plainRequest(tooMany, 60, fmt.Sprintf("holder %32d", i), 1), tooMany)
		require.NoError(t, err)
		require.False(t, d.Limited)
	}
}

func words(keys []string) (words [][]byte) {
	for _, key := range keys {
		words = append(words, []byte(key))
	}
	return words
}

// slabStore is a store whose keys have objects in slabs: logs, and with the prefix lease, leases.
type slabStore struct {
	*Store
	view  store.View
	clock *store.StillClock
	keys  [][]byte
}

func newSlabStore() *slabStore {
	clock := store.NewStillClock(1e18)
	m := New(Options{Clock: clock, SweepEvery: -1})
	v := m.View()
	return &slabStore{Store: m, view: v, clock: clock, keys: words(inOneShard(v, "key", 20))}
}

func leaseKey(key []byte) []byte { return append([]byte("lease:"), key...) }

func (s *slabStore) fill(t *testing.T) {
	for _, key := range s.keys {
		takeMany(t, s.view, s.clock, key)
		acquireMany(t, s.view, leaseKey(key))
	}
	logs, leases := s.objects()
	require.Equal(t, [2]int{20, 20}, [2]int{logs, leases})
}

// expire advances the clock to when every key has expired.
func (s *slabStore) expire() {
	s.clock.Advance(60e9)
	s.view.Begin()
}

func (s *slabStore) requireNoObjects(t *testing.T, after string) {
	logs, leases := s.objects()
	require.Zero(t, logs+leases, after)
	require.NoError(t, s.check(), after)
}

// However a key with an object in a slab is removed, the object is removed too.
func TestObjectsAreRemovedWithTheirKeys(t *testing.T) {
	s := newSlabStore()
	for name, remove := range map[string]func(key []byte, isLease bool){
		"delete":        func(key []byte, _ bool) { s.view.Delete(background, [][]byte{key}) },
		"delete as one": func(key []byte, _ bool) { s.view.Delete(background, [][]byte{key, key}) },
		"flush":         func([]byte, bool) { s.view.Flush(background) },
		"give back":     s.giveBack,
	} {
		s.fill(t)
		for _, key := range s.keys {
			remove(key, false)
			remove(leaseKey(key), true)
		}
		s.requireNoObjects(t, name)
	}
	s.fill(t)
	s.expire()
	for range 2 * slicesPerRound {
		s.Sweep()
	}
	s.requireNoObjects(t, "swept")
	s.fill(t)
	s.expire()
	for _, key := range s.keys { // replaced by another kind
		s.view.Take(background, key, plainRule(limit.Fixed, 9, 1e6), 1, quota.Take)
		s.view.Throttle(background, leaseKey(key), sixteenAMinute, 1, quota.Take)
	}
	s.requireNoObjects(t, "replaced")
	require.Zero(t, s.database(0).shards[0].logs.bytes+s.database(0).shards[0].leases.bytes)
}

// giveBack releases all leases, or refunds everything in a log.
func (s *slabStore) giveBack(key []byte, isLease bool) {
	if !isLease {
		s.view.Take(background, key, plainRule(limit.SlidingLog, 2*tooMany, 60), -2*tooMany, quota.Take)
		return
	}
	for i := range tooMany {
		s.view.Release(background, key, fmt.Appendf(nil, "holder %32d", i))
	}
}

// Calls that change nothing create no object.
func TestRefusedCallsCreateNoObject(t *testing.T) {
	m := New(Options{Clock: store.NewStillClock(1e18), SweepEvery: -1})
	v, key := m.View(), []byte("key")
	v.Take(background, key, plainRule(limit.SlidingLog, 9, 60), 10, quota.Take)
	v.Take(background, key, plainRule(limit.SlidingLog, 9, 60), 1, quota.Peek)
	v.Acquire(background, key, plainRequest(0, 60, "holder", 1), 10)
	_, err := v.Acquire(background, key, plainRequest(9, 60, "holder", 1), 0)
	require.ErrorIs(t, err, lease.ErrHolders)
	logs, leases := m.objects()
	require.Zero(t, logs+leases)
	require.NoError(t, m.check())
}

// A single object that stays does not keep the memory of a million removed objects.
func TestSlabFreesEmptyPieces(t *testing.T) {
	var s slab[int]
	var numbers []uint32
	for i := range 100_000 {
		n, item := s.add()
		require.Equal(t, uint32(i), n)
		*item = i
		numbers = append(numbers, n)
	}
	full := s.overhead()
	const kept = 77_777
	for _, n := range numbers {
		if n != kept {
			s.remove(n)
		}
	}
	require.Equal(t, kept, *s.at(kept))
	require.Equal(t, 1, s.pieceCount)
	require.Less(t, s.overhead(), full/20)
	n, _ := s.add()
	require.Zero(t, n, "the lowest number must be reused first")
	s.remove(n)
	s.remove(kept)
	require.Nil(t, s.pieces)
}
