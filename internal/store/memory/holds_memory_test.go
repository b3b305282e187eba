package memory

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/gcra"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/racetest"
	"cellserver/internal/store"
	"cellserver/internal/window"
)

// measured are limits that many holds fit in. Two rules are two limits of a policy.
func measured() map[string][]limit.Rule {
	throttle, _ := gcra.NewLimit(1e6, 1e6, quota.Seconds(100))
	windowed, _ := window.NewLimit(1e6, quota.Seconds(100))
	log, _ := window.NewLogLimit(4000, quota.Seconds(100), 4000)
	fixed := limit.Rule{Kind: limit.Fixed, Window: windowed}
	return map[string][]limit.Rule{
		"THROTTLE":   {{Kind: limit.Throttle, Throttle: throttle}},
		"FIXED":      {fixed},
		"SLIDINGLOG": {{Kind: limit.SlidingLog, Log: log}},
		"two limits": {fixed, {Kind: limit.Throttle, Throttle: throttle}},
	}
}

// holdMany makes n calls on n / perKey keys for each rule, with holds or without, and returns the memory of the store.
func holdMany(t *testing.T, rules []limit.Rule, n, perKey int, held bool) int64 {
	r := newHoldRig(t, Options{Databases: 1})
	before := heapBytes() + r.store.OffHeapBytes()
	requests := make([]store.LimitRequest, len(rules))
	once := store.Once{Keys: make([][]byte, len(rules)), HoldTime: time.Hour, Token: store.Token{TTL: time.Second}}
	once.Decide = func(v store.View) ([]quota.Decision, bool, error) {
		return v.TakeAll(context.Background(), requests, quota.Take)
	}
	for i := range n {
		r.clock.Advance(1)
		for j := range rules {
			once.Keys[j] = fmt.Appendf(nil, "key%d:%07d", j, i/perKey)
			requests[j] = store.LimitRequest{Key: once.Keys[j], Rule: rules[j], Quantity: 1, Held: held}
		}
		r.view.Begin()
		taken := false
		var err error
		if once.Token.ID = fmt.Appendf(nil, "request-%016d", i); held {
			_, _, err = r.view.Once(background, &once)
			taken = true
		} else {
			_, taken, err = once.Decide(r.view)
		}
		require.True(t, taken && err == nil)
	}
	require.True(t, !held || r.store.Holds().Open >= n)
	used := heapBytes() + r.store.OffHeapBytes() - before
	runtime.KeepAlive(r)
	return used
}

// An open hold takes no more memory than docs/limiters.md says, in addition to its key. IDs have 24 bytes, and keys 12.
func TestMemoryOfHolds(t *testing.T) {
	racetest.HasOneGoroutine(t)
	const n = 60_000
	most := map[string][2]int64{ // with 1 and with 1000 holds a key
		"THROTTLE": {170, 90}, "FIXED": {170, 90}, "SLIDINGLOG": {170, 110}, "two limits": {320, 160},
	}
	for name, rules := range measured() {
		for i, perKey := range []int{1, 1000} {
			bytes := (holdMany(t, rules, n, perKey, true) - holdMany(t, rules, n, perKey, false)) / n
			t.Logf("%s, %d holds a key: %d bytes a hold", name, perKey, bytes)
			require.LessOrEqual(t, bytes, most[name][i], "%s, %d holds a key", name, perKey)
		}
	}
}

// BenchmarkOpenHolds says what an open hold takes in memory, and how long the longest steps on a million holds hold
// their locks: FLUSHALL, and DEL of a key with 1,000 holds.
func BenchmarkOpenHolds(b *testing.B) {
	const n = 1_000_000
	windowed, _ := window.NewLimit(1e6, quota.Seconds(100))
	rule := limit.Rule{Kind: limit.Fixed, Window: windowed}
	for _, perKey := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint(perKey, "-a-key"), func(b *testing.B) {
			for b.Loop() {
				r := newHoldRig(&testing.T{}, Options{Databases: 1})
				began := time.Now()
				for i := range n {
					r.hold(fmt.Sprintf("key:%08d", i/perKey), fmt.Sprintf("request-%016d", i), rule, 1, time.Hour)
				}
				b.ReportMetric(float64(time.Since(began).Nanoseconds())/n, "ns/HOLD")
				bytes := int64(0)
				for i := range r.store.database(0).shards {
					bytes += r.store.database(0).shards[i].holds.bytes()
				}
				b.ReportMetric(float64(bytes)/n, "bytes/hold")
				began = time.Now()
				_, _ = r.view.Delete(background, [][]byte{[]byte("key:00000001")})
				b.ReportMetric(float64(time.Since(began).Microseconds()), "us/DEL")
				began = time.Now()
				_ = r.view.Flush(background)
				b.ReportMetric(float64(time.Since(began).Microseconds()), "us/FLUSHDB")
				runtime.KeepAlive(r)
			}
		})
	}
}

// The book of a key whose last hold has lapsed is not in a page that other shards may have by then.
func TestLapsedBookIsEmpty(t *testing.T) {
	r, rule := newHoldRig(t, Options{Databases: 1}), heldRules[0]
	keys := inOneShard(r.view, "key", 2)
	require.EqualValues(t, 1, r.hold(keys[0], "a", rule, 1, time.Second))
	require.EqualValues(t, 1, r.hold(keys[1], fmt.Sprintf("%0200d", 1), rule, 1, time.Hour)) // of another size
	s := &r.store.createDatabase(0).shards[0]
	r.clock.Advance(2 * time.Second)
	k := s.held(s.hash([]byte(keys[0])), []byte(keys[0]), s.advance(r.clock.Now()))
	require.Nil(t, k.record)
	require.Empty(t, k.Bytes())
}
