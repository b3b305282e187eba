package combine

// Close ends all steps that are not under way. Steps under way end when their batch is given back, and
// steps that are submitted later end at once. Nothing is sent any more.
func (m *Machine) Close() {
	m.closed = true
	for _, l := range m.order {
		for _, what := range l.ready[l.first:] {
			if f := what.flight; f != nil && !f.gone {
				m.endAll(f, ErrDown)
			}
		}
	}
	for _, q := range m.queues {
		if f := q.flight; f != nil && !f.sent {
			m.endAll(f, ErrDown)
		}
		for _, s := range q.steps[q.first:] {
			if s != nil && s.state.place == queued {
				m.end(s, nil, ErrDown)
			}
		}
	}
}

// Busy reports whether all connections are in use, so that a step that is submitted now cannot be sent
// before one of them is idle.
func (m *Machine) Busy() bool {
	return m.outstanding.batches > 0 && m.outstanding.batches == len(m.order)*m.config.Connections
}
