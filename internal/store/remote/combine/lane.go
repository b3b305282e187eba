package combine

import "time"

// laneID is what a connection is for.
type laneID struct {
	primary  Primary
	database int
}

// lane is where flights wait for a connection to a primary, with a database selected.
type lane struct {
	id        laneID
	breaker   *breaker
	ready     []ready // from first on
	first     int
	doubtful  bool     // the next batch reads the primary's clock
	gives     []string // the keys whose turn is given back with the next batch
	active    bool     // it is in Machine.active
	timed     bool     // there is a timer for the lane of no primary
	conns     []connection
	roundTrip int64 // the average of the last batches
	delay     int64 // until the next try to connect, after one that has failed
	retryAt   int64
}

// ready is a key whose first step may go, or a flight that goes on. Exactly one of its fields is set.
type ready struct {
	queue  *queue
	flight *flight
}

// connection is the state of a connection.
type connection struct {
	state connState
	since int64 // when the batch that is under way was sent
	slow  int64 // how often the batch has counted as a failure of the primary
}

type connState uint8

const (
	closed connState = iota
	connecting
	idle
	busy
)

const (
	firstDelay = int64(5 * time.Millisecond)
	lastDelay  = int64(200 * time.Millisecond)
	// noPrimaryDelay is the time between two questions to the topology for the primary of a key, while it
	// does not know it.
	noPrimaryDelay = int64(10 * time.Millisecond)
)

// outstanding watches the batches that have no reply yet.
type outstanding struct {
	batches int
	next    int64 // when to look for slow ones
}

func (m *Machine) lane(id laneID) *lane {
	if l := m.recent; l != nil && l.id == id {
		return l
	}
	l := m.lanes[id]
	if l == nil {
		l = &lane{id: id, breaker: m.breakerOf(id.primary), conns: make([]connection, m.config.Connections)}
		m.lanes[id] = l
		m.order = append(m.order, l)
	}
	m.recent = l
	return l
}

func (m *Machine) laneOf(key keyID) *lane {
	return m.lane(laneID{m.config.Topology.Primary(key.name), key.database})
}

func (m *Machine) laneOfFlight(f *flight) *lane {
	if len(f.queues) > 0 {
		return m.laneOf(f.queues[0].key)
	}
	s := f.steps[0]
	return m.lane(laneID{s.Primary, s.Database})
}

// launchAlone sends a step that has no key.
func (m *Machine) launchAlone(s *Step) {
	f := m.newFlight(nil)
	f.take(s)
	m.listFlight(f)
}

// enter adds to the ready list of a lane.
func (m *Machine) enter(l *lane, what ready) {
	if l.first > 64 && l.first > len(l.ready)/2 {
		n := copy(l.ready, l.ready[l.first:])
		clear(l.ready[n:])
		l.ready, l.first = l.ready[:n], 0
	}
	l.ready = append(l.ready, what)
	m.activate(l)
	if l.id.primary == NoPrimary && !l.timed {
		l.timed = true
		m.timers.add(timer{at: m.now + noPrimaryDelay, lane: l})
	}
}

// leave removes the first of the ready list.
func (l *lane) leave() (first ready, ok bool) {
	if l.first == len(l.ready) {
		l.ready, l.first = l.ready[:0], 0
		return ready{}, false
	}
	first = l.ready[l.first]
	l.ready[l.first] = ready{}
	l.first++
	if first.queue != nil {
		first.queue.listed = false
	} else {
		first.flight.listed = false
	}
	return first, true
}

func (l *lane) hasWork() bool { return l.first < len(l.ready) || len(l.gives) > 0 }

// activate has Next look at a lane.
func (m *Machine) activate(l *lane) {
	if !l.active {
		l.active = true
		m.active = append(m.active, l)
	}
}

// retry is called when a lane may connect again, or when the primary of its keys may be known.
func (m *Machine) retry(l *lane) {
	if l.id.primary != NoPrimary {
		m.activate(l)
		return
	}
	l.timed = false
	for n := len(l.ready) - l.first; n > 0; n-- {
		what, _ := l.leave()
		m.reroute(what)
	}
}

// reroute puts something ready into the lane that it belongs to now.
func (m *Machine) reroute(what ready) {
	switch {
	case what.queue != nil:
		m.list(what.queue)
		m.discard(what.queue)
	case what.flight.gone:
		if !what.flight.paused {
			m.recycle(what.flight)
		}
	default:
		m.listFlight(what.flight)
	}
}

// Next returns the next batch to be sent, nil if there is none now.
func (m *Machine) Next(now int64) *Batch {
	m.now = max(m.now, now)
	for len(m.active) > 0 && !m.closed {
		last := len(m.active) - 1
		l := m.active[last]
		m.active = m.active[:last]
		l.active = false
		if b := m.serve(l); b != nil {
			m.activate(l) // there may be more, for another connection
			m.counters.Batches++
			m.depart(l, b)
			return b
		}
	}
	return nil
}

// serve returns a batch for a connection of a lane, if there is something to send.
func (m *Machine) serve(l *lane) *Batch {
	if l.id.primary == NoPrimary {
		return nil
	}
	if l.breaker.open {
		m.drain(l)
		return m.probe(l)
	}
	if !l.hasWork() {
		return nil
	}
	if i := l.find(idle); i >= 0 {
		b := m.newBatch(l, i)
		m.fill(l, b)
		if len(b.Requests) > 0 {
			return b
		}
		m.freeBatches = append(m.freeBatches, b)
		return nil
	}
	return m.connect(l)
}
