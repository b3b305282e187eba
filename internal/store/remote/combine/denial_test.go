package combine

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
)

// newDenyingDesk returns a desk whose machine denies by values of an age of up to 10 ms. It knows that
// the key k has the value 3.
func newDenyingDesk(t *testing.T) *desk {
	d := newDesk(t)
	d.m.config.DenialAge = 10 * ms
	d.keys["k"] = "3"
	d.submit(d.take("first"))
	d.reply(d.execute)
	assert.Equal(t, []string{"first"}, d.took())
	assert.Zero(t, d.m.Counters().Denials)
	return d
}

// take returns a step on k that adds 1, up to 3, and says that its caller is denied beyond that.
func (d *desk) take(name string) *Step {
	s := d.add(name, 1, "k")
	add := s.Run
	s.Deniable = true
	s.Run = func(now int64, values []Value, changes []Change) error {
		if n, _ := strconv.Atoi(string(values[0].Bytes)); n >= 3 {
			changes[0].Denied = true
			return nil
		}
		return add(now, values, changes)
	}
	return s
}

func TestKnownValuesDeny(t *testing.T) {
	d := newDenyingDesk(t)
	delete(d.keys, "k")
	d.advance(10 * ms)
	d.submit(d.take("a"), d.take("b"))
	assert.Equal(t, []string{"a", "b"}, d.took(), "at once")
	assert.Empty(t, d.out)
	assert.Equal(t, int64(2), d.m.Counters().Denials)
	d.advance(1)
	d.submit(d.take("c"))
	assert.Equal(t, []string{"read k"}, d.sent(), "the value is too old")
	d.reply(d.execute)
	d.reply(d.execute)
	assert.Equal(t, []string{"c"}, d.took())
	assert.Equal(t, "1", d.keys["k"], "it was admitted")
}

// The age of a value counts from when the request was sent, because the server may have answered then.
func TestAgeOfKnownValue(t *testing.T) {
	d := newDenyingDesk(t)
	d.advance(11 * ms)
	d.submit(d.take("a"))
	d.advance(6 * ms)
	d.reply(d.execute)
	d.advance(4 * ms)
	d.submit(d.take("b"))
	assert.Equal(t, []string{"a", "b"}, d.took())
	d.advance(1)
	d.submit(d.take("c"))
	assert.Equal(t, []string{"read k"}, d.sent())
}

// Values that this process has written deny too.
func TestOwnWritesDeny(t *testing.T) {
	d := newDesk(t)
	d.m.config.DenialAge = 10 * ms
	d.submit(d.take("a"), d.take("b"), d.take("c"))
	d.reply(d.execute)
	d.reply(d.execute)
	d.submit(d.take("d"))
	assert.Equal(t, []string{"a", "b", "c", "d"}, d.took())
	assert.Empty(t, d.out)
}

func TestWhatKnownValuesDoNotDeny(t *testing.T) {
	for name, prepare := range map[string]func(d *desk, s *Step){
		"an admission": func(d *desk, _ *Step) {
			d.keys["k"] = "2"
			d.advance(11 * ms)
			d.submit(d.add("peek", 0, "k"))
			d.reply(d.execute)
		},
		"what waits for another step": func(d *desk, _ *Step) { d.submit(d.add("refund", -1, "k")) },
		"another kind of step":        func(_ *desk, s *Step) { s.Deniable = false },
		"anything by default":         func(d *desk, _ *Step) { d.m.config.DenialAge = 0 },
		"unknown keys":                func(d *desk, _ *Step) { d.m.known.forget(keyID{0, "k"}) },
		"keys of a new primary":       func(d *desk, _ *Step) { d.where.primary = 1 },
		"changes": func(_ *desk, s *Step) {
			s.Run = func(_ int64, _ []Value, changes []Change) error {
				changes[0] = Change{Op: Remove, Denied: true}
				return nil
			}
		},
		"errors": func(_ *desk, s *Step) {
			s.Run = func(_ int64, _ []Value, changes []Change) error {
				changes[0].Denied = true
				return assert.AnError
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDenyingDesk(t)
			s := d.take("a")
			prepare(d, s)
			d.took()
			d.submit(s)
			assert.Empty(t, d.took())
			assert.NotEmpty(t, d.out)
			assert.Zero(t, d.m.Counters().Denials)
		})
	}
}
