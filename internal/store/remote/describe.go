package remote

// Describe adds the fields of the section Store of INFO.
func (s *Store) Describe(add func(name string, value any)) {
	if s.Options.Describe != nil {
		s.Options.Describe(add)
	}
	s.describeBook(add)
}

// RoundTrips implements store.RoundTripper. If Options.RoundTrips is nil, it returns none.
func (s *Store) RoundTrips() (below map[float64]uint64, count uint64, sum float64) {
	if s.Options.RoundTrips == nil {
		return nil, 0, 0
	}
	return s.Options.RoundTrips()
}

// Describe adds what the machine has counted since the start.
func (e *Engine) Describe(add func(name string, value any)) {
	c := e.Counters()
	add("store_steps", c.Steps)
	add("store_steps_waiting", c.Waiting)
	add("store_pipelines", c.Batches)
	add("store_requests", c.Requests)
	add("store_steps_scripted", c.Scripted)
	add("store_conflicts", c.Conflicts)
	add("store_calls_contended", c.Contended)
	add("store_most_tries", c.MostTries)
	add("store_turns", c.Turns)
	add("store_requests_resent", c.Resent)
	add("store_requests_refused", c.Refused)
	add("store_breaker_openings", c.Openings)
	add("store_denials_known", c.Denials)
	add("store_keys_gone", c.Gone)
	add("store_keys_known", c.Known)
	add("store_keys_known_bytes", c.KnownBytes)
}
