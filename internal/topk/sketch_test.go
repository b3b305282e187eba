package topk

import (
	"fmt"
	"math/rand"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const second = 1_000_000_000

// zipf calls a function for keys with a distribution as found in practice: the n-th most frequent
// key occurs about 1/n^1.1 times as often as the first. It returns the exact counts.
func zipf(calls int, call func(i int, key string)) (exact map[string]int64) {
	exact = map[string]int64{}
	keys := rand.NewZipf(rand.New(rand.NewSource(1)), 1.1, 1, 200_000)
	for i := range calls {
		key := fmt.Sprintf("user:%d", keys.Uint64())
		exact[key]++
		call(i, key)
	}
	return exact
}

func all(s *sketch, now int64, database int32, n int) []KeyCount {
	copied := s.emptyCopy()
	for i := range sliceCount {
		s.copySlice(copied, i)
	}
	return copied.top(now, database, n)
}

// wrong compares a list with the exact counts. It reports counts that are out of their bounds, and
// missing keys among the most frequent ones, as many as first says.
func wrong(top []KeyCount, exact map[string]int64, first int) (complaints []string) {
	listed := map[string]bool{}
	for _, h := range top {
		listed[h.Key] = true
		if n := exact[h.Key]; n > h.Count+h.Error || n < h.Count-h.Error {
			complaints = append(complaints, fmt.Sprintf("%s is %d, not %d within %d", h.Key, n, h.Count, h.Error))
		}
	}
	for n := range first {
		if key := fmt.Sprintf("user:%d", n); !listed[key] {
			complaints = append(complaints, key+" is missing")
		}
	}
	return complaints
}

// With 2048 counters for 300,000 calls on some ten thousand keys, the 100 most frequent
// keys are all there, and every count is within its error.
func TestZipf(t *testing.T) {
	s := newSketch()
	exact := zipf(300_000, func(i int, key string) { s.add(int64(i)*50*second/300_000, 0, []byte(key), 1) })
	top := all(s, 50*second, 0, 1000)
	require.Len(t, top, 1000)
	require.Empty(t, wrong(top, exact, 100))
	for _, h := range top[:20] {
		assert.Less(t, float64(h.Error), 0.1*float64(h.Count), "%+v", h)
	}
	t.Logf("%d keys; the first: %+v, exactly %d; the 20th: %+v, exactly %d", len(exact), top[0], exact[top[0].Key],
		top[19], exact[top[19].Key])
}

// The check finds a counter that is taken over without its count, and a set in which the largest
// counter is taken over.
func TestPlantedBugsAreFound(t *testing.T) {
	s := newSketch()
	exact := zipf(60_000, func(i int, key string) {
		s.add(0, 0, []byte(key), 1)
		if i%10 == 0 {
			smallest(s.slices[0].set(uint64(i / 10))).count = 0
		}
	})
	assert.NotEmpty(t, wrong(all(s, 0, 0, 1000), exact, 100))

	s = newSketch()
	exact = zipf(60_000, func(i int, key string) {
		if s.add(0, 0, []byte(key), 1); i%1000 == 0 {
			s.slices[0].counters[i/1000*ways] = counter{key: []byte("another"), count: 1}
		}
	})
	assert.NotEmpty(t, wrong(all(s, 0, 0, 1000), exact, 100))
}

// Counts of calls sampled at random are within their error.
func TestWeights(t *testing.T) {
	s, random := newSketch(), rand.New(rand.NewSource(2))
	const weight = 16
	s.setWeight(0, weight)
	exact := zipf(500_000, func(_ int, key string) {
		if random.Intn(weight) == 0 {
			s.add(0, 0, []byte(key), weight)
		}
	})
	top, wrongCounts := all(s, 0, 0, 100), 0
	for _, h := range top {
		if difference := exact[h.Key] - h.Count; max(difference, -difference) > h.Error {
			wrongCounts++
		}
	}
	assert.Zero(t, wrongCounts, "counts out of bounds; one in a thousand may be")
}

func TestAMinute(t *testing.T) {
	s := newSketch()
	for i := range int64(12) {
		s.add(i*sliceLength, 0, []byte("key"), 1)
	}
	now := int64(11*sliceLength + second)
	assert.Equal(t, []KeyCount{{"key", 6, 0}}, all(s, now, 0, 10))
	assert.Equal(t, []KeyCount{{"key", 2, 0}}, all(s, now+4*sliceLength, 0, 10))
	assert.Empty(t, all(s, now+6*sliceLength, 0, 10))
	assert.Empty(t, all(newSketch(), now, 0, 10))
}

func TestDatabasesAndTies(t *testing.T) {
	s := newSketch()
	for _, key := range []string{"b", "a", "c", "c"} {
		s.add(0, 3, []byte(key), 1)
	}
	s.add(0, 4, []byte("c"), 1)
	assert.Equal(t, []KeyCount{{"c", 2, 0}, {"a", 1, 0}, {"b", 1, 0}}, all(s, 0, 3, 10))
	assert.Equal(t, []KeyCount{{"c", 2, 0}}, all(s, 0, 3, 1))
	assert.Equal(t, []KeyCount{{"c", 1, 0}}, all(s, 0, 4, 10))
}

// Memory is bounded: a key longer than 256 bytes is not counted, and a sketch in use does not
// allocate for keys of usual length.
func TestMemoryIsBounded(t *testing.T) {
	s := newSketch()
	s.add(0, 0, []byte(strings.Repeat("k", maxKey+1)), 1)
	assert.Empty(t, all(s, 0, 0, 10))
	s.add(0, 0, []byte(strings.Repeat("k", maxKey)), 1)
	assert.Len(t, all(s, 0, 0, 10), 1)

	s = newSketch()
	for slice := range int64(sliceCount) {
		s.add(slice*sliceLength, 0, []byte("first"), 1)
	}
	key, n := []byte("user:000000"), 0
	allocations := testing.AllocsPerRun(20_000, func() {
		n++
		copy(key[5:], fmt.Sprintf("%06d", n)) // Sprintf allocates twice
		s.add(int64(n)*second/1000, 0, key, 1)
	})
	assert.LessOrEqual(t, allocations, 2.0)
}
