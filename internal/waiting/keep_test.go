package waiting

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// requireOrder requires that no call of a queue can be forgotten. For each line, the next turn is at a known
// instant, or the first call has its turn, or the key is kept for a call in a line of which one of these is true.
// Each kept key must belong to a call that waits. So no call that keeps a key waits for another call.
func requireOrder[T any](t require.TestingT, q *Queue[T]) {
	for at, l := range q.lines {
		keeper := q.keeper(at.database, []byte(at.key))
		switch isKept := at.call == 0 && keeper != nil; {
		case l.inTurn || isKept:
			require.Negative(t, l.index, "a line has a turn too many")
		default:
			require.GreaterOrEqual(t, l.index, 0, "a line has no turn")
			require.Same(t, l, q.turns[l.index])
		}
		require.Equal(t, at.call == 0 && keeper != nil, l.isKept)
	}
	kept := 0
	for _, c := range q.keepers {
		require.True(t, c.IsWaiting(), "a key is kept for a call that has left")
		require.NotZero(t, c.line.call, "a key is kept for a call that waits in the line of a key")
		require.Contains(t, c.kept, c.kept[0])
	}
	for _, l := range q.lines {
		for c := l.first; c != nil; c = c.next {
			kept += len(c.kept)
		}
	}
	require.Equal(t, len(q.keepers), kept)
	require.True(t, q.next == nil || q.next.IsWaiting(), "a call that has left is the next")
}

// bucket is a limiter that holds one unit, which comes back a time after it was taken.
type bucket struct{ refill, at int64 }

// all are the names of the buckets.
var all = []string{"a", "b", "c", "d"}

// taker is a call that takes from some buckets, at once or not at all.
type taker struct {
	keys  []string
	turns int // how many turns it was passed over
}

// buckets are the buckets, the queue of takers, and the calls that have their turn.
type buckets struct {
	of     map[string]*bucket
	queue  *Queue[*taker]
	now    int64
	inTurn []*Call[*taker]
	left   int
	turns  int // the most turns of a call that has left
}

func newBuckets(t *rapid.T) *buckets {
	b := &buckets{of: map[string]*bucket{}, queue: New[*taker]()}
	for _, key := range all {
		b.of[key] = &bucket{refill: rapid.Int64Range(1, 12).Draw(t, key)}
	}
	return b
}

// needs returns what the buckets of a call have for it.
func (b *buckets) needs(c *Call[*taker]) (needs []Need, limited bool) {
	for _, key := range c.Of.keys {
		n := Need{Key: []byte(key), RetryAfter: max(b.of[key].at-b.now, 0), Cost: b.of[key].refill}
		needs, limited = append(needs, n), limited || n.RetryAfter > 0
	}
	return needs, limited
}

// add adds a call, which stands in the line of one of its keys.
func (b *buckets) add(t *rapid.T, keys []string) {
	c := &Call[*taker]{Of: &taker{keys: keys}}
	deadline := b.now + rapid.SampledFrom([]int64{20, 1e6, math.MaxInt64 / 2}).Draw(t, "time")
	require.NoError(t, b.queue.Add(c, 0, []byte(keys[0]), deadline, b.now))
	b.queue.SetKeys(c, 0, func(i int) []byte { return []byte(keys[i]) }, len(keys))
}

// begin begins turns that are due, at most so many at once, as several workers over a store do.
func (b *buckets) begin(most int) {
	for len(b.inTurn) < most {
		c, due := b.queue.Next(b.now)
		switch due {
		case Nothing:
			if b.queue.At() > b.now {
				return
			}
		case Turn:
			b.inTurn = append(b.inTurn, c)
		}
	}
}

// end ends the turn of a call.
func (b *buckets) end(t *rapid.T, i int) {
	c := b.inTurn[i]
	b.inTurn = slices.Delete(b.inTurn, i, i+1)
	needs, limited := b.needs(c)
	if !limited {
		for _, key := range c.Of.keys {
			b.of[key].at = b.now + b.of[key].refill
		}
		b.left++
		b.turns = max(b.turns, c.Of.turns)
		b.queue.Leave(c, b.now)
		return
	}
	if slices.ContainsFunc(needs, func(n Need) bool { return n.RetryAfter == 0 }) {
		c.Of.turns++
	}
	if err := b.queue.StayAmong(c, 0, needs, b.now, math.MaxInt64, b.now); err != nil {
		require.ErrorIs(t, err, ErrLeft)
	}
}

