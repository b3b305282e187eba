package combine

import "bytes"

// settle takes the reply to a request of a flight.
func (m *Machine) settle(f *flight, r *Request, l *lane) {
	f.pending--
	f.asked = nil
	if r.Reply.Status == Redirected && r.Reply.Ask {
		f.asked = m.lane(laneID{r.Reply.Asked, l.id.database})
	}
	if f.raw {
		m.settleCommand(f, r, l)
		return
	}
	f.sent = false
	if r.Turn.Op != NoTurn {
		m.sawTurn(f.turnOf, r, l)
	}
	switch r.Reply.Status {
	case Done:
		switch r.Kind {
		case Write:
			m.written(f, l)
		case Add:
			m.wasAdded(f, r, l)
		default:
			m.read(f, r, l)
		}
	case Conflict:
		if r.Kind == Add {
			f.added.refused = true
			m.read(f, r, l)
			return
		}
		m.lost(f, r, l)
	case Held:
		m.again(f, false) // when the turn is over
	case Refused:
		m.forget(f)
		m.counters.Refused++
		m.endAll(f, &RefusedError{Reply: r.Reply.Error})
	case Unknown:
		if r.changes() {
			m.forget(f)
			m.endAll(f, ErrUnavailable)
			return
		}
		m.again(f, false)
	default:
		m.again(f, r.Reply.Status == Later)
	}
}

// written ends a flight whose write was done.
func (m *Machine) written(f *flight, l *lane) {
	for i, q := range f.queues {
		part, expires := &f.parts[i], unknownExpiry
		switch {
		case part.Op == Keep:
			expires = m.known.expiry(q.key)
		case part.Op == Set && part.Expires != KeepExpiry:
			expires = part.Expires
		}
		m.known.put(q.key, f.current[i].Bytes, expires, m.sentAt)
		if part.Op != Keep {
			m.known.setWritten(q.key)
		}
		m.won(q, l)
	}
	m.endAll(f, nil)
}

// read computes the steps of a flight on what was read, and ends them if they change nothing.
func (m *Machine) read(f *flight, r *Request, l *lane) {
	f.based, f.computed = m.learn(f, r, l), 0
	m.decide(f, l)
}

// lost computes the steps of a flight on the values in the reply to a write, because the keys did not
// hold what was known. It makes no difference if they hold exactly what the write would have set:
// another process may have written the same.
func (m *Machine) lost(f *flight, r *Request, l *lane) {
	m.counters.Conflicts++
	m.blame(f, l)
	trusted := m.learn(f, r, l)
	for _, s := range f.steps {
		if s.state.place == ended {
			continue
		}
		s.state.tries++
		m.counters.MostTries = max(m.counters.MostTries, int64(s.state.tries))
		switch {
		case s.Tries > 0 && s.state.tries >= s.Tries:
			f.live--
			m.end(s, nil, ErrConflict)
		case s.Deadline == 0 && s.state.tries >= maxTries:
			f.live--
			m.end(s, nil, ErrContended)
		}
	}
	f.based, f.computed = trusted && !f.expiry, 0
	m.decide(f, l)
}

// changes reports whether a request may change its keys.
func (r *Request) changes() bool { return r.Kind == Write || r.Kind == Add }

// holdsKnown reports whether the present value is the known value.
func (p *Part) holdsKnown() bool {
	if p.Known == nil || p.Value.Bytes == nil {
		return p.Known == nil && p.Value.Bytes == nil
	}
	if p.Compared > 0 && p.Compared <= len(p.Known) && p.Compared <= len(p.Value.Bytes) {
		return bytes.Equal(p.Known[:p.Compared], p.Value.Bytes[:p.Compared])
	}
	return bytes.Equal(p.Known, p.Value.Bytes)
}

// learn takes the values of a reply as the base of a flight. It returns false if a key is gone before
// its time. The key may have been removed or evicted. But it is also possible that the primary's clock
// was set: the primary would then remove at once what this process writes, and limits would have no
// effect until the clock is measured. Therefore it is measured before the next write. In the last
// ExpiryMargin of a key, its absence says nothing: the state of a limiter has ended by then, and for
// other values it does not matter.
func (m *Machine) learn(f *flight, r *Request, l *lane) (trusted bool) {
	f.base = f.base[:0]
	trusted = true
	for i, q := range f.queues {
		value := r.Parts[i].Value
		before, expires, ok := m.known.get(q.key)
		if ok && before != nil && value.Bytes == nil && expires != unknownExpiry &&
			expires-ExpiryMargin > m.timeOf(l) {
			m.counters.Gone++
			l.doubtful, trusted = true, false
		}
		other := !ok || !bytes.Equal(before, value.Bytes) || (before == nil) != (value.Bytes == nil)
		if other {
			expires = unknownExpiry
		}
		if ok || !f.isPassing() {
			m.known.put(q.key, value.Bytes, expires, m.sentAt)
		}
		if other {
			m.known.setForeign(q.key, value.Bytes != nil)
		}
		f.base = append(f.base, value)
	}
	return trusted
}

// decide ends a flight whose steps change nothing, given values that the backend has just sent.
// Otherwise the flight goes on.
func (m *Machine) decide(f *flight, l *lane) {
	switch {
	case f.live == 0:
		m.dissolve(f)
	case f.based && !m.compute(f, l):
		m.endAll(f, nil)
	default:
		m.proceed(f)
	}
}

// forget forgets the known values of the keys of a flight.
func (m *Machine) forget(f *flight) {
	for _, q := range f.queues {
		m.known.forget(q.key)
	}
}

// again sends a flight again, at once or after a pause, because nothing has been done.
func (m *Machine) again(f *flight, later bool) {
	f.computed = 0
	if f.live == 0 {
		m.dissolve(f)
		return
	}
	m.counters.Resent++
	if later && !m.closed {
		f.postponed++
		m.pause(f, m.now+min(firstPause<<min(f.postponed, 5), lastPause))
		return
	}
	m.proceed(f)
}

// settleCommand takes the reply to the command of one step.
func (m *Machine) settleCommand(f *flight, r *Request, l *lane) {
	s, live := r.step, r.step.state.place != ended
	status := r.Reply.Status
	if status == Unknown && s.ReadOnly {
		status = Unsent
	}
	var reply any
	var err error
	switch status {
	case Done:
		reply = r.Reply.Raw
	case Refused:
		m.counters.Refused++
		err = &RefusedError{Reply: r.Reply.Error}
	case Unknown:
		err = ErrUnavailable
	case Later:
		f.postponed++
	}
	if !s.ReadOnly {
		m.learnCommand(f, s, status, r.Reply.Raw)
	}
	if live && status != Unsent && status != Redirected && status != Later {
		f.live--
		m.end(s, reply, err)
	}
	if f.pending == 0 {
		f.sent = false
		m.again(f, status == Later)
	}
}

// learnCommand remembers what the only key of a command holds after its reply.
func (m *Machine) learnCommand(f *flight, s *Step, status Status, reply any) {
	switch status {
	case Unsent, Redirected, Later:
		return // nothing was done
	}
	m.forget(f)
	if status == Done && s.Learn != nil && len(f.queues) == 1 {
		if value, ok := s.Learn(reply); ok {
			m.known.put(f.queues[0].key, value, unknownExpiry, m.sentAt)
		}
	}
}
