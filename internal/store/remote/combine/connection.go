package combine

// find returns the first connection in a state, -1 if there is none.
func (l *lane) find(state connState) int {
	for i := range l.conns {
		if l.conns[i].state == state {
			return i
		}
	}
	return -1
}

func (m *Machine) newBatch(l *lane, connection int) *Batch {
	var b *Batch
	if last := len(m.freeBatches) - 1; last >= 0 {
		b = m.freeBatches[last]
		m.freeBatches = m.freeBatches[:last]
		clear(b.Requests)
		*b = Batch{Requests: b.Requests[:0]}
	} else {
		b = &Batch{}
	}
	b.Primary, b.Database, b.Connection = l.id.primary, l.id.database, connection
	return b
}

// fill puts what is ready into a batch. Turns are given back first, because the backend makes no steps on their keys
// before.
func (m *Machine) fill(l *lane, b *Batch) {
	b.Measure = l.doubtful
	for len(l.gives) > 0 && len(b.Requests) < maxPipeline {
		last := len(l.gives) - 1
		turn := Turn{Op: GiveTurn, Key: l.gives[last], Holder: m.config.Self}
		b.Requests = append(b.Requests, &Request{Kind: TurnOnly, Turn: turn})
		l.gives = l.gives[:last]
	}
	for !l.fills(b) {
		what, ok := l.leave()
		if !ok {
			break
		}
		if f := what.flight; f != nil {
			m.fillFlight(l, b, f)
			continue
		}
		q := what.queue
		if q.flight != nil || q.contention.isResting(m.now) || q.front() == nil {
			m.discard(q)
			continue
		}
		if m.laneOf(q.key) != l {
			m.list(q)
			continue
		}
		m.load(m.newFlight(q), l, b)
	}
	l.doubtful = l.doubtful && len(b.Requests) == 0
}

// fills reports whether the next entry of the ready list has to wait for another batch. A command that is
// longer than a batch may be is sent alone, so that no other command waits for it.
func (l *lane) fills(b *Batch) bool {
	for ; b.counted < len(b.Requests); b.counted++ {
		b.bytes += b.Requests[b.counted].bytes()
	}
	next := int64(0)
	if l.first < len(l.ready) && l.ready[l.first].queue != nil {
		if s := l.ready[l.first].queue.front(); s != nil {
			next = s.state.bytes
		}
	}
	return len(b.Requests) >= maxPipeline || len(b.Requests) > 0 && b.bytes+next > maxBatchBytes
}

// bytes returns how long a request is, without the names of its keys.
func (r *Request) bytes() int64 {
	n := bytesOf(r.Command) + 16*int64(len(r.Adds))
	for i := range r.Parts {
		n += int64(len(r.Parts[i].Known) + len(r.Parts[i].Bytes))
	}
	return n
}

func (m *Machine) fillFlight(l *lane, b *Batch, f *flight) {
	switch {
	case f.gone:
		if !f.paused {
			m.recycle(f)
		}
	case f.asked != l && m.laneOfFlight(f) != l:
		f.asked = nil
		m.listFlight(f)
	default:
		m.load(f, l, b)
	}
}

// connect returns a batch that opens a connection, unless one is being opened already.
func (m *Machine) connect(l *lane) *Batch {
	i := l.find(closed)
	if i < 0 || m.now < l.retryAt || l.find(connecting) >= 0 {
		return nil
	}
	b := m.newBatch(l, i)
	b.Connect = true
	return b
}

// depart notes that a batch is under way.
func (m *Machine) depart(l *lane, b *Batch) {
	state := busy
	if b.Connect {
		state = connecting
		m.counters.Connects++
	}
	l.conns[b.Connection] = connection{state: state, since: m.now}
	m.counters.Requests += int64(len(b.Requests))
	if m.outstanding.batches++; m.outstanding.batches == 1 {
		m.outstanding.next = m.now + m.config.Timeout/4
	}
}

// Finish takes a batch with its replies back.
func (m *Machine) Finish(now int64, b *Batch) {
	m.now = max(m.now, now)
	if m.outstanding.batches--; m.outstanding.batches == 0 {
		m.outstanding.next = Never
	}
	l := m.lane(laneID{b.Primary, b.Database})
	conn := &l.conns[b.Connection]
	m.sentAt = conn.since
	took := m.now - conn.since
	conn.state = idle
	if b.Failed {
		m.disconnected(l, conn)
	} else if b.Connect {
		m.connected(l.breaker)
	} else {
		l.delay = 0
		m.succeeded(l.breaker)
		l.measure(min(took, m.config.Timeout))
	}
	for _, r := range b.Requests {
		if r.flight != nil {
			m.settle(r.flight, r, l)
		}
	}
	if l.hasWork() {
		m.activate(l)
	}
	m.freeBatches = append(m.freeBatches, b)
}

// measure averages the round trip.
func (l *lane) measure(took int64) {
	if l.roundTrip == 0 {
		l.roundTrip = took
	}
	l.roundTrip += (took - l.roundTrip) / 8
}

// disconnected is called when a connection has failed. The idle connections of the lane have probably
// failed too, unnoticed. The outcome of a request sent on one of them would be unknown, so they are
// opened again first.
func (m *Machine) disconnected(l *lane, conn *connection) {
	conn.state = closed
	for i := range l.conns {
		if l.conns[i].state == idle {
			l.conns[i].state = closed
		}
	}
	l.delay = min(max(2*l.delay, firstDelay), lastDelay)
	l.retryAt = m.now + l.delay/2 + m.jitter(l.delay)
	m.timers.add(timer{at: l.retryAt, lane: l})
	if conn.slow == 0 {
		m.failed(l)
	}
}

// judgeSlow counts batches that have been under way for too long as failures of their primaries, again
// after each further Timeout. Without it, no failure would be counted if all connections to a primary hang.
func (m *Machine) judgeSlow() {
	if m.now < m.outstanding.next {
		return
	}
	m.outstanding.next = m.now + m.config.Timeout/4
	for _, l := range m.order {
		for i := range l.conns {
			c := &l.conns[i]
			if (c.state == busy || c.state == connecting) && m.now-c.since > m.config.Timeout*(c.slow+1) {
				c.slow++
				m.failed(l)
			}
		}
	}
}
