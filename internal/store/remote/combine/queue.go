package combine

import "slices"

// stepState is what the machine knows of a step.
type stepState struct {
	sequence uint64
	place    place
	flight   *flight // of a step in a flight
	err      error   // of the last call of Run
	tries    int     // conflicts
	bytes    int64   // of Raw

	// The list of the wheel that the step is in.
	prev, next *Step
	slot       int16
	timed      bool
}

// place is where a step is.
type place uint8

const (
	queued   place = iota // in the queues of its keys
	inFlight              // in a flight
	ended
)

// queue holds the steps on a key that wait, in the order in which they were submitted. A step on
// several keys is in the queues of all of them, and goes when it is the first in each. Because all
// queues have the same order, no two steps can wait for each other.
type queue struct {
	key     keyID
	steps   []*Step // from first on; steps that have ended are skipped
	first   int
	waiting int     // steps that have not ended
	flight  *flight // the flight that the key is in, nil if none
	index   int     // among the keys of that flight
	listed  bool    // it is in the ready list of a lane
	joined  bool    // a step on the key has joined the flight
	stopped *flight // the flight that could not take the first step

	contention contention
}

// front returns the first step that has not ended, nil if there is none.
func (q *queue) front() *Step {
	for q.first < len(q.steps) {
		if s := q.steps[q.first]; s.state.place != ended {
			return s
		}
		q.steps[q.first] = nil
		q.first++
	}
	q.steps, q.first = q.steps[:0], 0
	return nil
}

// pop removes the first step, which front has returned.
func (q *queue) pop() {
	q.steps[q.first] = nil
	q.first++
	q.waiting--
}

// putBack puts a step back at the front.
func (q *queue) putBack(s *Step) {
	if q.first == 0 {
		q.steps = slices.Insert(q.steps, 0, s)
	} else {
		q.first--
		q.steps[q.first] = s
	}
	q.waiting++
}

// push adds a step at the end. If most steps in the queue have ended, it first removes them, so that the
// memory of a queue is bounded by the steps that wait.
func (q *queue) push(s *Step) {
	if len(q.steps)-q.first > 2*q.waiting+16 || q.first > len(q.steps)/2 && len(q.steps) == cap(q.steps) {
		q.steps = slices.DeleteFunc(q.steps, func(s *Step) bool { return s == nil || s.state.place == ended })
		q.first = 0
	}
	q.steps = append(q.steps, s)
	q.waiting++
}

// enqueue puts a step into the queues of its keys, unless one is full.
func (m *Machine) enqueue(s *Step) bool {
	if len(s.Keys) == 1 { // as below, with one look at the queues
		q := m.queueOf(keyID{s.Database, s.Keys[0]})
		if q.waiting >= maxWaitingPerKey {
			return false
		}
		q.push(s)
		m.list(q)
		return true
	}
	for _, name := range s.Keys {
		if q := m.queues[keyID{s.Database, name}]; q != nil && q.waiting >= maxWaitingPerKey {
			return false
		}
	}
	for _, name := range s.Keys {
		q := m.queueOf(keyID{s.Database, name})
		q.push(s)
		m.list(q)
	}
	return true
}

// queueOf returns the queue of a key, which is made if there is none.
func (m *Machine) queueOf(key keyID) *queue {
	q := m.queues[key]
	if q != nil {
		return q
	}
	if last := len(m.freeQueues) - 1; last >= 0 {
		q = m.freeQueues[last]
		m.freeQueues = m.freeQueues[:last]
	} else {
		q = &queue{}
	}
	q.key = key
	m.queues[key] = q
	return q
}

// list puts a queue into the ready list of its lane, if it has steps that may go.
func (m *Machine) list(q *queue) {
	if q.flight != nil || q.listed || q.contention.isResting(m.now) || q.waiting == 0 {
		return
	}
	q.listed = true
	m.enter(m.laneOf(q.key), ready{queue: q})
}

