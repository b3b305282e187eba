// Package topk finds the most frequent keys in bounded memory, over the last minute. It uses the
// Space-Saving algorithm of Metwally, Agrawal and El Abbadi ("Efficient computation of frequent and
// top-k elements in data streams", 2005).
//
// Space-Saving has a fixed number of counters. A key without a counter takes over the smallest one
// together with its count, so a count is never too small, and the counter records by how much it
// may be too large. This package differs from the paper in two ways. The counters are in sets of
// eight that are selected by the hash of the key, like the lines of a processor's cache: finding
// the smallest means looking at eight counters, and the error of a set depends only on the keys in
// it. And the minute consists of six slices with counters of their own, so that old counts are
// forgotten.
//
// A sketch reads no clock and has no lock. Its owner passes the time, and prevents concurrent use.
package topk

import (
	"cmp"
	"hash/maphash"
	"iter"
	"math"
	"slices"
)

const (
	// A sketch covers sliceCount slices of sliceLength nanoseconds each.
	sliceCount  = 6
	sliceLength = 10_000_000_000

	// maxKey is the length of the longest key that is counted, in bytes. Together with the number
	// of counters it bounds the memory.
	maxKey = 256

	ways        = 8
	sets        = 256
	keyCapacity = 32 // bytes reserved per key at first
)

// sketch counts keys, each in a database. Its zero value cannot be used; call newSketch.
type sketch struct {
	seed   maphash.Seed
	slices [sliceCount]slice
}

type slice struct {
	number    int64 // instant / sliceLength
	maxWeight int64 // the largest weight with which calls were counted, or announced by setWeight
	counters  []counter
	keyMemory []byte // memory for keys that are up to keyCapacity long; the part not yet in use
}

type counter struct {
	database  int32
	count     int64
	overcount int64   // by how much count may be too large: the count of the key it was taken over from
	variance  float64 // variance of count that is due to weights above one
	key       []byte
}

// newSketch makes an empty sketch. It takes memory as it is used: 180 KiB per slice, and more if
// keys are long.
func newSketch() *sketch { return &sketch{seed: maphash.MakeSeed()} }

// add counts a key weight times, at an instant in nanoseconds. A caller that counts a random call
// in n passes a weight of n, and must have called setWeight before it skips any.
func (s *sketch) add(now int64, database int32, key []byte, weight int64) {
	if len(key) > maxKey {
		return
	}
	slice := s.current(now)
	slice.maxWeight = max(slice.maxWeight, weight)
	set := slice.set(maphash.Bytes(s.seed, key))
	c := find(set, database, key)
	if c == nil {
		c = smallest(set)
		c.overcount, c.variance, c.database = c.count, 0, database
		if cap(c.key) < len(key) {
			c.key = slice.reserve(len(key))
		}
		c.key = append(c.key[:0], key...)
	}
	c.count += min(weight, math.MaxInt64-c.count)
	c.variance += float64(weight) * float64(weight-1)
}

// setWeight says that from now on each call is counted with a probability of 1/weight, independent
// of the others.
func (s *sketch) setWeight(now, weight int64) {
	slice := s.current(now)
	slice.maxWeight = max(slice.maxWeight, weight)
}

// current returns the slice of an instant, and clears it first if it held an older one.
func (s *sketch) current(now int64) *slice {
	number := now / sliceLength
	c := &s.slices[number%sliceCount]
	if c.number == number && c.counters != nil {
		return c
	}
	c.number, c.maxWeight = number, 1
	if c.counters == nil {
		c.counters, c.keyMemory = make([]counter, sets*ways), make([]byte, sets*ways*keyCapacity)
	}
	for i := range c.counters {
		c.counters[i] = counter{key: c.counters[i].key[:0]}
	}
	return c
}

// reserve returns an empty buffer for a key of n bytes, with room for a somewhat longer one that
// may take over the counter.
func (s *slice) reserve(n int) []byte {
	n = (n + keyCapacity - 1) / keyCapacity * keyCapacity
	if n > len(s.keyMemory) {
		return make([]byte, 0, n)
	}
	reserved := s.keyMemory[:0:n]
	s.keyMemory = s.keyMemory[n:]
	return reserved
}

func (s *slice) set(hash uint64) []counter {
	at := hash % sets * ways
	return s.counters[at : at+ways]
}

