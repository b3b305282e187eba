package combine

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const ms = int64(time.Millisecond)

// still is a topology of one primary whose clock is the process's clock.
type still struct{ primary Primary }

func (s *still) Primary(string) Primary { return s.primary }
func (s *still) Offset(Primary) int64   { return 0 }

// desk is a machine whose batches a test answers by hand, with a backend that can answer them.
type desk struct {
	t     *testing.T
	m     *Machine
	where *still
	now   int64
	keys  map[string]string
	out   []*Batch
	ended []string

	losses int  // of lose
	refuse bool // connections cannot be opened
}

func newDesk(t *testing.T) *desk {
	d := &desk{t: t, where: &still{}, now: 1000 * ms, keys: map[string]string{}}
	d.m = New(Config{Topology: d.where, Self: 7, Known: 100, KnownBytes: 1 << 20, Connections: 2, Timeout: 100 * ms})
	return d
}

// add returns a step that adds to the numbers in keys.
func (d *desk) add(name string, by int64, keys ...string) *Step {
	return &Step{Keys: keys, Deadline: d.now + 100*ms,
		Run: func(now int64, values []Value, changes []Change) error {
			for i, v := range values {
				n, _ := strconv.ParseInt(string(v.Bytes), 10, 64)
				if by != 0 {
					changes[i] = Change{Op: Set, Bytes: strconv.AppendInt(nil, n+by, 10), Expires: Never}
				}
			}
			return nil
		},
		Done: d.done(name),
	}
}

func (d *desk) done(name string) func(any, error) {
	return func(reply any, err error) {
		switch {
		case err != nil:
			name += ": " + err.Error()
		case reply != nil:
			name += fmt.Sprint(": ", reply)
		}
		d.ended = append(d.ended, name)
	}
}

func (d *desk) submit(steps ...*Step) {
	for _, s := range steps {
		d.m.Submit(d.now, s)
	}
	d.collect()
}

func (d *desk) advance(by int64) {
	for end := d.now + by; d.now < end; {
		d.now = min(end, max(d.now, d.m.Wake()))
		d.m.Advance(d.now)
		d.collect()
	}
}

// collect takes the batches that the machine sends. Connections are opened at once.
func (d *desk) collect() {
	for b := d.m.Next(d.now); b != nil; b = d.m.Next(d.now) {
		if b.Connect {
			b.Failed = d.refuse
			d.m.Finish(d.now, b)
			continue
		}
		d.out = append(d.out, b)
	}
}

// sent describes the requests of the first batch under way.
func (d *desk) sent() (lines []string) {
	require.NotEmpty(d.t, d.out)
	for _, r := range d.out[0].Requests {
		line := [...]string{"read", "write", "add", "command", "turn"}[r.Kind]
		for _, p := range r.Parts {
			line += " " + p.Key
			if r.Kind == Write {
				line += fmt.Sprintf(" %s>%s", orNone(p.Known), orNone(p.Bytes))
			}
		}
		for _, word := range r.Command {
			line += " " + string(word)
		}
		line += [...]string{"", " +take ", " +look ", " +give "}[r.Turn.Op] + r.Turn.Key
		lines = append(lines, line)
	}
	return lines
}

func orNone(b []byte) string {
	if b == nil {
		return "-"
	}
	return string(b)
}

// reply gives the first batch under way back, after edit.
func (d *desk) reply(edit func(b *Batch)) {
	b := d.out[0]
	d.out = d.out[1:]
	edit(b)
	d.m.Finish(d.now, b)
	d.collect()
}

// execute answers a batch as a backend does.
func (d *desk) execute(b *Batch) {
	for _, r := range b.Requests {
		r.Reply = Reply{Status: Done, Raw: any("OK")}
		for i := range r.Parts {
			p := &r.Parts[i]
			p.Value = d.value(p.Key)
			if r.Kind == Write && !p.holdsKnown() {
				r.Reply.Status = Conflict
			}
		}
		for _, p := range r.Parts {
			switch {
			case r.Kind == Add:
				v := p.Value
				for _, a := range r.Adds {
					v = a.Apply(r.Now, v)
				}
				d.keys[p.Key] = string(v.Bytes)
			case r.Kind != Write || r.Reply.Status != Done:
			case p.Op == Set:
				d.keys[p.Key] = string(p.Bytes)
			case p.Op == Remove:
				delete(d.keys, p.Key)
			}
		}
	}
}

