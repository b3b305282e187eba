package combine

import "slices"

// compute runs the steps of a flight that have not been computed yet. Each step gets the values that
// the steps before it have left. compute reports whether anything changes.
func (m *Machine) compute(f *flight, l *lane) (changes bool) {
	if f.computed == 0 {
		f.dropEnded()
		m.giveBack(f)
		f.current = append(f.current[:0], f.base...)
		f.parts = f.parts[:0]
		for i, q := range f.queues {
			f.parts = append(f.parts, Part{Key: q.key.name, Known: f.base[i].Bytes, Expires: KeepExpiry})
		}
	}
	now := m.timeOf(l)
	for ; f.computed < len(f.steps); f.computed++ {
		if s := f.steps[f.computed]; s.state.place != ended {
			m.run(f, s, now)
		}
	}
	return slices.ContainsFunc(f.parts, func(p Part) bool { return p.Op != Keep })
}

// giveBack puts the last steps of a flight back into the queues if the values of its keys are so large that running all
// steps would take long: they run under the lock of the machine.
func (m *Machine) giveBack(f *flight) {
	bytes := 1
	for i := range f.base {
		bytes += len(f.base[i].Bytes)
	}
	most := max(maxRunBytes/bytes, 1)
	for len(f.steps) > most {
		last := len(f.steps) - 1
		s := f.steps[last]
		f.steps[last] = nil
		f.steps = f.steps[:last]
		f.live--
		s.state.place, s.state.flight = queued, nil
		for _, name := range s.Keys {
			m.queues[keyID{s.Database, name}].putBack(s)
		}
	}
}

// run runs one step.
func (m *Machine) run(f *flight, s *Step, now int64) {
	scratch := &m.scratch
	scratch.places = m.places(f, s, scratch.places[:0])
	scratch.values = scratch.values[:0]
	for _, at := range scratch.places {
		scratch.values = append(scratch.values, f.current[at])
	}
	n := len(scratch.places)
	scratch.changes = slices.Grow(scratch.changes[:0], n)[:n]
	clear(scratch.changes)
	s.state.err = s.Run(now, scratch.values, scratch.changes)
	m.counters.Runs++
	if s.state.err != nil {
		return
	}
	for i, at := range scratch.places {
		if f.otherExpiry(at, &scratch.changes[i]) {
			s.state.err = ErrConflict
			return
		}
	}
	for i, at := range scratch.places {
		f.apply(at, &scratch.changes[i])
	}
}

// otherExpiry reports whether an earlier step has given a key an expiry that a change does not expect.
func (f *flight) otherExpiry(at int, change *Change) bool {
	part := &f.parts[at]
	return change.ComparesExpiry && part.Op == Set && part.Expires != KeepExpiry && part.Expires != change.Before
}

// places appends the positions that a step's keys have among the keys of the flight.
func (m *Machine) places(f *flight, s *Step, at []int) []int {
	for i, name := range s.Keys {
		if i >= len(f.queues) || f.queues[i].key.name != name {
			i = m.queues[keyID{s.Database, name}].index
		}
		at = append(at, i)
	}
	return at
}

// apply merges a change of a step into the change of the flight.
func (f *flight) apply(at int, change *Change) {
	part, current, base := &f.parts[at], &f.current[at], &f.base[at]
	untouched := part.Op == Keep && part.Expires == KeepExpiry
	if untouched && change.Compared > 0 {
		part.Compared = change.Compared
	}
	if untouched && change.ComparesExpiry && base.Bytes != nil {
		part.Before, part.ComparesExpiry = change.Before, true
	}
	switch change.Op {
	case Set:
		expires := change.Expires
		if expires == KeepExpiry {
			expires = Never
			if current.Bytes != nil {
				expires = part.Expires // set by an earlier step, or KeepExpiry
			}
		} else {
			current.Expires = expires
		}
		if current.Bytes == nil {
			current.Expires = expires
		}
		part.Op, part.Bytes, part.Expires = Set, change.Bytes, expires
		if part.Bytes == nil {
			part.Bytes = []byte{}
		}
		current.Bytes = part.Bytes
	case Remove:
		part.Op, part.Bytes, part.Expires = Remove, nil, Never
		if base.Bytes == nil {
			part.Op = Keep
		}
		*current = Value{Expires: Never}
	}
}