func find(set []counter, database int32, key []byte) *counter {
	for i := range set {
		if c := &set[i]; c.count > 0 && c.database == database && string(c.key) == string(key) {
			return c
		}
	}
	return nil
}

func smallest(set []counter) *counter {
	least := &set[0]
	for i := range set {
		if set[i].count < least.count {
			least = &set[i]
		}
	}
	return least
}

// KeyCount is a key with its count. The exact number of calls is within Error of Count; if calls
// were sampled, with a probability of 99.9 %.
type KeyCount struct {
	Key          string
	Count, Error int64
}

// copySlice copies slice i to a sketch made by emptyCopy. top takes milliseconds; with copySlice
// the owner of a sketch need only hold its lock for the copying of a slice, some hundredths of a
// millisecond.
func (s *sketch) copySlice(to *sketch, i int) {
	from := &s.slices[i]
	size := 0
	for j := range from.counters {
		size += len(from.counters[j].key)
	}
	counters, names := slices.Clone(from.counters), make([]byte, 0, size)
	for j := range counters {
		names = append(names, counters[j].key...)
		counters[j].key = names[len(names)-len(counters[j].key):]
	}
	to.slices[i] = slice{number: from.number, maxWeight: from.maxWeight, counters: counters}
}

// emptyCopy makes a sketch that slices of this one can be copied to.
func (s *sketch) emptyCopy() *sketch { return &sketch{seed: s.seed} }

// sum is the sum of one key's counters over the slices.
type sum struct {
	count    int64
	maxError int64 // error, in either direction, from counters that were taken over
	variance float64
}

// certainty is ln(2 / 0.001): the error exceeds the bound, in either direction, once in a thousand
// times.
const certainty = 7.601

// bound returns the possible error of the count if calls were counted with a probability of at
// least 1/maxWeight. It is Bernstein's inequality: with a = ln(2 / probability of an error), n
// calls that are counted independently with weight w deviate from their sum by at most a * w +
// sqrt((a * w)^2 + 2 * a * variance). The variance of calls counted for another key, or lost, is
// unknown, so the largest possible is assumed.
func (s *sum) bound(maxWeight int64) int64 {
	if maxWeight <= 1 {
		return s.maxError
	}
	w := certainty * float64(maxWeight)
	deviation := math.Ceil(w + math.Sqrt(w*w+2*certainty*(s.variance+float64(s.maxError)*float64(maxWeight-1))))
	return s.maxError + int64(min(deviation, float64(math.MaxInt64/2-s.maxError/2)))
}

// top returns the n keys of a database with the highest counts in the minute that ends with the
// slice of now, highest first.
func (s *sketch) top(now int64, database int32, n int) []KeyCount {
	sums, maxWeight := map[string]*sum{}, int64(1)
	for slice := range s.recent(now) {
		maxWeight = max(maxWeight, slice.maxWeight)
		for i := range slice.counters {
			if c := &slice.counters[i]; c.count > 0 && c.database == database && sums[string(c.key)] == nil {
				sums[string(c.key)] = new(sum)
			}
		}
	}
	top := make([]KeyCount, 0, len(sums))
	for key, sum := range sums {
		for slice := range s.recent(now) {
			sum.add(slice.set(maphash.String(s.seed, key)), database, key)
		}
		top = append(top, KeyCount{key, sum.count, sum.bound(maxWeight)})
	}
	slices.SortFunc(top, func(a, b KeyCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Key, b.Key))
	})
	return top[:min(n, len(top))]
}

// add adds the counts of a key in one slice. If the key has no counter there it may have lost it;
// then its count was at most the smallest counter of its set.
func (s *sum) add(set []counter, database int32, key string) {
	c := find(set, database, []byte(key))
	if c == nil {
		s.maxError += min(smallest(set).count, math.MaxInt64-s.maxError)
		return
	}
	s.count += min(c.count, math.MaxInt64-s.count)
	s.maxError += min(c.overcount, math.MaxInt64-s.maxError)
	s.variance += c.variance
}

// recent iterates over the slices of the minute that ends with the slice of now.
func (s *sketch) recent(now int64) iter.Seq[*slice] {
	newest := now / sliceLength
	return func(yield func(*slice) bool) {
		for i := range s.slices {
			slice := &s.slices[i]
			if slice.counters != nil && slice.number > newest-sliceCount && slice.number <= newest && !yield(slice) {
				return
			}
		}
	}
}
