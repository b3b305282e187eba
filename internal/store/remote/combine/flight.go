package combine

import "slices"

// flight is a set of steps on some keys that are decided together, by one request.
type flight struct {
	queues []*queue // of its keys
	steps  []*Step  // in their order; some may have ended
	live   int      // how many have not ended

	raw      bool // its steps are commands, each a request of its own
	readOnly bool // all of these commands are read-only
	expiry   bool // a step needs the expiries
	formed   bool // it has been sent once
	sent     bool // its requests are under way
	gone     bool // it has been dissolved, but is still in a ready list or has a timer
	listed   bool // it is in the ready list of a lane
	paused   bool // it has a timer
	asked    *lane

	// base is what the keys are known to hold, if based is set, and current is what they hold after
	// the first computed steps. The parts have the changes from base to current.
	based    bool
	base     []Value
	current  []Value
	parts    []Part
	computed int

	added     added
	losing    losing
	requests  []Request
	pending   int    // requests without reply
	turnOf    *queue // the key whose turn key the request is about
	postponed int    // how often the reply was Later
}

// losing counts the conflicts of a flight.
type losing struct {
	lostFor *queue // the key because of which the last try was lost
	losses  int    // conflicts
	inTurn  int    // conflicts in the turn that this process holds, or held last
	rounds  int    // how often a key has rested because of the conflicts
}

// newFlight returns a flight without steps on a key, or on no key.
func (m *Machine) newFlight(q *queue) *flight {
	var f *flight
	if last := len(m.freeFlights) - 1; last >= 0 {
		f = m.freeFlights[last]
		m.freeFlights = m.freeFlights[:last]
	} else {
		f = &flight{}
	}
	if q != nil {
		f.add(q)
	}
	return f
}

// recycle keeps the memory of a flight for another one. Nothing may refer to the flight any more.
func (m *Machine) recycle(f *flight) {
	if cap(f.steps) > 256 || cap(f.queues) > 8 || cap(f.requests) > 8 || len(m.freeFlights) >= 4096 {
		return
	}
	clear(f.queues)
	clear(f.steps)
	clear(f.base)
	clear(f.current)
	clear(f.parts)
	clear(f.requests)
	clear(f.added.steps)
	*f = flight{queues: f.queues[:0], steps: f.steps[:0], base: f.base[:0], current: f.current[:0],
		parts: f.parts[:0], requests: f.requests[:0], added: added{steps: f.added.steps[:0]}}
	m.freeFlights = append(m.freeFlights, f)
}

// add takes a key in.
func (f *flight) add(q *queue) {
	q.flight, q.stopped, q.joined, q.index = f, nil, false, len(f.queues)
	f.queues = append(f.queues, q)
}

// suits reports whether a step may share the flight.
func (f *flight) suits(s *Step) bool {
	if len(f.steps) == 0 {
		return true
	}
	if f.raw || s.Raw != nil {
		return f.raw && s.Raw != nil && f.readOnly && s.ReadOnly && !f.formed
	}
	if f.added.only && !f.added.fits(s, f.steps[0]) {
		return false
	}
	return !f.based || f.expiry || !s.Expiry
}

// take adds a step to the flight.
func (f *flight) take(s *Step) {
	if len(f.steps) == 0 {
		f.raw, f.readOnly = s.Raw != nil, s.ReadOnly
	}
	s.state.place, s.state.flight = inFlight, f
	f.steps = append(f.steps, s)
	f.live++
	f.expiry = f.expiry || s.Expiry
}

// isPassing reports whether what is read is not worth remembering.
func (f *flight) isPassing() bool {
	return !slices.ContainsFunc(f.steps, func(s *Step) bool { return !s.Passing })
}

// isChanging reports whether a change of a step is under way.
func (f *flight) isChanging(s *Step) bool {
	if !f.sent {
		return false
	}
	if f.raw {
		return !s.ReadOnly
	}
	return f.requests[0].changes()
}

// trim gives back the keys whose steps could not join the flight. Each step waits for another key that is
// in a flight or rests, so its queue is not ready. When the other key is, the step joins a flight again.
func (m *Machine) trim(f *flight) {
	if len(f.queues) == 1 && f.queues[0].joined {
		return
	}
	f.queues = slices.DeleteFunc(f.queues, func(q *queue) bool {
		if !q.joined {
			q.flight = nil
			m.discard(q)
		}
		return !q.joined
	})
	for i, q := range f.queues {
		q.index = i
	}
}

