package combine

import "time"

// breaker is the circuit breaker of a primary. After a few failures in a row, with no reply between
// them, it opens: steps end at once instead of waiting for their deadlines. It closes with the first
// reply, or when a connection can be opened, which is tried every now and then.
type breaker struct {
	primary  Primary
	failures int // in a row
	open     bool
	due      bool  // it is time to try again
	wanted   bool  // steps have ended because the breaker is open since the last try
	delay    int64 // until the next try
	lane     *lane // where
}

const (
	failuresToOpen = 3
	// The time from one try to the next while a breaker is open. It doubles each time if there are no
	// steps for the primary, which may have been replaced.
	breakerDelay     = int64(100 * time.Millisecond)
	longBreakerDelay = int64(3200 * time.Millisecond)
)

func (m *Machine) breakerOf(p Primary) *breaker {
	br := m.breakers[p]
	if br == nil {
		br = &breaker{primary: p}
		m.breakers[p] = br
	}
	return br
}

// isOpen reports whether a step for a primary ends at once.
func (m *Machine) isOpen(p Primary) bool {
	if m.openBreakers == 0 {
		return false
	}
	br := m.breakers[p]
	if br == nil || !br.open {
		return false
	}
	br.wanted = true
	return true
}

// IsBroken reports whether a circuit breaker is open. Steps for its primary end at once then.
func (m *Machine) IsBroken() bool { return m.openBreakers > 0 }

// failed counts a failure of a connection.
func (m *Machine) failed(l *lane) {
	br := l.breaker
	br.lane = l
	br.failures++
	if br.failures < failuresToOpen {
		return
	}
	if !br.open {
		br.open = true
		m.openBreakers++
		m.counters.Openings++
		m.tellBreaker(br)
		for _, other := range m.order {
			if other.breaker == br {
				m.activate(other)
			}
		}
		br.delay = breakerDelay
		m.timers.add(timer{at: m.now + br.delay, broken: br})
	}
}

func (m *Machine) succeeded(br *breaker) {
	br.failures = 0
	if br.open {
		br.open = false
		m.openBreakers--
		m.tellBreaker(br)
	}
}

// connected closes a breaker, because a connection could be opened. But a server may accept connections
// and fail everything that is sent on them, so the next failure opens the breaker again.
func (m *Machine) connected(br *breaker) {
	failures := min(br.failures, failuresToOpen-1)
	m.succeeded(br)
	br.failures = failures
}

func (m *Machine) tellBreaker(br *breaker) {
	if m.onBreaker != nil {
		m.onBreaker(br.primary, br.open)
	}
}

// drain ends all steps that are ready in a lane whose breaker is open.
func (m *Machine) drain(l *lane) {
	l.gives = l.gives[:0]
	for {
		what, ok := l.leave()
		if !ok {
			return
		}
		switch {
		case what.queue != nil && m.laneOf(what.queue.key) != l:
			m.reroute(what)
		case what.queue != nil:
			m.drainQueue(what.queue)
		case what.flight.gone || what.flight.asked != l && m.laneOfFlight(what.flight) != l:
			m.reroute(what)
		default:
			m.endAll(what.flight, ErrDown)
		}
	}
}

func (m *Machine) drainQueue(q *queue) {
	if q.flight != nil {
		return
	}
	if q.waiting == 0 {
		m.discard(q)
		return
	}
	for q.waiting > 0 {
		s := q.front()
		m.end(s, nil, ErrDown)
		m.leaveQueues(s)
	}
}

// probe opens a connection to a primary whose breaker is open, if it is time to try. If all connections
// wait for replies, so that there is none to open, it looks again later.
func (m *Machine) probe(l *lane) *Batch {
	br := l.breaker
	if !br.due || br.lane != l {
		return nil
	}
	br.delay = min(2*br.delay, longBreakerDelay)
	if br.wanted {
		br.delay = breakerDelay
	}
	br.due, br.wanted = false, false
	m.timers.add(timer{at: m.now + br.delay, broken: br})
	if i := l.find(idle); i >= 0 {
		l.conns[i].state = closed
	}
	l.retryAt = m.now
	return m.connect(l)
}

// tryAgain is called when a breaker has been open for a while.
func (m *Machine) tryAgain(br *breaker) {
	if br.open {
		br.due = true
		m.activate(br.lane)
	}
}
