package combine

import "bytes"

// If other processes write a key, its value has usually changed by the time a write arrives. So if this process did not
// write the value that it found last, it asks the backend to make the steps itself, if the backend can (Adding). That
// takes one round trip, however many processes write and however far away they are, and nothing is computed again. The
// reply has the value before the steps, from which Run computes the decisions. As long as a key holds what this process
// wrote last, compare and set is used, because it costs the backend less: a script takes twice as much CPU time of a
// Redis, and five times as much of a Valkey. For the same reason, a flight on a key that this process uses rarely is
// compared and set, unless it loses twice. Others have probably written the key, but not within a round trip, so the
// second try succeeds.

// rareSpan is how long, in nanoseconds, this process has not looked at a key if it uses it rarely. If eight processes
// use a key once in this time each, one of the others writes it within a round trip of 10 ms in 7 of 100 cases.
const rareSpan = 1e9

// added is the state of a flight whose steps the backend may make.
type added struct {
	steps   []Adding // the steps of the flight
	only    bool     // steps that do not fit the first one wait for the next flight
	now     int64    // the instant for which they fit
	refused bool     // the backend cannot make them on the value of the key
	rare    bool     // the key was used rarely when the flight was sent first
}

// choose says whether a flight takes only steps that the backend can make. Otherwise a single step that has to be
// compared and set would make all steps before and behind it wait for its conflicts. A flight that begins with such a
// step takes all others in, because their decisions cost it nothing.
func (m *Machine) choose(f *flight, l *lane) {
	f.added.only = false
	if !f.formed && len(f.queues) == 1 {
		f.added.rare = m.isRare(f.queues[0].key, l)
	}
	if len(f.queues) != 1 || f.expiry || f.added.refused || !m.known.isForeign(f.queues[0].key) {
		return
	}
	f.dropEnded() // what Adds refers to is not theirs any more
	first := f.queues[0].front()
	if len(f.steps) > 0 {
		first = f.steps[0]
	}
	f.added.now = m.timeOf(l)
	f.added.only = first != nil && f.added.fits(first, first)
}

// isRare reports whether this process uses a key rarely, and there is time enough for two tries and a script.
// Within the timeout of its last use, the turns of other processes on the key would have to be looked at.
func (m *Machine) isRare(key keyID, l *lane) bool {
	return m.known.isOlder(key, m.now, max(rareSpan, m.config.Timeout)) && 5*l.roundTrip < m.config.Timeout
}

// isSpared reports whether a flight whose steps the backend could make is compared and set, because that costs less.
func (f *flight) isSpared() bool { return f.added.only && f.added.rare && f.losing.losses < 2 }

// fits reports whether the backend can make a step together with a first one.
func (a *added) fits(s, first *Step) bool {
	return s.Adds != nil && first.Adds != nil && s.Adds.Fits(first.Adds, a.now)
}

// isForBackend reports whether the backend is asked to make the steps of a flight itself. A flight that takes only such
// steps has one key, because no step on several keys fits.
func (m *Machine) isForBackend(f *flight) bool {
	if !f.added.only || f.isSpared() {
		return false
	}
	f.added.steps = f.added.steps[:0]
	for _, s := range f.steps {
		if !f.added.fits(s, f.steps[0]) {
			return false
		}
		f.added.steps = append(f.added.steps, s.Adds)
	}
	return true
}

// loadAdd adds a request that makes the steps to a batch.
func (m *Machine) loadAdd(f *flight, l *lane, b *Batch) {
	f.based = false
	f.partsToRead()
	f.requests = append(f.requests[:0], Request{Kind: Add, Parts: f.parts, Adds: f.added.steps, Now: m.timeOf(l),
		Turn: m.turnFor(f, l, Add), Asking: f.asked == l, flight: f})
	f.pending = 1
	b.Requests = append(b.Requests, &f.requests[0])
}

// wasAdded ends a flight whose steps the backend has made. It computes all of them, even if their callers have given
// up.
func (m *Machine) wasAdded(f *flight, r *Request, l *lane) {
	m.counters.Scripted += int64(len(f.steps))
	q := f.queues[0]
	before, own := m.known.written(q.key)
	own = own && bytes.Equal(before, r.Parts[0].Value.Bytes)
	m.learn(f, r, l)
	current, changed := f.base[0], false
	for i, s := range f.steps {
		if s.state.place != ended {
			m.outcome(s, r.Now, current)
		}
		next := f.added.steps[i].Apply(r.Now, current)
		changed = changed || !bytes.Equal(next.Bytes, current.Bytes)
		current = next
	}
	m.known.setForeign(q.key, f.base[0].Bytes != nil && !own)
	if changed {
		m.known.put(q.key, current.Bytes, current.Expires, m.sentAt)
		m.known.setWritten(q.key)
	}
	m.won(q, l)
	m.endAll(f, nil)
}

// outcome runs a step of one key for its decision only: the backend has made its change already.
func (m *Machine) outcome(s *Step, now int64, v Value) *Change {
	scratch := &m.scratch
	v.Expires = Never
	scratch.values = append(scratch.values[:0], v)
	scratch.changes = append(scratch.changes[:0], Change{})
	s.state.err = s.Run(now, scratch.values, scratch.changes)
	m.counters.Runs++
	return &scratch.changes[0]
}
