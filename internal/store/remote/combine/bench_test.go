package combine

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
)

// rounds returns a function that submits steps on so many keys, and sends everything that the
// machine wants to send to a backend that agrees.
func rounds(keys, stepsOfEach int) (*Machine, func()) {
	m := New(Config{Topology: &still{}, Self: 7, Known: 1000, KnownBytes: 1 << 20, Connections: 1, Timeout: 100 * ms})
	value, now := []byte("1"), 1000*ms
	var steps []*Step
	for i := range keys * stepsOfEach {
		steps = append(steps, &Step{Keys: []string{strconv.Itoa(i % keys)}, Done: func(any, error) {},
			Run: func(_ int64, _ []Value, changes []Change) error {
				changes[0] = Change{Op: Set, Bytes: value, Expires: Never}
				return nil
			}})
	}
	return m, func() {
		now += ms
		for _, s := range steps {
			s.Deadline = now + 100*ms
			m.Submit(now, s)
		}
		for b := m.Next(now); b != nil; b = m.Next(now) {
			for _, r := range b.Requests {
				r.Reply.Status = Done
			}
			m.Finish(now, b)
		}
		m.Advance(now)
	}
}

func TestMachineDoesNotAllocate(t *testing.T) {
	for _, c := range []struct{ keys, steps int }{{1, 1}, {100, 1}, {1, 100}} {
		m, round := rounds(c.keys, c.steps)
		for range 100 {
			round()
		}
		assert.Zero(t, testing.AllocsPerRun(100, round), "%d keys, %d steps of each", c.keys, c.steps)
		assert.Zero(t, m.Counters().Waiting)
	}
}

func BenchmarkSteps(b *testing.B) {
	for _, c := range []struct {
		name        string
		keys, steps int
	}{{"of 100 keys", 100, 1}, {"of a hot key", 1, 100}} {
		b.Run(c.name, func(b *testing.B) {
			_, round := rounds(c.keys, c.steps)
			for b.Loop() {
				round()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100, "ns/step")
		})
	}
}
