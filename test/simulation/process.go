package simulation

import (
	"encoding/binary"
	"fmt"
	"slices"

	"cellserver/internal/store/remote/combine"
)

// process is a cellserver: a machine, its connections, and its callers.
type process struct {
	w       *world
	number  int
	machine *combine.Machine
	table   []combine.Primary // by slot, as this process knows it
	offsets []int64           // by primary, 0 if none has been measured
	conns   map[connID]*conn
	delay   int64 // to a server, one way
	dark    map[*node]int64
	wakeAt  int64
	stopped bool
	taking  *taking // nil if it takes nothing ahead
}

// began is the monotonic time of a process minus the true time.
const began = int64(5e9)

func (w *world) addProcess(number int) {
	p := &process{w: w, number: number, conns: map[connID]*conn{},
		delay: 10*us + w.below(w.plan.Delay), dark: map[*node]int64{}, wakeAt: combine.Never}
	for i := range w.slots {
		p.table = append(p.table, w.slots[i].owner.id)
	}
	p.machine = combine.New(combine.Config{Topology: p, Self: w.random.Uint64() | 1, Known: w.plan.Known,
		KnownBytes: 1 << 20, Connections: 1 + number%3, Timeout: w.plan.Timeout, DenialAge: w.plan.DenialAge})
	w.processes = append(w.processes, p)
	if number < len(w.plan.Distances) {
		p.delay = w.plan.Distances[number]
	}
	if w.plan.Rate > 0 {
		w.after(w.exponential(w.plan.Rate), p.arrive)
	}
	if w.plan.Lease > 0 {
		p.startTaking()
	}
	for range w.plan.Callers {
		w.after(w.below(ms), p.call)
	}
	w.after(w.below(1000*ms), p.measure)
	w.after(w.below(50*ms), p.refresh)
}

func (p *process) Primary(key string) combine.Primary   { return p.table[slotOf(key)] }
func (p *process) Offset(primary combine.Primary) int64 { return p.offsets[primary] }

func (p *process) time() int64 { return p.w.now + began }

// measure measures the offsets of all clocks once a second.
func (p *process) measure() {
	for primary, offset := range p.offsets {
		if n := p.w.nodes[primary]; n.up && offset != 0 {
			p.offsets[primary] = p.measured(n)
		}
	}
	if !p.stopped {
		p.w.after(1000*ms, p.measure)
	}
}

// measured returns the offset of a clock as a process measures it, wrong by at most half a round
// trip and by the largest change that does not count.
func (p *process) measured(n *node) int64 {
	wrong := p.delay + p.w.plan.Wrong
	return n.offset - began + p.w.below(2*wrong+1) - wrong
}

// refresh learns the owners of the slots.
func (p *process) refresh() {
	for i := range p.w.slots {
		if p.w.chance(0.9) {
			p.table[i] = p.w.slots[i].owner.id
		}
	}
	if p.w.chance(p.w.plan.Unknown) && !p.w.calm {
		p.table[p.w.below(int64(len(p.table)))] = combine.NoPrimary
	}
	if !p.stopped {
		p.w.after(50*ms, p.refresh)
	}
}

// drive sends what the machine wants to send, and wakes the machine when it asks to be woken.
func (p *process) drive() {
	for b := p.machine.Next(p.time()); b != nil; b = p.machine.Next(p.time()) {
		p.send(b)
	}
	wake := p.machine.Wake()
	if wake >= p.wakeAt || wake == combine.Never {
		return
	}
	p.wakeAt = wake
	p.w.at(wake-began, func() {
		if p.wakeAt != wake {
			return
		}
		p.wakeAt = combine.Never
		p.machine.Advance(p.time())
		p.drive()
	})
}

// arrive submits a step, and the next step after a while.
func (p *process) arrive() {
	if p.stopped {
		return
	}
	rate := p.w.plan.Rate
	if p.w.calm {
		rate = max(rate, p.w.plan.CalmRate)
	}
	p.w.after(p.w.exponential(rate), p.arrive)
	if p.w.plan.Writes {
		p.submitWrite()
		return
	}
	key := p.pickKey()
	switch dice := p.w.below(100); {
	case dice < 60:
		p.submit("change", []string{key})
	case dice < 75:
		p.submit("peek", []string{key})
	case dice < 85:
		p.submit("change", p.neighbours(key))
	case dice < 88:
		p.submit("expiry", p.neighbours(key))
	case dice < 90:
		p.submit("tries", []string{key})
	case isLimit(key):
		p.submit("change", []string{key})
	case dice < 95:
		p.submitCommand("GET", key)
	default:
		p.submitCommand("APPEND", key)
	}
	p.drive()
}

// hottest is a list that does not expire.
const hottest = "0:3"

// submitWrite submits a step that always writes one key.
func (p *process) submitWrite() {
	w, key := p.w, hottest
	if !w.chance(w.plan.Hot) {
		key = fmt.Sprintf("%d:%d3", w.below(int64(w.plan.Slots)), w.below(int64(w.plan.Keys)))
	}
	p.submit("change", []string{key})
	p.drive()
}

