package combine

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Too many steps on a key, or in all, end at once.
func TestQueuesAreBounded(t *testing.T) {
	d := newDesk(t)
	for range maxWaitingPerKey {
		d.m.Submit(d.now, d.add("a", 1, "k"))
	}
	assert.Empty(t, d.took())
	d.submit(d.add("b", 1, "k"), d.add("c", 1, "j", "k"), d.add("d", 1, "j"))
	assert.Equal(t, []string{"b: " + ErrContended.Error(), "c: " + ErrContended.Error()}, d.took())
	for i := range maxWaiting {
		d.m.Submit(d.now, d.add("e", 1, fmt.Sprint(i)))
	}
	assert.Len(t, d.took(), maxWaitingPerKey+1)
	assert.Equal(t, int64(maxWaiting), d.m.Counters().Waiting)
}

// Known values are bounded in number and in bytes.
func TestKnownValuesAreBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most, mostBytes := rapid.IntRange(1, 20).Draw(t, "most"), rapid.IntRange(10, 100).Draw(t, "bytes")
		k := newKnownValues(most, mostBytes)
		var used []keyID // the most recently used key is the last
		for range rapid.IntRange(0, 200).Draw(t, "calls") {
			key := keyID{0, fmt.Sprint(rapid.IntRange(0, 30).Draw(t, "key"))}
			use := func() {
				used = append(without(used, key), key)
			}
			switch rapid.IntRange(0, 3).Draw(t, "call") {
			case 0, 1:
				k.put(key, make([]byte, rapid.IntRange(0, 8).Draw(t, "length")), Never, 0)
				use()
			case 2:
				if _, _, ok := k.get(key); ok {
					use()
				}
			case 3:
				k.forget(key)
				used = without(used, key)
			}
			used = used[len(used)-len(k.index):]
			held := 0
			for _, key := range used {
				at, ok := k.index[key]
				assert.True(t, ok, "the most recently used keys are known")
				held += len(key.name) + len(k.slots[at].value)
			}
			assert.Equal(t, held, k.bytes)
			assert.LessOrEqual(t, len(k.index), most)
			assert.LessOrEqual(t, k.bytes, mostBytes)
			assert.LessOrEqual(t, len(k.slots), most+2)
		}
	})
}

// A step that passes over many keys does not make the machine forget others.
func TestPassingStepsAreNotRemembered(t *testing.T) {
	d := newDesk(t)
	d.submit(d.add("a", 1, "k"))
	for range 2 {
		d.reply(d.execute)
	}
	known := d.m.Counters().Known
	for _, key := range []string{"k", "l"} {
		s := d.add("p", 0, key)
		s.Expiry, s.Passing = true, true
		d.submit(s)
		d.reply(d.execute)
	}
	assert.Equal(t, known, d.m.Counters().Known)
	assert.Equal(t, []string{"a", "p", "p"}, d.took())
}

func without(keys []keyID, one keyID) (rest []keyID) {
	for _, key := range keys {
		if key != one {
			rest = append(rest, key)
		}
	}
	return rest
}

// A flight's change of a key has the same effect as the changes of its steps one after the other.
func TestChangesAreMerged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		drawn := func(label string) []byte {
			return [][]byte{nil, {}, []byte("a"), []byte("bb")}[rapid.IntRange(0, 3).Draw(t, label)]
		}
		instant := func(label string) int64 {
			return []int64{10, 20, Never, KeepExpiry}[rapid.IntRange(0, 3).Draw(t, label)]
		}
		base := Value{Bytes: drawn("base"), Expires: Never}
		if base.Bytes != nil {
			base.Expires = []int64{5, Never}[rapid.IntRange(0, 1).Draw(t, "expires")]
		}
		f := &flight{base: []Value{base}, current: []Value{base}, parts: []Part{{Known: base.Bytes, Expires: KeepExpiry}}}
		want := base
		for range rapid.IntRange(1, 5).Draw(t, "steps") {
			c := Change{Op: Op(rapid.IntRange(0, 2).Draw(t, "op")), Bytes: drawn("bytes"), Expires: instant("instant")}
			if c.Op == Set && c.Bytes == nil {
				c.Bytes = []byte{}
			}
			f.apply(0, &c)
			want = afterChange(want, c.Op, c.Bytes, c.Expires)
			assert.Equal(t, want, f.current[0], "what the next step sees")
		}
		p := f.parts[0]
		got := afterChange(base, p.Op, p.Bytes, p.Expires)
		assert.Equal(t, want.Expires, got.Expires)
		assert.True(t, bytes.Equal(want.Bytes, got.Bytes) && (want.Bytes == nil) == (got.Bytes == nil), "%v %v", want, got)
	})
}

// afterChange returns a key's value after a server has made a change.
func afterChange(v Value, op Op, bytes []byte, expires int64) Value {
	switch {
	case op == Remove:
		return Value{Expires: Never}
	case op == Keep:
		return v
	case expires == KeepExpiry:
		return Value{Bytes: bytes, Expires: v.Expires} // Never, if the key did not exist
	}
	return Value{Bytes: bytes, Expires: expires}
}

