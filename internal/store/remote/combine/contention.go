package combine

import "time"

// A process that is further away from the backend than others loses most of its tries on a key that
// all of them write, because its known value is older when it arrives. So that it does not starve,
// processes take turns. A process that has lost twice in a row on a key sets the turn key with its next
// try. A process that writes to the key again and again, or has seen what another has written, reads
// the turn key with each try, unless it uses the key rarely (add.go). Processes that see another's turn
// let the key rest as long as the turn lasts, and gather steps meanwhile.
//
// Steps that the backend makes by itself (add.go) never lose, and need no turns. They may still share a key with steps
// that have to be compared and set. So every few milliseconds, and each time while processes take turns on
// the key, they look at the turn, and the backend does not make them while another process has it. Such a
// turn lasts hardly longer than a round trip of its holder, because only other holders, and processes that use the key
// rarely, can make its write fail.
type contention struct {
	losses       int   // tries lost in a row
	restUntil    int64 // the end of the turn of another process
	heldUntil    int64 // the end of the turn of this process
	hot          bool  // steps were waiting when the last flight ended
	gives        bool  // this process has given a turn back together with a write, since the last success
	timed        bool  // there is a timer for the end of the rest
	rests        int64 // because of others' turns, since the last success
	patientUntil int64 // from then on, others' turns do not count any more; 0 if there was none
}

const (
	lossesBeforeTurn = 2
	// With many processes, the turn is often taken. After this many losses of a flight, a process
	// also lets the key rest for a random time, four times as long with each loss. So steps need few
	// tries, unless more processes write a key than there are round trips in the time of a step.
	lossesBeforeBackoff = 4
	triesInTurn         = 3
	maxRounds           = 8
	turnExtra           = 2 * lookEvery               // a turn lasts 4 round trips and this
	lookEvery           = int64(5 * time.Millisecond) // by steps that the backend makes

	firstPause = int64(time.Millisecond) // doubled with each reply that says Later
	lastPause  = int64(20 * time.Millisecond)
)

// isContended reports whether tries on the keys of a step are lost at present, or whether it waits
// for the turn of another.
func (m *Machine) isContended(s *Step) bool {
	for _, name := range s.Keys {
		q := m.queues[keyID{s.Database, name}]
		if q != nil && (q.contention.losses >= lossesBeforeTurn || q.contention.isResting(m.now) ||
			q.flight != nil && q.flight.losing.losses >= lossesBeforeTurn) {
			return true
		}
	}
	return false
}

// endHopeless ends the steps of a flight that keeps losing if the reply to another try would come after
// their deadline. With that try under way at the deadline, nobody would know whether they were counted.
func (m *Machine) endHopeless(f *flight, l *lane) {
	if f.losing.losses < lossesBeforeTurn {
		return
	}
	for _, s := range f.steps {
		if s.state.place != ended && s.Deadline != 0 && s.Deadline-m.now < 2*l.roundTrip {
			f.live--
			m.end(s, nil, ErrContended)
			f.computed = 0
		}
	}
}

func (c *contention) isResting(now int64) bool { return c.restUntil > now }

// blame notes the key that made a try fail. If several keys did not hold the known value, it is the key that has
// lost the most tries in a row.
func (m *Machine) blame(f *flight, l *lane) {
	f.losing.lostFor = nil
	f.losing.losses++
	for i := range f.parts {
		if f.parts[i].holdsKnown() {
			continue
		}
		q := f.queues[i]
		q.contention.losses++
		if f.losing.lostFor == nil || q.contention.losses > f.losing.lostFor.contention.losses ||
			q.contention.losses == f.losing.lostFor.contention.losses && q.key.name < f.losing.lostFor.key.name {
			f.losing.lostFor = q
		}
	}
	if f.losing.lostFor != nil && f.losing.losses >= lossesBeforeBackoff {
		m.backOff(f, l)
	}
}

// backOff lets a key rest that has made a flight lose many tries. The first try after a rest is
// lost if others write, because the known value is old by then, but it may get the turn. Therefore a
// flight that holds the turn tries again at once, up to three times.
func (m *Machine) backOff(f *flight, l *lane) {
	if f.losing.lostFor.contention.heldUntil > m.now && f.losing.inTurn < triesInTurn {
		f.losing.inTurn++
		return
	}
	f.losing.inTurn = 0
	f.losing.rounds = min(f.losing.rounds+1, maxRounds)
	longest := min(l.roundTrip<<(2*f.losing.rounds), m.config.Timeout/8)
	if m.isAdded(f.losing.lostFor) {
		longest = min(longest, 4*l.roundTrip)
	}
	m.rest(f.losing.lostFor, longest/2+m.jitter(longest/2))
}