// leaveFlight is called when a step of a flight has ended because of its deadline.
func (m *Machine) leaveFlight(f *flight) {
	f.live--
	if f.sent {
		return // the reply decides about what is under way
	}
	f.computed = 0
	if f.live == 0 {
		m.dissolve(f)
	}
}

// dissolve ends a flight: its keys are free for the next one.
func (m *Machine) dissolve(f *flight) {
	for _, q := range f.queues {
		m.release(q)
	}
	f.gone = true
	if !f.listed && !f.paused {
		m.recycle(f)
	}
}

// endAll ends all steps of a flight with an error, or, if it is nil, with the error of Run.
func (m *Machine) endAll(f *flight, err error) {
	for _, s := range f.steps {
		if s.state.place == ended {
			continue
		}
		result := err
		if err == nil {
			result = s.state.err
		}
		f.live--
		m.end(s, nil, result)
	}
	m.dissolve(f)
}

// load adds the requests of a flight to a batch, or ends the flight.
func (m *Machine) load(f *flight, l *lane, b *Batch) {
	m.endHopeless(f, l)
	if f.live == 0 && f.formed {
		m.dissolve(f)
		return
	}
	m.choose(f, l)
	m.absorb(f)
	m.trim(f)
	if f.live == 0 {
		m.recycle(f)
		return
	}
	f.sent = true
	switch {
	case f.raw:
		m.loadCommands(f, l, b)
	case m.isForBackend(f):
		m.loadAdd(f, l, b)
	default:
		m.loadRun(f, l, b)
	}
	f.formed = true
}

// loadCommands adds the commands that have not been done yet.
func (m *Machine) loadCommands(f *flight, l *lane, b *Batch) {
	f.dropEnded()
	f.requests = slices.Grow(f.requests[:0], len(f.steps))
	for _, s := range f.steps {
		f.requests = append(f.requests, Request{
			Kind: Command, Command: s.Raw, Asking: f.asked == l, flight: f, step: s})
		b.Requests = append(b.Requests, &f.requests[len(f.requests)-1])
	}
	f.pending = len(f.requests)
	m.counters.Commands += int64(f.pending)
}

// dropEnded removes the steps that have ended.
func (f *flight) dropEnded() {
	if f.live < len(f.steps) {
		f.steps = slices.DeleteFunc(f.steps, func(s *Step) bool { return s.state.place == ended })
	}
}

// loadRun adds a write if the steps change something according to the known values; otherwise a read.
func (m *Machine) loadRun(f *flight, l *lane, b *Batch) {
	if !f.based {
		m.baseOnKnown(f, l)
	}
	kind := Read
	if f.based && m.compute(f, l) {
		kind = Write
	}
	if kind == Read {
		f.partsToRead()
		m.counters.Reads++
	}
	f.requests = append(f.requests[:0], Request{Kind: kind, Parts: f.parts, Asking: f.asked == l, flight: f})
	if kind == Write {
		f.requests[0].Turn = m.turnFor(f, l, Write)
	}
	f.pending = 1
	b.Requests = append(b.Requests, &f.requests[0])
}

// baseOnKnown bases a flight on the known values of its keys, if all of them are known.
func (m *Machine) baseOnKnown(f *flight, l *lane) {
	if f.expiry {
		return
	}
	f.base = f.base[:0]
	for _, q := range f.queues {
		value, expires, ok := m.known.get(q.key)
		if !ok && !f.presumesAbsent(q.key.name) {
			return
		}
		if ok && expires <= m.timeOf(l) && expires != unknownExpiry {
			value = nil
		}
		f.base = append(f.base, Value{Bytes: value, Expires: Never})
	}
	f.based, f.computed = true, 0
}

// presumesAbsent reports whether a step of the flight says that a key hardly ever exists.
func (f *flight) presumesAbsent(name string) bool {
	return slices.ContainsFunc(f.steps, func(s *Step) bool {
		return s.Absent > 0 && slices.Contains(s.Keys[len(s.Keys)-s.Absent:], name)
	})
}

// timeOf returns the time of the clock of a lane's primary.
func (m *Machine) timeOf(l *lane) int64 { return m.now + m.config.Topology.Offset(l.id.primary) }

// partsToRead makes parts that read all keys.
func (f *flight) partsToRead() {
	f.parts = f.parts[:0]
	for _, q := range f.queues {
		f.parts = append(f.parts, Part{Key: q.key.name, Expiry: f.expiry})
	}
	f.computed = 0
}
