package combine

// denies reports whether a value that was read a short time ago denies a step. Such a value may only
// deny. If other processes have taken from the limit since, the denial is still right; if they have given
// something back, the caller is denied for a moment longer. The step is computed from the value at the
// present time, so a denial never lasts beyond its own retry_after.
//
// If steps on the key wait or are under way, the step waits behind them: one of them may come from the
// same caller, and give back what this step takes.
func (m *Machine) denies(s *Step) bool {
	if m.config.DenialAge == 0 {
		return false
	}
	key := keyID{s.Database, s.Keys[0]}
	if q := m.queues[key]; q != nil && (q.waiting > 0 || q.flight != nil) {
		return false
	}
	value, _, known := m.known.get(key)
	if !known {
		return false
	}
	if m.now-m.known.heldSince(key) > m.config.DenialAge {
		return false // it is too old
	}
	l := m.laneOf(key)
	if l.find(idle) < 0 && l.find(busy) < 0 {
		return false // the key may have come to another primary, whose clock is not known yet
	}
	if !m.isDenial(s, Value{Bytes: value}, m.timeOf(l)) {
		return false
	}
	m.counters.Denials++
	return true
}

// isDenial runs a step on a value of its key.
func (m *Machine) isDenial(s *Step, v Value, now int64) bool {
	change := m.outcome(s, now, v)
	return s.state.err == nil && change.Denied && change.Op == Keep
}