func (b *buckets) drawKeys(t *rapid.T) []string {
	keys := rapid.Permutation(all).Draw(t, "keys")
	return keys[:rapid.IntRange(1, len(keys)).Draw(t, "number")]
}

func (b *buckets) actions() map[string]func(*rapid.T) {
	pass := func(t *rapid.T) {
		b.begin(3)
		for len(b.inTurn) > 0 {
			b.end(t, rapid.IntRange(0, len(b.inTurn)-1).Draw(t, "turn"))
			b.begin(3)
		}
		b.now++
	}
	return map[string]func(*rapid.T){
		"":     func(t *rapid.T) { requireOrder(t, b.queue) },
		"add":  func(t *rapid.T) { b.add(t, b.drawKeys(t)) },
		"one":  func(t *rapid.T) { b.add(t, b.drawKeys(t)[:1]) },
		"pass": pass, "pass more": pass, "pass again": pass,
		"begin": func(t *rapid.T) { b.begin(rapid.IntRange(1, 3).Draw(t, "turns")) },
		"end": func(t *rapid.T) {
			if len(b.inTurn) > 0 {
				b.end(t, rapid.IntRange(0, len(b.inTurn)-1).Draw(t, "turn"))
			}
		},
		"take": func(t *rapid.T) { // by a call that does not wait
			key := rapid.SampledFrom(all).Draw(t, "key")
			b.of[key].at = b.now + b.of[key].refill
		},
		"free": func(t *rapid.T) {
			key := rapid.SampledFrom(all).Draw(t, "key")
			b.of[key].at = 0
			b.queue.Wake(0, []byte(key), b.now)
		},
		"free all": func(t *rapid.T) {
			for _, of := range b.of {
				of.at = 0
			}
			b.queue.WakeAll()
		},
	}
}

// Calls on several keys wait, are admitted and leave, in turns that overlap, while others take from the same keys. No
// call is ever forgotten, and when no others come, all have left soon.
func TestNoCallOfSeveralKeysIsForgotten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBuckets(t)
		actions := b.actions()
		t.Repeat(actions)
		for end := b.now + 100*int64(b.queue.Len()+1); b.queue.Len() > 0; {
			require.Less(t, b.now, end, "%d calls are forgotten", b.queue.Len())
			actions["pass"](t)
			requireOrder(t, b.queue)
		}
		require.Empty(t, b.queue.keepers)
		require.Empty(t, b.queue.turns)
		left := int32(0)
		for i := range b.queue.filter.buckets {
			left |= b.queue.filter.buckets[i].Load()
		}
		require.Zero(t, left)
	})
}

// While others come for ever, a call on all keys is passed over at most as often as docs/limiters.md says.
func TestTurnsPassedOver(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBuckets(t)
		slowest := int64(0)
		for _, key := range all {
			of := b.of[key]
			of.at = rapid.Int64Range(0, 12).Draw(t, "at "+key)
			slowest = max(slowest, of.refill)
		}
		most := Patience
		for _, of := range b.of {
			most += 2 * int((slowest+of.refill-1)/of.refill)
		}
		c := &Call[*taker]{Of: &taker{keys: all}}
		require.NoError(t, b.queue.Add(c, 0, []byte("a"), math.MaxInt64, 0))
		b.queue.SetKeys(c, 0, func(i int) []byte { return []byte(c.Of.keys[i]) }, 4)
		for c.IsWaiting() {
			require.LessOrEqual(t, c.Of.turns, most)
			require.Less(t, b.now, int64(5000), "it starves")
			for _, key := range all {
				l := b.queue.lines[placeOf(0, []byte(key))]
				if l == nil || l.calls < 3 && rapid.IntRange(0, 3).Draw(t, "another") == 0 {
					b.add(t, []string{key})
				}
			}
			b.actions()["pass"](t)
			requireOrder(t, b.queue)
		}
	})
}