func (d *desk) value(key string) Value {
	if v, ok := d.keys[key]; ok {
		return Value{Bytes: []byte(v), Expires: Never}
	}
	return Value{Expires: Never}
}

// allReply sets the reply to all requests of a batch.
func allReply(status Status) func(b *Batch) {
	return func(b *Batch) {
		b.Failed = status == Unsent || status == Unknown
		for _, r := range b.Requests {
			r.Reply = Reply{Status: status, Error: "OOM"}
		}
	}
}

func (d *desk) took() []string {
	ended := d.ended
	d.ended = nil
	return ended
}

func TestUnknownKeyTakesTwoRoundTrips(t *testing.T) {
	d := newDesk(t)
	d.submit(d.add("a", 1, "k"))
	assert.Equal(t, []string{"read k"}, d.sent())
	d.reply(d.execute)
	assert.Equal(t, []string{"write k ->1"}, d.sent())
	d.reply(d.execute)
	assert.Equal(t, []string{"a"}, d.took())
	d.submit(d.add("b", 1, "k"))
	assert.Equal(t, []string{"write k 1>2"}, d.sent(), "the value is known")
	d.reply(d.execute)
	assert.Equal(t, []string{"b"}, d.took())
	assert.Equal(t, "2", d.keys["k"])
}

func TestWaitingStepsAreCombinedInOrder(t *testing.T) {
	d := newDesk(t)
	d.submit(d.add("a", 1, "k"))
	d.submit(d.add("b", 1, "k"), d.add("c", 1, "k"))
	d.reply(d.execute)
	assert.Equal(t, []string{"write k ->3"}, d.sent(), "what came while the key was read joins the flight")
	d.submit(d.add("d", 1, "k"))
	require.Len(t, d.out, 1, "one write of a key is under way at a time")
	d.reply(d.execute)
	assert.Equal(t, []string{"a", "b", "c"}, d.took())
	assert.Equal(t, []string{"write k 3>4 +look k"}, d.sent())
}

func TestConflictIsComputedAgain(t *testing.T) {
	d := newDesk(t)
	d.submit(d.add("a", 1, "k"))
	d.reply(d.execute)
	d.keys["k"] = "1" // another process writes the same value
	d.reply(d.execute)
	assert.Empty(t, d.took(), "the write was not done")
	assert.Equal(t, []string{"write k 1>2 +look k"}, d.sent())
	d.reply(d.execute)
	assert.Equal(t, []string{"a"}, d.took())
	assert.Equal(t, int64(1), d.m.Counters().Conflicts)
}

func TestStepWithoutChangeIsJudgedByWhatIsThere(t *testing.T) {
	d := newDesk(t)
	d.submit(d.add("a", 1, "k"))
	d.reply(d.execute)
	d.reply(d.execute)
	d.submit(d.add("peek", 0, "k"))
	assert.Equal(t, []string{"read k"}, d.sent(), "a known value may be wrong")
	d.reply(d.execute)
	assert.Equal(t, []string{"a", "peek"}, d.took())
	d.submit(d.add("peek", 0, "k"), d.add("b", 1, "k"), d.add("peek", 0, "k"))
	assert.Equal(t, []string{"write k 1>2"}, d.sent(), "the write shows that the value was right")
}

func TestUnknownOutcomeIsNotSentAgain(t *testing.T) {
	d := newDesk(t)
	d.submit(d.add("a", 1, "k"))
	d.reply(allReply(Unknown))
	assert.Empty(t, d.took(), "a read may be sent again")
	d.advance(20 * ms)
	d.reply(d.execute)
	d.reply(func(b *Batch) { d.execute(b); allReply(Unknown)(b) })
	assert.Equal(t, []string{"a: " + ErrUnavailable.Error()}, d.took())
	d.submit(d.add("b", 1, "k"))
	d.advance(20 * ms)
	assert.Equal(t, []string{"read k"}, d.sent(), "what was known is forgotten")
}

func TestNotDoneIsSentAgain(t *testing.T) {
	for _, status := range []Status{Unsent, Redirected, Later} {
		d := newDesk(t)
		d.submit(d.add("a", 1, "k"))
		d.reply(d.execute)
		d.reply(allReply(status))
		d.submit(d.add("b", 1, "k"))
		d.advance(30 * ms)
		d.reply(d.execute)
		if status == Redirected {
			d.reply(d.execute)
		}
		assert.Equal(t, []string{"a", "b"}, d.took(), status)
		assert.Equal(t, "2", d.keys["k"])
	}
}