// turnFor returns what a request that changes a key does with its turn key. Steps that the backend makes itself need no
// turn, but respect the turns of others.
func (m *Machine) turnFor(f *flight, l *lane, kind RequestKind) Turn {
	q := f.losing.lostFor
	if q == nil {
		q = f.queues[0]
	}
	f.turnOf = q
	c := &q.contention
	switch {
	case kind == Add && (f.postponed > 0 || c.isImpatient(m.now) ||
		!m.known.mayLook(q.key, m.now, m.config.Timeout)):
		return Turn{} // while a slot moves, a command on two keys may fail
	case kind == Write && c.losses >= lossesBeforeTurn && c.heldUntil <= m.now:
		m.counters.Turns++
		return Turn{Op: TakeTurn, Key: q.key.name, Holder: m.config.Self,
			Span: min(4*l.roundTrip+turnExtra, m.longestTurn())}
	case kind == Write && c.heldUntil > m.now && !c.gives && m.isAdded(q):
		// Steps that the backend makes do not disturb this write, so the turn is probably not needed any more.
		c.heldUntil, c.gives = 0, true
		return Turn{Op: GiveTurn, Key: q.key.name, Holder: m.config.Self}
	case kind == Add || c.hot || !f.isSpared() && m.known.isBusy(q.key, m.now, m.config.Timeout):
		return Turn{Op: LookTurn, Key: q.key.name}
	}
	return Turn{}
}

// longestTurn bounds a turn, because its holder may die. Other processes rest for at most half of it: anything may be
// in a turn key, and their own steps have to end in time.
func (m *Machine) longestTurn() int64 { return m.config.Timeout / 2 }

// isImpatient reports whether steps that the backend makes have waited for turns long enough.
func (c *contention) isImpatient(now int64) bool { return c.patientUntil != 0 && c.patientUntil <= now }

// sawTurn takes the reply about the turn key of a key.
func (m *Machine) sawTurn(q *queue, r *Request, l *lane) {
	holder := r.Reply.Holder
	switch {
	case r.Reply.Status == Held || holder != 0 && holder != m.config.Self:
		m.giveWay(q, r.Reply.Span, l)
	case r.Turn.Op == TakeTurn && (r.Reply.Status == Done || r.Reply.Status == Conflict):
		q.contention.heldUntil = m.now + r.Turn.Span
	}
}

// giveWay lets a key rest that is in the turn of another process. The rest has some jitter, so that processes that see
// a turn do not come back together. It is shorter for a process that has rested often: a turn is usually given back
// before its end, and the next process that looks may take it. If the backend does not make steps in the turn, the turn
// is usually over after a round trip of its holder; a turn key that stays is asked for less and less often.
func (m *Machine) giveWay(q *queue, span int64, l *lane) {
	m.counters.Rests++
	c := &q.contention
	if c.rests++; c.rests == 1 {
		c.patientUntil = m.now + m.config.Timeout/4
	}
	rest := min(span, m.config.Timeout/4)
	if m.isAdded(q) {
		rest = max((rest-turnExtra)/4, l.roundTrip/2) * (1 + c.rests/4)
	} else {
		rest = max(rest/c.rests, l.roundTrip)
	}
	m.known.setTurned(q.key, m.now)
	m.rest(q, rest+m.jitter(rest/4))
}

// isAdded reports whether the backend has made steps on a key for this process a short time ago.
func (m *Machine) isAdded(q *queue) bool { return m.known.isAdded(q.key, m.now, m.config.Timeout) }

// rest lets a key rest.
func (m *Machine) rest(q *queue, span int64) {
	c := &q.contention
	c.restUntil = max(c.restUntil, m.now+span)
	if !c.timed {
		c.timed = true
		m.timers.add(timer{at: c.restUntil, queue: q})
	}
}

// rested is called when the rest of a key may be over.
func (m *Machine) rested(q *queue) {
	q.contention.timed = false
	if q.contention.isResting(m.now) {
		m.rest(q, 0)
		return
	}
	m.list(q)
	m.discard(q)
}

// won is called when a write to a key was done. It gives back the turn, if this process has it.
func (m *Machine) won(q *queue, l *lane) {
	c := &q.contention
	c.losses, c.rests, c.patientUntil, c.gives = 0, 0, 0, false
	if c.heldUntil > m.now {
		m.giveTurn(q, l)
	}
	c.heldUntil = 0
}

// giveTurn gives back the turn that this process has.
func (m *Machine) giveTurn(q *queue, l *lane) {
	q.contention.heldUntil = 0
	l.gives = append(l.gives, q.key.name)
	m.activate(l)
}

// proceed sends a flight as soon as its keys do not rest.
func (m *Machine) proceed(f *flight) {
	if m.closed {
		m.endAll(f, ErrDown)
		return
	}
	until := int64(0)
	for _, q := range f.queues {
		until = max(until, q.contention.restUntil)
	}
	if until > m.now {
		m.pause(f, until)
		return
	}
	m.listFlight(f)
}

// pause lets a flight wait.
func (m *Machine) pause(f *flight, until int64) {
	f.paused = true
	m.timers.add(timer{at: until, flight: f})
}

// resume ends the pause of a flight.
func (m *Machine) resume(f *flight) {
	f.paused = false
	if f.gone {
		m.recycle(f)
		return
	}
	m.proceed(f)
}

// listFlight puts a flight into the ready list of its lane.
func (m *Machine) listFlight(f *flight) {
	l := f.asked
	if l == nil {
		l = m.laneOfFlight(f)
	}
	f.listed = true
	m.enter(l, ready{flight: f})
}
