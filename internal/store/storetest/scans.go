package storetest

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/limit"
	"cellserver/internal/store"
)

var scanCases = []testCase{
	{"scan", "a scan visits each key of its database once, with its entry", scan},
	{"scan amid change", "a scan visits a key that exists all the time exactly once, however many others come and go",
		scanAmidChange},
	{"scan count", "count bounds the number of keys that a call visits, and every count reaches the end", scanCount},
	{"scan cursor", "a cursor needs no state: any view can continue from it, and an arbitrary one is harmless", scanCursor},
}

func scan(r *rig) {
	require.Empty(r, r.scanAll(10))
	keys := names("key:", 3000)
	r.put(keys...)
	for _, key := range names("expired:", 100) {
		r.take(key, throttleLimit(4, 1, 1), 1)
	}
	r.view.Select(1)
	r.put("elsewhere")
	r.view.Select(0)
	r.clock.Advance(time.Minute)
	r.view.Begin()
	for _, count := range []int{1, 7, 100, 5000} {
		require.Equal(r, eachOnce(keys), r.scanAll(count), "count %d", count)
	}
	for cursor := uint64(1); cursor != 0; {
		cursor = r.scan(cursor&^1, 100, func(key string, e store.Entry) { require.Equal(r, r.entryOfPut(), e) })
	}
}

// entryOfPut returns the entry of a key that put created at the start of the case.
func (r *rig) entryOfPut() store.Entry {
	return store.Entry{Kind: limit.Throttle, Expires: r.epoch + int64(longLived.EmissionInterval())}
}

// scanAmidChange lets the table grow from 100 keys to 100 000 and shrink again during one scan.
func scanAmidChange(r *rig) {
	const calls, quiet = 10, 20
	come := 100_000
	if r.external { // what the other program does with so many keys is not tested here
		come = 2000
	}
	stay, passing := names("stay:", 100), names("passing:", come)
	r.put(stay...)
	shown, other := map[string]int{}, r.another()
	cursor := uint64(0)
	for call := 0; call == 0 || cursor != 0; call++ {
		require.Less(r, call, come, "the scan does not end")
		cursor = r.scan(cursor, 20, func(key string, _ store.Entry) {
			if key[0] == 's' {
				shown[key]++
			}
		})
		switch {
		case call < calls:
			other.put(passing[call*come/calls : (call+1)*come/calls]...)
		case call >= calls+quiet && call < 2*calls+quiet:
			n := call - calls - quiet
			other.remove(passing[n*come/calls : (n+1)*come/calls]...)
		}
	}
	for key := range shown {
		if r.external { // a server may return a key twice while its table grows or shrinks
			shown[key] = 1
		}
	}
	require.Equal(r, eachOnce(stay), shown)
}

func scanCount(r *rig) {
	const slack = 100 // a store may visit keys in groups of this size
	keys := names("key:", 10_000)
	r.put(keys...)
	for _, count := range []int{1, 100} {
		shown, cursor := 0, uint64(0)
		for range 20 {
			before := shown
			cursor = r.scan(cursor, count, func(string, store.Entry) { shown++ })
			require.LessOrEqual(r, shown-before, count+slack)
		}
		require.NotZero(r, cursor)
	}
	require.Equal(r, eachOnce(keys), r.scanAll(math.MaxInt))
}

func scanCursor(r *rig) {
	keys := names("key:", 2000)
	r.put(keys...)
	mine, theirs := map[string]int{}, map[string]int{}
	here, there := uint64(0), uint64(0)
	for call := 0; call == 0 || here != 0 || there != 0; call++ {
		if call == 0 || here != 0 {
			again := map[string]int{}
			r.scan(here, 10, func(key string, _ store.Entry) { again[key]++ }) // repeat a call as after a lost reply
			piece := map[string]int{}
			here = r.another().scan(here, 10, func(key string, _ store.Entry) { piece[key]++; mine[key]++ })
			require.Equal(r, again, piece)
		}
		if call == 0 || there != 0 {
			there = r.scan(there, 33, func(key string, _ store.Entry) { theirs[key]++ })
		}
		r.scan(rand.Uint64(), 10, func(string, store.Entry) {})
	}
	require.Equal(r, eachOnce(keys), mine)
	require.Equal(r, eachOnce(keys), theirs)
	for _, wild := range []uint64{math.MaxUint64, math.MaxInt64, 1 << 32, 1<<32 - 1, 1 << 40, 1<<40 - 1} {
		r.scan(wild, 10, func(string, store.Entry) {})
	}
}
