package commands

import (
	"cmp"
	"hash/maphash"
	"math"
	"math/bits"
	"sync"
	"sync/atomic"

	"cellserver/internal/hitters"
	"cellserver/internal/resp"
)

func (l *Limiters) topKeys() *Command {
	return &Command{
		Name: "cl.top", Group: "limiter", Since: "1.0.0", Complexity: "O(1): some thousand counters are looked at", Flags: ReadOnly, Cost: Unbounded,
		Summary: "Shows the keys that limiters refused, or were asked about, most often in the last minute.",
		Args:    []Arg{Word("[LIMITED | SEEN] [count]").Optional().Many()}, Tips: varying,
		Reply: `For each key, most first: the key; how often it was limited, or seen; and how far that may be off. LIMITED and 10 if nothing
else is said, 1000 at most. Memory is bounded (Space-Saving, 2048 counters for each ten seconds), so rare keys may be missing. Beyond
some hundred calls a second one call in several stands for all, chosen at random: then how far a count may be off holds with 99.9 %.
Keys of more than 256 bytes are not counted.`,
		Run: func(c *Call) error {
			limited, count, err := topOptions(c.Many())
			if err != nil {
				return err
			}
			top := l.top.list(c.View.Now(), c.View.Selected(), limited, count)
			c.Out.Array(len(top))
			for _, hitter := range top {
				c.Out.Array(3)
				c.Out.BulkString(hitter.Key)
				c.Out.Int(hitter.Count)
				c.Out.Int(hitter.Error)
			}
			return nil
		},
	}
}

func topOptions(words [][]byte) (limited bool, count int, err error) {
	limited, count = true, 10
	if len(words) > 0 && (foldEqual(words[0], "LIMITED") || foldEqual(words[0], "SEEN")) {
		limited, words = foldEqual(words[0], "LIMITED"), words[1:]
	}
	switch len(words) {
	case 0:
		return limited, count, nil
	case 1:
		n, ok := resp.ParseInt(words[0])
		if !ok {
			return limited, count, errNotAnInteger
		}
		if n < 1 || n > 1000 {
			return limited, count, refusal("ERR count must be between 1 and 1000")
		}
		return limited, int(n), nil
	}
	return limited, count, errSyntax
}

// top counts who is asked about and who is limited. To count every call would cost a tenth of it; so the more calls there are, the
// fewer are counted, each for as many as its weight says. The first of each slice of time are counted one by one.
type top struct {
	mu            sync.Mutex
	seen, limited *hitters.Sketch
	counted       int64        // calls in this slice
	until         atomic.Int64 // when it ends, ns
	seed          uint64       // of what sessions choose by: a random one but for tests
}

// aWeight is how many calls are counted before the weight doubles, which it does so often at most.
const aWeight, mostDoublings = 4096, 12

// add counts a call, and returns the weight of the next.
func (t *top) add(now int64, database int, key []byte, limited bool, weight int64) (next int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seen == nil {
		t.seen, t.limited = hitters.New(), hitters.New()
		t.seed = cmp.Or(t.seed, new(maphash.Hash).Sum64())
	}
	if end := (now/hitters.Slice + 1) * hitters.Slice; end > t.until.Load() {
		t.until.Store(end)
		t.counted = 0
	}
	t.counted++
	t.seen.Add(now, int32(database), key, weight)
	if limited {
		t.limited.Add(now, int32(database), key, weight)
	}
	next = 1 << min(t.counted/aWeight, mostDoublings)
	t.seen.Weigh(now, max(weight, next))
	t.limited.Weigh(now, max(weight, next))
	return next
}

// list works on a copy, made a slice at a time: nobody who decides waits for long.
func (t *top) list(now int64, database int, limited bool, count int) []hitters.Hitter {
	var copied *hitters.Sketch
	for i := range hitters.Slices {
		if copied = t.copySlice(copied, limited, i); copied == nil {
			return nil
		}
	}
	return copied.Top(now, int32(database), count)
}

func (t *top) copySlice(to *hitters.Sketch, limited bool, i int) *hitters.Sketch {
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

// sampling is where a session is: how many calls it lets pass before the next that it counts, and for how many that stands.
type sampling struct {
	skip, weight int64
	until        int64  // the end of the slice that this is about
	random       uint64 // by Marsaglia's xorshift
}

// seen says that a limiter has decided about a key. It is on the way of every call, so it does next to nothing.
func (l *Limiters) seen(c *Call, key []byte, limited bool) {
	if c.sampling.skip--; c.sampling.skip < 0 {
		l.sample(c, key, limited)
	}
}

func (l *Limiters) sample(c *Call, key []byte, limited bool) {
	s := &c.sampling
	top := &l.top
	next := top.add(c.View.Now(), c.View.Selected(), key, limited, max(s.weight, 1))
	if s.random == 0 && next > 1 { // which no two sessions have in common
		s.random = (top.seed ^ uint64(c.View.Signed())*0x9e3779b97f4a7c15) | 1
	}
	s.weight, s.skip, s.until = next, s.gap(next), top.until.Load()
}

// gap is how many calls are let pass, at random, so that each is counted with a chance of one in weight, whatever became of those before
// it (so it is distributed geometrically). Any other distance that comes to one in weight would count less of a session of few calls.
func (s *sampling) gap(weight int64) int64 {
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

// begin is called when a batch begins: in a new slice calls are counted one by one again.
func (s *sampling) begin(now int64) {
	if now >= s.until && s.weight > 1 {
		s.weight, s.skip = 1, 0
	}
}
