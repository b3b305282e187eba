package combine

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
)

// upTo adds to a key as long as the sum does not exceed 20.
type upTo int

func (n upTo) Fits(with Adding, _ int64) bool { return with != nil }

func (n upTo) Apply(_ int64, v Value) Value {
	if held, _ := strconv.Atoi(string(v.Bytes)); held+int(n) <= 20 {
		return Value{Bytes: strconv.AppendInt(nil, int64(held+int(n)), 10), Expires: Never}
	}
	return v
}

// adding returns a step that the backend can make. It sets told to its result.
func (d *desk) adding(name string, n upTo, told *string) *Step {
	s := d.add(name, int64(n), "k")
	s.Adds = n
	s.Run = func(now int64, values []Value, changes []Change) error {
		if *told = "no"; string(n.Apply(now, values[0]).Bytes) != string(values[0].Bytes) {
			*told = "yes"
			changes[0] = Change{Op: Set, Bytes: n.Apply(now, values[0]).Bytes, Expires: Never}
		}
		return nil
	}
	return s
}

// The backend makes the steps of a key that is unknown or that another process has written. All other steps
// are compared and set.
func TestBackendMakesTheSteps(t *testing.T) {
	d := newDesk(t)
	var told [4]string
	d.submit(d.adding("a", 1, &told[0]))
	assert.Equal(t, []string{"add k"}, d.sent(), "it is not known")
	d.reply(d.execute)
	d.submit(d.adding("b", 1, &told[0]))
	assert.Equal(t, []string{"write k 1>2"}, d.sent(), "no other process has written it")
	d.keys["k"] = "16"
	d.reply(d.execute)
	d.submit(d.adding("c", 2, &told[1]), d.adding("d", 2, &told[2]), d.adding("e", 1, &told[3]))
	assert.Equal(t, []string{"add k +look k"}, d.sent(), "at the first conflict")
	d.reply(d.execute)
	assert.Equal(t, "17", d.keys["k"])
	d.keys["k"] = "18"
	d.reply(d.execute)
	assert.Equal(t, [4]string{"yes", "yes", "no", "no"}, told, "what was left")
	assert.Equal(t, "20", d.keys["k"])
	assert.Equal(t, []string{"a", "b", "c", "d", "e"}, d.took())
	d.keys["k"] = "10"
	for _, name := range []string{"f", "g"} {
		d.submit(d.adding(name, 1, &told[0]))
		assert.Equal(t, []string{"add k"}, d.sent(), "the turn was looked at just now")
		d.reply(d.execute)
	}
	d.submit(d.adding("h", 1, &told[0]))
	assert.Equal(t, []string{"write k 12>13"}, d.sent(), "it held what this process had written")
	d.reply(d.execute)
	assert.EqualValues(t, 7, d.m.Counters().Scripted)
	assert.EqualValues(t, 1, d.m.Counters().Conflicts)
}

// A key that this process has not looked at for a second is compared and set, although another process has written it,
// unless two tries are lost, or the backend is so far away that there would be no time for a third.
func TestRarelyUsedKeysAreComparedAndSet(t *testing.T) {
	d := newDesk(t)
	var told string
	d.keys["k"] = "7"
	d.submit(d.adding("a", 1, &told))
	assert.Equal(t, []string{"add k"}, d.sent(), "it is not known")
	d.reply(d.execute)
	d.advance(999 * ms)
	d.keys["k"] = "9"
	d.submit(d.adding("b", 1, &told))
	assert.Equal(t, []string{"add k"}, d.sent(), "it was used a moment ago")
	d.reply(d.execute)
	d.advance(1000 * ms)
	d.keys["k"] = "11"
	d.submit(d.adding("c", 1, &told))
	assert.Equal(t, []string{"write k 10>11"}, d.sent())
	d.submit(d.add("d", 1, "k"))
	d.reply(d.execute)
	assert.Equal(t, []string{"write k 11>12"}, d.sent(), "without the other step, which the backend cannot make")
	d.reply(d.execute)
	assert.Equal(t, []string{"a", "b", "c"}, d.took())
	d.reply(d.execute)
	assert.Equal(t, []string{"d"}, d.took())
	d.advance(1000 * ms)
	d.submit(d.adding("e", 1, &told))
	for _, value := range []string{"14", "15"} {
		d.sent()
		d.keys["k"] = value
		d.reply(d.execute)
	}
	assert.Equal(t, []string{"add k +look k"}, d.sent(), "others write it again and again")
	d.advance(d.m.config.Timeout / 4)
	d.reply(d.execute)
	assert.Equal(t, []string{"e"}, d.took())
	d.advance(1000 * ms)
	d.keys["k"] = "17"
	d.submit(d.adding("f", 1, &told))
	assert.Equal(t, []string{"add k"}, d.sent(), "the backend is far away")
}

