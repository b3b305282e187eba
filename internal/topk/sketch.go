// Package topk finds the keys that are named most often, in a memory that does not grow:
// Space-Saving of Metwally, Agrawal and El Abbadi ("Efficient computation of frequent and top-k
// elements in data streams", 2005), over the last minute.
//
// Space-Saving has a fixed number of counters. A key that has none takes over the smallest, and its
// count: so no count is ever too small, and the counter remembers by how much it may be too large.
// Two things differ here. The counters are kept in sets of eight, chosen by the key's hash, as a
// processor's cache keeps its lines: so the smallest is found by looking at eight, and a set errs
// by what falls into it. And a minute is six slices, each with counters of its own, so that what is
// older is forgotten.
//
// A Sketch is told what time it is, and who may touch it when is for its owner to say.
package topk

import (
	"cmp"
	"hash/maphash"
	"iter"
	"math"
	"slices"
)

const (
	// Slices of Slice nanoseconds make the time that is looked back on.
	Slices = 6
	Slice  = 10_000_000_000

	// MaxKey bounds the keys that are counted, in bytes. Longer ones are not: memory is bounded by
	// the counters and this.
	MaxKey = 256

	ways     = 8
	sets     = 256
	usualKey = 32 // bytes
)

// Sketch counts names: a key of a database. The zero value is of no use; New makes one.
type Sketch struct {
	seed   maphash.Seed
	slices [Slices]slice
}

type slice struct {
	number   int64 // which slice of all time it is
	most     int64 // the largest weight by which calls were counted in it, or let pass
	counters []counter
	names    []byte // where the keys are, each with room to spare: what is left of it is for those that come
}

type counter struct {
	database int32
	count    int64
	over     int64   // by how much count may be too large: what others had when it took over
	variance float64 // of what was counted in weights of more than one
	key      []byte
}

// New makes a sketch that has counted nothing. It takes memory as it is used: 180 KiB a slice, and
// more if keys are long.
func New() *Sketch { return &Sketch{seed: maphash.MakeSeed()} }

// Add counts a key at an instant, in ns, weight times: whoever counts one call in n at random says
// n, and says so by Weigh before it lets any pass.
func (s *Sketch) Add(now int64, database int32, key []byte, weight int64) {
	if len(key) > MaxKey {
		return
	}
	slice := s.current(now)
	slice.most = max(slice.most, weight)
	set := slice.set(maphash.Bytes(s.seed, key))
	c := find(set, database, key)
	if c == nil {
		c = smallest(set)
		c.over, c.variance, c.database = c.count, 0, database
		if cap(c.key) < len(key) {
			c.key = slice.room(len(key))
		}
		c.key = append(c.key[:0], key...)
	}
	c.count += min(weight, math.MaxInt64-c.count)
	c.variance += float64(weight) * float64(weight-1)
}

// SetWeight says that from now on each call is counted with a chance of 1 in weight, by itself.
func (s *Sketch) SetWeight(now, weight int64) {
	slice := s.current(now)
	slice.most = max(slice.most, weight)
}

// current is the slice of an instant, emptied if it held another.
func (s *Sketch) current(now int64) *slice {
	number := now / Slice
	c := &s.slices[number%Slices]
	if c.number == number && c.counters != nil {
		return c
	}
	c.number, c.most = number, 1
	if c.counters == nil {
		c.counters, c.names = make([]counter, sets*ways), make([]byte, sets*ways*usualKey)
	}
	for i := range c.counters {
		c.counters[i] = counter{key: c.counters[i].key[:0]}
	}
	return c
}

// room is where a key of n bytes can be kept, and another that comes after it.
func (s *slice) room(n int) []byte {
	n = (n + usualKey - 1) / usualKey * usualKey
	if n > len(s.names) {
		return make([]byte, 0, n)
	}
	room := s.names[:0:n]
	s.names = s.names[n:]
	return room
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

// KeyCount is a key and how often it was named: Count times, and Error more or fewer at most. Where
// calls were counted by weight that holds with 99.9 %.
type KeyCount struct {
	Key          string
	Count, Error int64
}

// Copy copies slice i to a sketch made by Empty: so an owner lets nobody wait for Top, which takes
// milliseconds, but for a slice's copying, some hundredths of one.
func (s *Sketch) Copy(to *Sketch, i int) {
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
	to.slices[i] = slice{number: from.number, most: from.most, counters: counters}
}

// Empty is a sketch for copies of this one's slices.
func (s *Sketch) Empty() *Sketch { return &Sketch{seed: s.seed} }

// sum is what the slices together say of a key.
type sum struct {
	count    int64
	off      int64 // what taking over has added, or taken away
	variance float64
}

// certainty is ln(2 / 0.001): one in a thousand is off by more, on either side.
const certainty = 7.601

// bound is how far the count may be off, where calls were counted with a chance of 1 in most or
// more. That is Bernstein's inequality: with a certainty of a = ln(1 / chance), n calls that are
// counted by themselves, each as w or not at all, stand for no more than a * w + sqrt((a * w)^2 + 2
// * a * variance) from n. What was counted for another key, or got lost, is of unknown variance: of
// the largest that it can have.
func (s *sum) bound(most int64) int64 {
	if most <= 1 {
		return s.off
	}
	w := certainty * float64(most)
	off := math.Ceil(w + math.Sqrt(w*w+2*certainty*(s.variance+float64(s.off)*float64(most-1))))
	return s.off + int64(min(off, float64(math.MaxInt64/2-s.off/2)))
}

// Top is the n keys of a database that were named most often in the slices that end with now's,
// most first.
func (s *Sketch) Top(now int64, database int32, n int) []KeyCount {
	sums, most := map[string]*sum{}, int64(1)
	for slice := range s.recent(now) {
		most = max(most, slice.most)
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
		top = append(top, KeyCount{key, sum.count, sum.bound(most)})
	}
	slices.SortFunc(top, func(a, b KeyCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Key, b.Key))
	})
	return top[:min(n, len(top))]
}

// add adds what a slice has counted of a key. One that has no counter there may have lost it: then
// it was named no more often than the smallest of its set says.
func (s *sum) add(set []counter, database int32, key string) {
	c := find(set, database, []byte(key))
	if c == nil {
		s.off += min(smallest(set).count, math.MaxInt64-s.off)
		return
	}
	s.count += min(c.count, math.MaxInt64-s.count)
	s.off += min(c.over, math.MaxInt64-s.off)
	s.variance += c.variance
}

// recent are the slices of the minute that ends with now's.
func (s *Sketch) recent(now int64) iter.Seq[*slice] {
	newest := now / Slice
	return func(yield func(*slice) bool) {
		for i := range s.slices {
			slice := &s.slices[i]
			if slice.counters != nil && slice.number > newest-Slices && slice.number <= newest && !yield(slice) {
				return
			}
		}
	}
}