func TestRefusedIsTheBackendsWords(t *testing.T) {
	d := newDesk(t)
	d.submit(d.add("a", 1, "k"))
	d.reply(d.execute)
	d.reply(allReply(Refused))
	assert.Equal(t, []string{"a: OOM"}, d.took())
	assert.Empty(t, d.m.queues)
}

func TestDeadlines(t *testing.T) {
	d := newDesk(t)
	d.submit(d.add("a", 1, "k"))
	d.submit(d.add("b", 1, "k"))
	d.reply(d.execute)
	d.submit(d.add("c", 1, "k"))
	d.advance(103 * ms)
	unsure, down := ErrUnavailable.Error(), ErrDown.Error()
	assert.ElementsMatch(t, []string{"a: " + unsure, "b: " + unsure, "c: " + down}, d.took(), "c was not sent")
	d.reply(d.execute)
	assert.Empty(t, d.out)
	assert.Empty(t, d.m.queues)
	d.submit(d.add("d", 1, "k"))
	assert.Equal(t, []string{"write k 2>3"}, d.sent(), "the late reply says what the key holds")
}

func TestStepsOnSeveralKeys(t *testing.T) {
	d := newDesk(t)
	d.submit(d.add("a", 1, "x"))
	d.submit(d.add("ab", 1, "x", "y"), d.add("c", 1, "y"), d.add("d", 1, "z"))
	assert.Equal(t, []string{"read x"}, d.sent())
	d.reply(d.execute) // x
	assert.Equal(t, []string{"read z"}, d.sent(), "y waits behind a step that waits for x")
	d.reply(d.execute) // z
	assert.Equal(t, []string{"write x ->1"}, d.sent())
	d.reply(d.execute)
	assert.Equal(t, []string{"a"}, d.took())
	for len(d.out) > 0 {
		d.reply(d.execute)
	}
	assert.ElementsMatch(t, []string{"ab", "c", "d"}, d.took())
	assert.Equal(t, map[string]string{"x": "2", "y": "2", "z": "1"}, d.keys)
	assert.Empty(t, d.m.queues)
}

func TestCommands(t *testing.T) {
	d := newDesk(t)
	get := func() *Step {
		return &Step{Keys: []string{"k"}, Raw: [][]byte{[]byte("GET")}, ReadOnly: true, Done: d.done("get")}
	}
	set := &Step{Keys: []string{"k"}, Raw: [][]byte{[]byte("SET")}, Done: d.done("set"),
		Learn: func(any) ([]byte, bool) { return []byte("5"), true }}
	d.submit(set)
	d.submit(get(), get(), d.add("a", 1, "k"))
	assert.Equal(t, []string{"command SET"}, d.sent())
	d.reply(d.execute)
	assert.Equal(t, []string{"command GET", "command GET"}, d.sent())
	d.keys["k"] = "5"
	d.reply(d.execute)
	assert.Equal(t, []string{"write k 5>6 +look k"}, d.sent())
	d.reply(d.execute)
	assert.Equal(t, []string{"set: OK", "get: OK", "get: OK", "a"}, d.took())
}

func TestClose(t *testing.T) {
	d := newDesk(t)
	d.submit(d.add("a", 1, "x"), d.add("b", 1, "y"))
	d.reply(d.execute)
	d.submit(d.add("c", 1, "x"), d.add("d", 1, "x", "y"))
	d.m.Close()
	down := ": " + ErrDown.Error()
	assert.ElementsMatch(t, []string{"c" + down, "d" + down}, d.took())
	d.reply(d.execute)
	assert.Equal(t, []string{"a", "b"}, d.took(), "they were under way")
	d.submit(d.add("e", 1, "x"))
	assert.Equal(t, []string{"e" + down}, d.took())
	assert.Empty(t, d.out)
}

func TestErrorOfStepIsJudgedByWhatIsThere(t *testing.T) {
	d := newDesk(t)
	d.submit(&Step{Keys: []string{"k"}, Done: d.done("a"),
		Run: func(int64, []Value, []Change) error { return errors.New("not an integer") }})
	d.reply(d.execute)
	assert.Equal(t, []string{"a: not an integer"}, d.took())
}