// The breaker of a primary opens after failures, refuses at once, and closes with the first reply.
func TestBreaker(t *testing.T) {
	d := newDesk(t)
	d.refuse = true
	var told []bool
	d.m.OnBreaker(func(_ Primary, open bool) { told = append(told, open) })
	d.submit(d.add("a", 1, "k"))
	d.advance(90 * ms)
	assert.Equal(t, []string{"a: " + ErrDown.Error()}, d.took(), "before its deadline")
	d.submit(d.add("b", 1, "k"))
	assert.Equal(t, []string{"b: " + ErrDown.Error()}, d.took(), "at once")
	d.refuse = false
	d.advance(200 * ms)
	assert.Equal(t, []bool{true, false}, told)
	d.submit(d.add("c", 1, "k"))
	d.reply(d.execute)
	d.reply(d.execute)
	assert.Equal(t, []string{"c"}, d.took())
}

// A process that has lost twice takes the turn, and gives it back when it has won. A process that
// sees another's turn lets the key rest.
func TestTurns(t *testing.T) {
	d := newDesk(t)
	d.submit(d.add("a", 1, "k"))
	d.reply(d.execute)
	for i := range 2 {
		d.keys["k"] = fmt.Sprint(10 * i) // another was faster
		d.reply(d.execute)
	}
	assert.Equal(t, []string{"write k 10>11 +take k"}, d.sent())
	d.reply(d.execute)
	assert.Equal(t, []string{"turn +give k"}, d.sent())
	d.reply(d.execute)
	d.submit(d.add("b", 1, "k"))
	d.submit(d.add("c", 1, "k"))
	d.reply(d.execute)
	assert.Equal(t, []string{"write k 12>13 +look k"}, d.sent())
	d.reply(func(b *Batch) {
		d.execute(b)
		b.Requests[0].Reply.Holder, b.Requests[0].Reply.Span = 8, 5*ms
	})
	d.submit(d.add("d", 1, "k"))
	d.advance(5*ms - 1)
	assert.Empty(t, d.out)
	d.advance(5*ms/4 + 1)
	assert.Equal(t, []string{"write k 13>14 +look k"}, d.sent(), "another process has written the key")
}

// A turn key may contain anything, so a turn may have any length. A process waits for at most a
// quarter of the timeout, and less each time.
func TestRestsAreBounded(t *testing.T) {
	d := newDesk(t)
	d.submit(d.add("a", 1, "k"))
	d.reply(d.execute)
	for times := range int64(3) {
		most := 25 * ms / (times + 1)
		d.out[0].Requests[0].Turn.Op = LookTurn
		d.reply(func(b *Batch) {
			d.lose(b)
			b.Requests[0].Reply.Holder, b.Requests[0].Reply.Span = 8, 1e15
		})
		assert.Empty(t, d.out)
		d.advance(most * 5 / 4)
		require.NotEmpty(t, d.out, most)
	}
}

// lose answers writes as if another process were always faster.
func (d *desk) lose(b *Batch) {
	d.losses++
	d.keys["k"] = fmt.Sprint(1000 + d.losses)
	d.execute(b)
}

// A step is tried until its deadline, however often others are faster. It then ends with an error that
// says so. It ends before a try whose reply would come too late, so that it certainly was not counted.
func TestContendedSteps(t *testing.T) {
	d := newDesk(t)
	d.submit(d.add("a", 1, "k"))
	d.advance(ms)
	d.reply(d.execute)
	d.submit(d.add("b", 1, "k"))
	begin := d.now
	for tries := 0; len(d.ended) < 2; tries++ {
		require.Less(t, tries, 200)
		if len(d.out) == 0 {
			d.advance(ms)
			continue
		}
		d.advance(ms)
		d.reply(d.lose)
	}
	assert.Greater(t, d.now-begin, 90*ms)
	assert.LessOrEqual(t, d.now-begin, 102*ms, "a tick after its deadline")
	c := d.m.Counters()
	assert.Equal(t, int64(2), c.Contended, "a and b")
	assert.Zero(t, c.Unsure)
	assert.Zero(t, c.Down)
	assert.Zero(t, c.Waiting)
}

// Without a deadline, the tries are bounded.
func TestContendedStepsWithoutDeadline(t *testing.T) {
	d := newDesk(t)
	s := d.add("a", 1, "k")
	s.Deadline = 0
	d.submit(s)
	d.reply(d.execute)
	for len(d.ended) == 0 {
		for len(d.out) == 0 {
			d.advance(ms)
		}
		d.reply(d.lose)
	}
	assert.Equal(t, []string{"a: " + ErrContended.Error()}, d.took())
	assert.Equal(t, int64(maxTries), d.m.Counters().MostTries)
}