// A step that ends while the backend makes it counts as made for the steps behind it.
func TestBackendMakesStepsThatHaveEnded(t *testing.T) {
	d := newDesk(t)
	var told [2]string
	d.keys["k"] = "19"
	first, second := d.adding("a", 1, &told[0]), d.adding("b", 1, &told[1])
	first.Deadline, second.Deadline = d.now+10*ms, d.now+1000*ms
	d.submit(first, second)
	d.advance(20 * ms)
	assert.Equal(t, []string{"a: " + ErrUnavailable.Error()}, d.took())
	d.reply(d.execute)
	assert.Equal(t, []string{"b"}, d.took())
	assert.Equal(t, "no", told[1])
}

// Steps that the backend cannot make on a value are compared and set, and so are steps that it is
// not asked to make.
func TestBackendRefusesSteps(t *testing.T) {
	d := newDesk(t)
	var told string
	d.keys["k"] = "7"
	d.submit(d.adding("a", 1, &told))
	d.reply(func(b *Batch) {
		b.Requests[0].Reply = Reply{Status: Conflict}
		b.Requests[0].Parts[0].Value = d.value("k")
	})
	assert.Equal(t, []string{"write k 7>8 +look k"}, d.sent())
	d.reply(d.execute)
	assert.Equal(t, []string{"a"}, d.took())
	d.submit(d.adding("b", 1, &told), d.add("c", 1, "k"), d.adding("d", 1, &told))
	assert.Equal(t, []string{"add k +look k"}, d.sent(), "a step that does not fit waits")
	d.reply(d.execute)
	assert.Equal(t, []string{"b"}, d.took())
	assert.Equal(t, []string{"write k 9>11 +look k"}, d.sent(), "and takes those behind it along")
	d.reply(allReply(Unknown))
	assert.Equal(t, []string{"c: " + ErrUnavailable.Error(), "d: " + ErrUnavailable.Error()}, d.took())
	d.advance(10 * ms)
	d.submit(d.adding("e", 1, &told))
	assert.Equal(t, []string{"add k"}, d.sent(), "it is not known what the key holds")
	d.reply(allReply(Unknown))
	assert.Equal(t, []string{"e: " + ErrUnavailable.Error()}, d.took(), "it may have been made")
}

// The backend does not make steps while another process has the turn. They wait, but not for ever: anything may be in a
// turn key.
func TestBackendMakesNoStepsInAnothersTurn(t *testing.T) {
	d := newDesk(t)
	var told string
	d.keys["k"] = "7"
	d.submit(d.adding("a", 1, &told))
	d.reply(d.execute)
	assert.Equal(t, []string{"a"}, d.took())
	d.submit(d.adding("b", 1, &told))
	began, looks := d.now, 0
	for ; d.sent()[0] == "add k +look k"; looks++ {
		d.reply(func(b *Batch) {
			b.Requests[0].Reply = Reply{Status: Held, Holder: 77, Span: turnExtra + 4*ms}
		})
		for len(d.out) == 0 {
			d.advance(ms)
		}
	}
	assert.Equal(t, []string{"add k"}, d.sent())
	assert.GreaterOrEqual(t, d.now-began, d.m.config.Timeout/4)
	d.reply(d.execute)
	assert.Equal(t, []string{"b"}, d.took())
	assert.Equal(t, "9", d.keys["k"])
	assert.Greater(t, looks, 4)
	assert.Less(t, d.now-began, d.m.config.Timeout/2)
	assert.EqualValues(t, 2, d.m.Counters().Scripted)
}

// loseTries submits a step whose tries are lost, because another process writes its key, until it asks for the turn.
func loseTries(d *desk, s *Step) {
	var told string
	d.keys["k"] = "7"
	d.submit(d.adding("a", 1, &told))
	d.reply(d.execute)
	d.took()
	d.submit(s)
	for i := range lossesBeforeTurn {
		d.keys["k"] = string(rune('0' + i))
		d.reply(d.execute)
	}
}

// A turn is given back before steps on its key are sent, because the backend makes none while there is a turn.
func TestTurnsAreGivenBackFirst(t *testing.T) {
	d := newDesk(t)
	var told string
	loseTries(d, d.add("x", 1, "k"))
	d.submit(d.adding("b", 1, &told))
	d.reply(d.execute) // the turn is taken, and the write is done
	assert.Equal(t, []string{"x"}, d.took())
	assert.Equal(t, []string{"turn +give k", "add k +look k"}, d.sent())
}

// A turn is given back too if the step that has taken it ends without a write.
func TestTurnOfEndedStep(t *testing.T) {
	d := newDesk(t)
	var told string
	s := d.add("x", 1, "k")
	s.Tries = lossesBeforeTurn + 1
	loseTries(d, s)
	d.keys["k"] = "another"
	d.submit(d.adding("b", 1, &told))
	d.reply(d.execute) // the turn is taken, and the write is not done
	d.took()
	assert.Equal(t, []string{"turn +give k", "add k +look k"}, d.sent())
}