// call is a caller that submits a step, and the next step when the first has ended.
func (p *process) call() {
	if !p.stopped {
		key := p.w.plan.CallKey
		if key == "" {
			key = hottest
		}
		p.submit("call", []string{key})
		p.drive()
	}
}

func (p *process) pickKey() string {
	w := p.w
	if p.number < w.plan.HotUsers && w.chance(w.plan.Hot) {
		return "0:" + [...]string{"0", "2"}[w.below(2)]
	}
	return fmt.Sprintf("%d:%d", w.below(int64(w.plan.Slots)), w.below(int64(w.plan.Keys)))
}

// neighbours returns a few keys of one slot.
func (p *process) neighbours(key string) []string {
	keys := []string{key}
	for range p.w.below(3) {
		other := fmt.Sprintf("%d:%d", slotOf(key), p.w.below(int64(p.w.plan.Keys)))
		if !slices.Contains(keys, other) {
			keys = append(keys, other)
		}
	}
	return keys
}

func (p *process) submit(kind string, keys []string) {
	w := p.w
	s := w.oracle.newStep(p, kind, keys)
	submitted := &combine.Step{
		Keys: keys, Deadline: s.deadline + began, Expiry: kind == "expiry", Deniable: s.isDeniable(),
		Run: func(now int64, values []combine.Value, changes []combine.Change) error {
			return p.run(s, now, values, changes)
		},
		Done: func(_ any, err error) {
			p.w.oracle.end(s, err)
			if kind == "call" {
				w.after(us+w.below(2*w.plan.Pause), p.call)
			}
		},
	}
	if kind != "call" && p.w.chance(0.2) {
		submitted.Absent = len(keys)
	}
	if s.isDeniable() {
		submitted.Adds = p.adding(s)
	}
	if kind == "tries" {
		submitted.Tries = 2
	}
	p.machine.Submit(p.time(), submitted)
}

// run computes a step: limits are GCRA, and lists get another version.
func (p *process) run(s *step, now int64, values []combine.Value, changes []combine.Change) error {
	o := p.w.oracle
	s.seen, s.changes, s.now = s.seen[:0], s.kind != "peek", now
	for i, key := range s.keys {
		v := o.lookup(values[i].Bytes)
		s.seen = append(s.seen, v)
		if v != nil && string(v.bytes[8:]) != key {
			p.w.violation("%s: step %d (%s) saw a value of another key", key, s.number, s.kind)
		}
		if isLimit(key) && max(tatOf(v)-now, 0)+emission > p.w.plan.burst()*emission {
			s.changes = false
		}
	}
	if !s.changes {
		s.tat, s.taken = tatOf(s.seen[0]), 0
		changes[0].Denied = s.isDeniable()
		return nil
	}
	for i, key := range s.keys {
		var tat int64
		expires := combine.Never
		switch {
		case isLimit(key):
			tat, s.taken = s.take(now, tatOf(s.seen[i]), p.w.plan.burst())
			s.tat = tat
			expires = tat + p.w.plan.margin()
		case isShort(key):
			expires = now + 20*ms
		}
		v := o.newVersion(s.seen[i], s, key, tat)
		changes[i] = combine.Change{Op: combine.Set, Bytes: v.bytes, Expires: expires}
	}
	return nil
}

// adding is a step on a limit that a server can make, unless it is compared.
type adding struct {
	p        *process
	s        *step
	compared bool
}

// adding returns a step in the form in which servers make it, or nil if the step has to be compared and set. Half
// of the steps that have to be compared and set are returned nevertheless, and say so only in Fits.
func (p *process) adding(s *step) combine.Adding {
	every := p.w.plan.Compared
	compared := every > 0 && s.number%every == every-1
	if !p.w.plan.Adds || compared && s.number/every%2 == 0 {
		return nil
	}
	return &adding{p, s, compared}
}

func (a *adding) Fits(combine.Adding, int64) bool { return !a.compared }

func (a *adding) Apply(now int64, held combine.Value) combine.Value {
	plan, before := &a.p.w.plan, a.p.w.oracle.lookup(held.Bytes)
	if max(tatOf(before)-now, 0)+emission > plan.burst()*emission {
		return held
	}
	tat, _ := a.s.take(now, tatOf(before), plan.burst())
	return combine.Value{Bytes: a.p.w.oracle.newVersion(before, a.s, a.s.keys[0], tat).bytes, Expires: tat + plan.margin()}
}

func tatOf(v *version) int64 {
	if v == nil {
		return 0
	}
	return v.tat
}

func (p *process) submitCommand(name, key string) {
	s := p.w.oracle.newStep(p, name, []string{key})
	s.changes = name == "APPEND"
	number := binary.BigEndian.AppendUint64(nil, s.number)
	p.machine.Submit(p.time(), &combine.Step{
		Keys: []string{key}, Raw: [][]byte{[]byte(name), []byte(key), number}, ReadOnly: name == "GET",
		Deadline: s.deadline + began,
		Learn:    func(reply any) ([]byte, bool) { return reply.(*version).bytes, p.w.chance(0.5) },
		Done: func(reply any, err error) {
			if v, ok := reply.(*version); ok && name == "GET" {
				s.seen = append(s.seen, v)
			}
			p.w.oracle.end(s, err)
		},
	})
}
