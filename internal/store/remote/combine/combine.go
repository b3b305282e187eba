package combine

import "math/rand/v2"

// The bounds of a machine.
const (
	maxWaitingPerKey = 10_000    // steps
	maxWaiting       = 100_000   // steps
	maxWaitingBytes  = 256 << 20 // of the commands of steps, unless a single one has more
	maxBatchBytes    = 1 << 20   // of values and commands; a batch takes in no more requests after that
	maxRunBytes      = 4 << 20   // of values that the steps of a flight run on, unless a single step has more
	maxCombined      = 2048      // steps of a flight
	maxFlightKeys    = 64        // keys of a flight, unless a single step has more
	maxPipeline      = 1024      // requests of a batch
	maxTries         = 64        // conflicts of a step without a deadline
)

// Config is what a machine is made with.
type Config struct {
	Topology Topology
	// Self identifies this process among all that share the backend. It is random and not zero.
	Self uint64
	// Known is how many keys are remembered at most, and KnownBytes how many bytes of keys and values.
	Known, KnownBytes int
	// Connections is how many connections to a primary and database are used at once.
	Connections int
	// Timeout is the time, in nanoseconds, after which a batch without reply counts as a failure of
	// its primary.
	Timeout int64
	// DenialAge is how long, in nanoseconds, a value may deny steps after this process has read or
	// written it. Steps that are denied end without a request. 0 means that every step is decided by the
	// present value.
	DenialAge int64
}

// Machine is the core of the remote store. It is not safe for concurrent use. Its methods take the
// monotonic time of the process, in nanoseconds, which is positive and never goes backwards.
//
// After each call of Submit, Finish and Advance, Next is to be called until it returns nil.
type Machine struct {
	config       Config
	now          int64
	sequence     uint64 // of the last step
	queues       map[keyID]*queue
	known        knownValues
	wheel        wheel
	timers       timers
	lanes        map[laneID]*lane
	recent       *lane   // the lane that was looked up last
	order        []*lane // all lanes, in the order in which they were first used
	active       []*lane // the lanes that Next looks at
	breakers     map[Primary]*breaker
	openBreakers int
	random       *rand.PCG
	outstanding  outstanding
	sentAt       int64 // when the batch was sent whose replies are looked at
	closed       bool
	counters     Counters

	freeFlights []*flight
	freeQueues  []*queue
	freeBatches []*Batch
	scratch     scratch
	onBreaker   func(p Primary, open bool)
}

// scratch is memory for one call of Step.Run.
type scratch struct {
	values  []Value
	changes []Change
	places  []int
}

// New returns a machine that has nothing to do.
func New(config Config) *Machine {
	return &Machine{
		config:      config,
		queues:      map[keyID]*queue{},
		known:       newKnownValues(config.Known, config.KnownBytes),
		lanes:       map[laneID]*lane{},
		breakers:    map[Primary]*breaker{},
		random:      rand.NewPCG(config.Self, 0),
		outstanding: outstanding{next: Never},
	}
}

// OnBreaker sets a function that is called when the circuit breaker of a primary opens or closes.
// It must neither block nor call the machine.
func (m *Machine) OnBreaker(f func(p Primary, open bool)) { m.onBreaker = f }

// Submit adds a step. The step belongs to the machine until its Done is called, which may happen
// before Submit returns.
func (m *Machine) Submit(now int64, s *Step) {
	m.now = max(m.now, now)
	if m.closed {
		s.Done(nil, ErrDown)
		return
	}
	m.sequence++
	s.state = stepState{sequence: m.sequence, place: queued}
	m.counters.Steps++
	m.counters.Waiting++
	s.state.bytes = bytesOf(s.Raw)
	m.counters.WaitingBytes += s.state.bytes
	if m.counters.Waiting > maxWaiting ||
		m.counters.WaitingBytes > maxWaitingBytes && m.counters.WaitingBytes > s.state.bytes {
		m.end(s, nil, ErrContended)
		return
	}
	if s.Deadline != 0 && s.Deadline <= m.now {
		m.end(s, nil, ErrDown)
		return
	}
	p := s.Primary
	if len(s.Keys) > 0 {
		p = m.config.Topology.Primary(s.Keys[0])
	}
	if m.isOpen(p) {
		m.end(s, nil, ErrDown)
		return
	}
	if s.Deniable && m.denies(s) {
		m.end(s, nil, nil)
		return
	}
	if !m.enqueue(s) {
		m.end(s, nil, ErrContended)
		return
	}
	if s.Deadline != 0 {
		m.wheel.add(s)
	}
	if len(s.Keys) == 0 {
		m.launchAlone(s)
	}
}

// Advance tells the machine the time. It is to be called at the time that Wake returns.
func (m *Machine) Advance(now int64) {
	m.now = max(m.now, now)
	for due, ok := m.timers.pop(m.now); ok; due, ok = m.timers.pop(m.now) {
		switch {
		case due.queue != nil:
			m.rested(due.queue)
		case due.flight != nil:
			m.resume(due.flight)
		case due.lane != nil:
			m.retry(due.lane)
		case due.broken != nil:
			m.tryAgain(due.broken)
		}
	}
	m.wheel.expire(m.now, m.late)
	m.judgeSlow()
}

// Wake returns the time at which Advance must be called next; Never if it need not be called.
func (m *Machine) Wake() int64 { return min(m.timers.next(), m.wheel.next(), m.outstanding.next) }

// end ends a step. Queues and flights may still refer to the step; they skip it.
func (m *Machine) end(s *Step, reply any, err error) {
	s.state.place = ended
	m.wheel.remove(s)
	m.counters.Waiting--
	m.counters.WaitingBytes -= s.state.bytes
	switch err {
	case ErrUnavailable:
		m.counters.Unsure++
	case ErrContended:
		m.counters.Contended++
	case ErrDown:
		m.counters.Down++
	}
	s.Done(reply, err)
}

// late ends a step whose deadline has passed.
func (m *Machine) late(s *Step) {
	err := ErrDown
	if m.isContended(s) {
		err = ErrContended
	}
	if s.state.place == queued {
		m.end(s, nil, err)
		m.leaveQueues(s)
		return
	}
	f := s.state.flight
	if f.isChanging(s) {
		err = ErrUnavailable
	}
	m.end(s, nil, err)
	m.leaveFlight(f)
}

func bytesOf(words [][]byte) (n int64) {
	for _, word := range words {
		n += int64(len(word))
	}
	return n
}

// jitter returns a random number below n.
func (m *Machine) jitter(n int64) int64 {
	if n <= 0 {
		return 0
	}
	return int64(m.random.Uint64() % uint64(n))
}
