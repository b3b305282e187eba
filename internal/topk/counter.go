package topk

import (
	"cmp"
	"hash/maphash"
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
)

// Counter counts which keys are asked about and which are limited. To count every call would cost a
// tenth of it; so the more calls there are, the fewer are counted, each for as many as its weight
// says. The first 4096 of each slice of time are counted one by one, then one in two, four and so
// on, at random. That takes 1.5 % of the instructions of a CL.THROTTLE (1926 -> 1956 with 64 in
// flight, 3675 -> 3725 alone; callgrind, BenchmarkSession), and counts are exact where calls are
// few.
type Counter struct {
	mu            sync.Mutex
	seen, limited *Sketch
	counted       int64        // calls in this slice
	until         atomic.Int64 // when it ends, ns
	Seed          uint64       // of what samplings choose by; 0 for a random one
}

// aWeight is how many calls are counted before the weight doubles, which it does so often at most.
const aWeight, mostDoublings = 4096, 12

// add counts a call, and returns the weight of the next.
func (t *Counter) add(now int64, database int, key []byte, limited bool, weight int64) (next int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seen == nil {
		t.seen, t.limited = New(), New()
		t.Seed = cmp.Or(t.Seed, new(maphash.Hash).Sum64())
	}
	if end := (now/Slice + 1) * Slice; end > t.until.Load() {
		t.until.Store(end)
		t.counted = 0
	}
	t.counted++
	t.seen.Add(now, int32(database), key, weight)
	if limited {
		t.limited.Add(now, int32(database), key, weight)
	}
	next = 1 << min(t.counted/aWeight, mostDoublings)
	t.seen.SetWeight(now, max(weight, next))
	t.limited.SetWeight(now, max(weight, next))
	return next
}

// List returns the keys of a database that were counted most. It works on a copy, made a slice at a
// time: nobody who decides waits for long.
func (t *Counter) List(now int64, database int, limited bool, count int) []KeyCount {
	var copied *Sketch
	for i := range Slices {
		if copied = t.copySlice(copied, limited, i); copied == nil {
			return nil
		}
	}
	return copied.Top(now, int32(database), count)
}

func (t *Counter) copySlice(to *Sketch, limited bool, i int) *Sketch {
	t.mu.Lock()
	defer t.mu.Unlock()
	from := t.seen
	if limited {
		from = t.limited
	}
	if from == nil {
		return nil
	}
	if to == nil {
		to = from.Empty()
	}
	from.Copy(to, i)
	return to
}

// Sampling is where a session is: how many calls it lets pass before the next that it counts, and
// for how many that stands.
type Sampling struct {
	skip, weight int64
	until        int64  // the end of the slice that this is about
	random       uint64 // by Marsaglia's xorshift
}

// Skip says that the next call need not be counted.
func (s *Sampling) Skip() bool {
	s.skip--
	return s.skip >= 0
}

// Count counts a call that Pass did not let pass. No two clients have the same number.
func (t *Counter) Count(s *Sampling, now int64, database int, key []byte, limited bool, client uint64) {
	next := t.add(now, database, key, limited, max(s.weight, 1))
	if s.random == 0 && next > 1 { // which no two sessions have in common
		s.random = (t.Seed ^ client*0x9e3779b97f4a7c15) | 1
	}
	s.weight, s.skip, s.until = next, s.gap(next), t.until.Load()
}

// gap is how many calls are let pass, at random, so that each is counted with a chance of one in
// weight, whatever became of those before it (so it is distributed geometrically). Any other
// distance that comes to one in weight would count less of a session of few calls.
func (s *Sampling) gap(weight int64) int64 {
	if weight == 1 {
		return 0
	}
	s.random ^= s.random << 13
	s.random ^= s.random >> 7
	s.random ^= s.random << 17
	chance := float64(s.random>>11+1) / (1 << 53) // above 0, 1 at most
	return int64(math.Log(chance) * perGap[bits.TrailingZeros64(uint64(weight))])
}

// perGap is, for each weight, what the logarithm of a chance is multiplied by to make a gap.
var perGap = func() (per [mostDoublings + 1]float64) {
	for i := range per {
		per[i] = 1 / math.Log1p(-1/float64(int64(1)<<i)) // of a weight of 1: 0, which is no gap
	}
	return per
}()

// Begin is called when a batch begins: in a new slice calls are counted one by one again.
func (s *Sampling) Begin(now int64) {
	if now >= s.until && s.weight > 1 {
		s.weight, s.skip = 1, 0
	}
}
