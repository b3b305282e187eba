package combine

// Counters count what a machine has done.
type Counters struct {
	Steps        int64 // submitted
	Waiting      int64 // submitted steps that have not ended
	WaitingBytes int64 // of the commands of waiting steps
	Runs         int64 // calls of Step.Run
	Batches      int64 // pipelines sent
	Requests     int64 // sent in batches
	Reads        int64 // requests that only read
	Commands     int64 // requests that are commands of callers
	Connects     int64 // connections opened, or tried to

	Scripted  int64 // steps that the backend made itself
	Conflicts int64 // writes that were not done, because the keys did not hold what was known
	MostTries int64 // the most conflicts of a step
	Turns     int64 // writes that asked for the turn
	Rests     int64 // times that a key rested because of another's turn
	Resent    int64 // requests sent again, because nothing had been done

	Unsure    int64 // steps that ended with ErrUnavailable
	Down      int64 // steps that ended with ErrDown
	Contended int64 // steps that ended with ErrContended
	Refused   int64 // requests that the backend refused
	Denials   int64 // steps that ended with a denial by a known value
	Gone      int64 // keys that were known to be live, and were found gone
	Openings  int64 // times that a circuit breaker has opened

	Queues     int64 // keys with steps that wait or are under way
	Known      int64 // keys whose values are known
	KnownBytes int64 // bytes of these keys and values
}

// Counters returns the counters.
func (m *Machine) Counters() Counters {
	c := m.counters
	c.Queues = int64(len(m.queues))
	c.Known, c.KnownBytes = int64(len(m.known.index)), int64(m.known.bytes)
	return c
}