// release ends the flight of a key: the next one may go.
func (m *Machine) release(q *queue) {
	q.flight = nil
	q.contention.hot = q.waiting > 0
	if s := q.front(); q.contention.heldUntil > m.now && (s == nil || s.Adds != nil) && !m.closed {
		m.giveTurn(q, m.laneOf(q.key)) // the flight has ended without a write, and steps for the backend would wait
	}
	m.list(q)
	m.discard(q)
}

// discard forgets a queue that has no steps and nothing to remember.
func (m *Machine) discard(q *queue) {
	if q.waiting > 0 || q.flight != nil || q.listed || q.contention.isResting(m.now) || q.contention.timed {
		return
	}
	delete(m.queues, q.key)
	if cap(q.steps) > 1024 {
		return
	}
	clear(q.steps[:cap(q.steps)])
	*q = queue{steps: q.steps[:0]}
	if len(m.freeQueues) < 1024 {
		m.freeQueues = append(m.freeQueues, q)
	}
}

// leaveQueues is called when a queued step has ended: steps behind it may go.
func (m *Machine) leaveQueues(s *Step) {
	for _, name := range s.Keys {
		if q := m.queues[keyID{s.Database, name}]; q != nil {
			q.waiting--
			m.list(q)
			m.discard(q)
		}
	}
}

// absorb adds the steps that wait for the keys of a flight to it, in their order. As long as
// nothing of the flight has been read, it adds more keys, too: the other keys of steps on several keys.
func (m *Machine) absorb(f *flight) {
	if len(f.queues) == 1 && f.queues[0].waiting == 0 {
		return
	}
	for _, q := range f.queues {
		q.stopped = nil
	}
	for len(f.steps) < maxCombined {
		s := f.earliest()
		if s == nil {
			return
		}
		if !m.admits(f, s) {
			f.stop(m, s)
			continue
		}
		if len(s.Keys) > 1 && f.earliest() != s {
			continue // steps are before it in the queue of a key that has just been added
		}
		m.join(f, s)
	}
}

// earliest returns the first step that waits for a key of a flight and is not
// stopped.
func (f *flight) earliest() (first *Step) {
	for _, q := range f.queues {
		if q.stopped == f {
			continue
		}
		if s := q.front(); s != nil && (first == nil || s.state.sequence < first.state.sequence) {
			first = s
		}
	}
	return first
}

// stop says that neither a step nor any step behind it can join the flight.
func (f *flight) stop(m *Machine, s *Step) {
	for _, name := range s.Keys {
		if q := m.queues[keyID{s.Database, name}]; q != nil {
			q.stopped = f
		}
	}
}

// admits reports whether a step can join, and adds the keys that the flight does not
// have yet.
func (m *Machine) admits(f *flight, s *Step) bool {
	if !f.suits(s) {
		return false
	}
	if len(s.Keys) == 1 {
		return true
	}
	missing := 0
	for _, name := range s.Keys {
		q := m.queues[keyID{s.Database, name}]
		if q.flight == f && q.stopped == f {
			return false // it is behind a step that has to wait
		}
		if q.flight == f {
			continue
		}
		if f.based || q.flight != nil || q.contention.isResting(m.now) {
			return false
		}
		missing++
	}
	if missing > 0 && len(f.steps) > 0 && len(f.queues)+missing > maxFlightKeys {
		return false
	}
	for _, name := range s.Keys {
		if q := m.queues[keyID{s.Database, name}]; q.flight != f {
			f.add(q)
		}
	}
	return true
}

// join adds a step to a flight. The step is the first in the queues of all its keys.
func (m *Machine) join(f *flight, s *Step) {
	for _, name := range s.Keys {
		q := f.queues[0]
		if len(f.queues) > 1 {
			q = m.queues[keyID{s.Database, name}]
		}
		q.pop()
		q.joined = true
	}
	f.take(s)
}
