package combine

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// set is a command that writes a value of a length.
func (d *desk) set(name, key string, length int) *Step {
	return &Step{Keys: []string{key}, Raw: [][]byte{[]byte("SET"), []byte(key), make([]byte, length)},
		Deadline: d.now + 100*ms, Done: d.done(name)}
}

// A large value is not remembered: all others would have to be forgotten for it.
func TestLargeValuesAreNotRemembered(t *testing.T) {
	k := newKnownValues(1000, 1<<20)
	for i := range 100 {
		k.put(keyID{0, fmt.Sprint(i)}, []byte("v"), Never, 0)
	}
	k.put(keyID{0, "5"}, make([]byte, 2<<20), Never, 0)
	_, _, known := k.get(keyID{0, "5"})
	assert.False(t, known)
	assert.Len(t, k.index, 99)
}

// The commands that wait are bounded in bytes. A single command may have more.
func TestWaitingCommandsAreBoundedInBytes(t *testing.T) {
	d := newDesk(t)
	large := make([]byte, maxWaitingBytes/4)
	for i := range 6 {
		s := d.set(fmt.Sprint(i), "k", 0)
		s.Raw[2] = large
		d.m.Submit(d.now, s)
	}
	assert.Len(t, d.took(), 3, "the words of a command count, too")
	d.advance(200 * ms)
	assert.Len(t, d.took(), 3)
	assert.Zero(t, d.m.Counters().WaitingBytes)
	s := d.set("alone", "k", 0)
	s.Raw[2] = slices.Repeat(large[:1], maxWaitingBytes+1)
	d.m.Submit(d.now, s)
	assert.Empty(t, d.took())
}

// A batch is bounded in bytes, and a long command has a batch to itself.
func TestBatchesAreBoundedInBytes(t *testing.T) {
	d := newDesk(t)
	d.m.Submit(d.now, d.add("a", 1, "a"))
	d.m.Submit(d.now, d.set("b", "b", 2*maxBatchBytes))
	for i := range 4 {
		d.m.Submit(d.now, d.set("c", fmt.Sprint(i), maxBatchBytes/2-100))
	}
	var sizes []int
	for d.collect(); len(d.out) > 0; {
		sizes = append(sizes, len(d.out[0].Requests))
		d.reply(allReply(Done))
		if len(sizes) == 4 {
			break
		}
	}
	slices.Sort(sizes)
	assert.Equal(t, []int{1, 1, 2, 3}, sizes, "a; b; c and c; c, c and the write of a")
}

// The steps of a flight run on a bounded number of bytes, because the machine is locked meanwhile.
// Other steps wait for the next flight, in order.
func TestStepsOnLargeValuesAreNotAllCombined(t *testing.T) {
	d := newDesk(t)
	d.keys["k"] = string(bytes.Repeat([]byte("0"), maxRunBytes/10))
	ran := 0
	appends := func(name string) *Step {
		return &Step{Keys: []string{"k"}, Done: d.done(name), Deadline: d.now + 100*ms,
			Run: func(_ int64, values []Value, changes []Change) error {
				ran++
				changes[0] = Change{Op: Set, Bytes: append(bytes.Clone(values[0].Bytes), name...), Expires: Never}
				return nil
			}}
	}
	for i := range 25 {
		d.m.Submit(d.now, appends(string(rune('a'+i))))
	}
	d.collect()
	d.reply(d.execute) // the value is read, and some steps run
	for flights := 1; ran < 25; flights++ {
		require.LessOrEqual(t, ran, 10*flights)
		require.LessOrEqual(t, flights, 4)
		d.reply(d.execute)
		for len(d.out) > 0 && ran < 25 && d.out[0].Requests[0].Kind == Read {
			d.reply(d.execute)
		}
	}
	for len(d.out) > 0 {
		d.reply(d.execute)
	}
	assert.Equal(t, "abcdefghijklmnopqrstuvwxy", d.keys["k"][maxRunBytes/10:])
	assert.Len(t, d.took(), 25)
	assert.Zero(t, d.m.Counters().Waiting)
}

// Finding the keys of a step in a flight takes no search, whatever their number and order.
func TestStepsOfManyKeys(t *testing.T) {
	d := newDesk(t)
	var names []string
	for i := range 300 {
		names = append(names, fmt.Sprint(i))
	}
	d.m.Submit(d.now, d.add("a", 1, "299"))
	d.m.Submit(d.now, d.add("b", 10, names...))
	for d.collect(); len(d.out) > 0; {
		d.reply(d.execute)
	}
	assert.Equal(t, []string{"a", "b"}, d.took())
	assert.Equal(t, "11", d.keys["299"])
	for _, name := range names[:299] {
		require.Equal(t, "10", d.keys[name])
	}
}
