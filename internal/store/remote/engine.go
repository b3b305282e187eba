package remote

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"cellserver/internal/store/remote/combine"
)

// Sender sends batches, as backend.Backend does.
type Sender interface {
	combine.Topology
	// Do sends a batch, and returns when its replies have arrived or are lost. It is called for several
	// connections at the same time.
	Do(*combine.Batch)
}

// hasty is a Sender with a Do for callers that have no time. If a batch may take long, Try returns false, and Do goes
// on with it.
type hasty interface {
	Try(*combine.Batch) (ended bool)
}

// EngineOptions configure an engine. All but DenialAge and OnBreaker must be set.
type EngineOptions struct {
	Sender     Sender
	Monotonic  func() int64 // the monotonic time of the process, in nanoseconds
	Self       uint64       // random, not 0: identifies this process to others on the same backend
	Known      int          // how many keys are remembered at most
	KnownBytes int
	// Connections to each primary and database. More of them shorten the time that a step waits for an
	// idle one, and make pipelines shorter.
	Connections int
	Timeout     time.Duration // a pipeline without reply for so long counts as a failure of its primary
	// DenialAge is how long a value may deny calls after it was read; 0 means that known values deny no call.
	DenialAge time.Duration
	// OnBreaker is called when the circuit breaker of a primary opens or closes. It must not block.
	OnBreaker func(p combine.Primary, open bool)
}

// Engine drives a combine.Machine: it is the Executor of a store that is shared by many goroutines.
//
// Workers are goroutines that send batches. A worker gives its batch back to the machine, hands over
// the steps that were submitted meanwhile, and takes the next batch. Submit only adds a step to the
// inbox. If a connection is idle, it wakes a worker; otherwise the next worker whose batch has its
// replies looks into the inbox. So while all connections are busy, a step costs no switch to another
// goroutine, and all steps submitted until a connection becomes idle share its next pipeline. Only a
// step that may end without a request wakes a worker even then: it should not wait for a round trip.
//
// A caller that waits for its step anyway can work too, until the step has ended (Drive). So a caller that is alone
// sends its step and reads the reply on its own goroutine. Waking a worker, and being woken by it, would take more time
// than all else that the process does for a call.
type Engine struct {
	sender    Sender
	hasty     hasty // the sender; nil if callers do not drive
	monotonic func() int64

	inbox struct {
		sync.Mutex
		steps  []*combine.Step
		woken  bool // a worker has been woken, and will look into the inbox
		hurry  bool // a step of a driver may end without a request
		busy   bool // no connection is idle
		broken bool // a circuit breaker is open
		closed bool
	}
	denies bool // values deny steps

	mu      sync.Mutex // guards what follows
	machine *combine.Machine
	spare   []*combine.Step // memory for the inbox
	timer   *time.Timer
	wakeAt  int64 // when the timer fires

	wake    chan struct{}       // an idle worker looks into the inbox
	batches chan *combine.Batch // an idle worker sends a batch
	idle    atomic.Int64        // workers that wait for either
	waiting atomic.Int64        // callers in Drive
	crowd   atomic.Int64        // how many callers must be alone in Drive, one after the other, before one drives
	stop    chan struct{}
	workers sync.WaitGroup
}

// maxIdle workers wait for something to do; others end.
const maxIdle = 8

// crowded is how many calls of a single caller, after calls of several, are left to workers. With several callers, a
// worker collects more steps for a pipeline.
const crowded = 16

// minDriven is the shortest timeout with which callers drive. A driver may notice late that its step has ended.
const minDriven = 100 * time.Millisecond

// NewEngine returns an engine that has nothing to do.
func NewEngine(o EngineOptions) *Engine {
	e := &Engine{
		sender: o.Sender, monotonic: o.Monotonic, denies: o.DenialAge > 0,
		machine: combine.New(combine.Config{
			Topology: o.Sender, Self: o.Self, Known: o.Known, KnownBytes: o.KnownBytes,
			Connections: o.Connections, Timeout: int64(o.Timeout), DenialAge: int64(o.DenialAge),
		}),
		wakeAt:  combine.Never,
		wake:    make(chan struct{}, 1),
		batches: make(chan *combine.Batch),
		stop:    make(chan struct{}),
	}
	if o.Timeout >= minDriven {
		e.hasty, _ = o.Sender.(hasty)
	}
	e.machine.OnBreaker(o.OnBreaker)
	e.timer = time.NewTimer(time.Hour)
	e.timer.Stop()
	e.hire(nil)
	e.workers.Go(e.keepTime)
	return e
}

// Submit begins a step. It does not wait for it.
func (e *Engine) Submit(s *combine.Step) { e.submit(s, false) }

// SubmitDriven implements Driver.
func (e *Engine) SubmitDriven(s *combine.Step) {
	e.submit(s, e.hasty != nil && e.waiting.Load() == 0 && e.crowd.Load() == 0)
}

func (e *Engine) submit(s *combine.Step, driven bool) {
	e.inbox.Lock()
	if e.inbox.closed {
		e.inbox.Unlock()
		s.Done(nil, combine.ErrDown)
		return
	}
	e.inbox.steps = append(e.inbox.steps, s)
	hurry := e.inbox.broken || e.denies && s.Deniable
	first := !e.inbox.woken && !driven && (hurry || !e.inbox.busy)
	e.inbox.woken = e.inbox.woken || first
	e.inbox.hurry = e.inbox.hurry || hurry
	e.inbox.Unlock()
	if first {
		select {
		case e.wake <- struct{}{}:
		default: // a worker is about to look
		}
	}
}

// Drive implements Driver.
func (e *Engine) Drive(done <-chan struct{}) {
	if e.hasty == nil {
		<-done
		return
	}
	if e.waiting.Add(1) > 1 {
		e.crowd.Store(crowded)
	} else if crowd := e.crowd.Load(); crowd > 0 {
		e.crowd.Store(crowd - 1)
	}
	if e.startDriving() {
		for b := e.turn(nil); b != nil; b = e.turn(b) {
			if hasEnded(done) || !e.hasty.Try(b) {
				e.delegate(b)
				break
			}
		}
		e.workers.Done()
	}
	<-done
	e.waiting.Add(-1)
}

func hasEnded(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// startDriving makes the caller a worker if none is about to look into the inbox, although something may be sent.
func (e *Engine) startDriving() bool {
	e.inbox.Lock()
	defer e.inbox.Unlock()
	in := &e.inbox
	if len(in.steps) == 0 || in.closed || in.woken || in.busy && !in.hurry {
		return false
	}
	e.workers.Add(1)
	return true
}

// Monotonic returns the instant on the clock of Step.Deadline.
func (e *Engine) Monotonic() int64 { return e.monotonic() }

// Counters returns what the machine has counted.
func (e *Engine) Counters() combine.Counters {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.machine.Counters()
}

// Close ends all steps that are not under way, calls disconnect, which must end all calls of Do,
// and waits for the workers.
func (e *Engine) Close(disconnect func()) {
	e.mu.Lock()
	e.inbox.Lock()
	closed := e.inbox.closed
	e.inbox.closed = true
	e.inbox.Unlock()
	if closed {
		e.mu.Unlock()
		return
	}
	e.empty(e.monotonic())
	e.machine.Close()
	e.mu.Unlock()
	disconnect()
	close(e.stop)
	e.workers.Wait()
}

// hire starts a worker, which begins with a batch, if there is one.
func (e *Engine) hire(b *combine.Batch) {
	e.idle.Add(1)
	e.workers.Go(func() { e.work(b) })
}

// work is a worker. It counts as idle when it begins.
func (e *Engine) work(b *combine.Batch) {
	for {
		if b == nil {
			select {
			case <-e.wake:
				runtime.Gosched() // others that are about to submit a step share the pipeline
				b = e.turn(nil)
			case b = <-e.batches:
			case <-e.stop:
				return
			}
		}
		if b == nil {
			continue
		}
		if e.idle.Add(-1) == 0 {
			e.hire(nil) // there is always a worker to look into the inbox
		}
		for b != nil {
			e.sender.Do(b)
			b = e.turn(b)
		}
		if e.idle.Add(1) > maxIdle {
			e.idle.Add(-1)
			return
		}
	}
}

// turn gives a batch back to the machine, if there is one, and submits the steps of the inbox. It
// returns the next batch, which the caller sends. Other workers send further batches.
func (e *Engine) turn(done *combine.Batch) (next *combine.Batch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.monotonic()
	if done != nil {
		e.machine.Finish(now, done)
	}
	if now >= e.machine.Wake() {
		e.machine.Advance(now)
	}
	e.empty(now)
	for {
		for b := e.machine.Next(now); b != nil; b = e.machine.Next(now) {
			if next == nil {
				next = b
			} else {
				e.delegate(b)
			}
		}
		if !e.empty(now) {
			break
		}
	}
	e.setTimer(now)
	return next
}

// empty submits the steps of the inbox. If it returns false, there were none: then the next step wakes a
// worker if a connection is idle.
func (e *Engine) empty(now int64) bool {
	e.inbox.Lock()
	steps := e.inbox.steps
	e.inbox.steps = e.spare[:0]
	e.inbox.woken, e.inbox.hurry = false, false
	e.inbox.busy, e.inbox.broken = e.machine.Busy(), e.machine.IsBroken()
	e.inbox.Unlock()
	if len(steps) > 0 {
		now = e.monotonic() // a step must not be decided at a time before it was submitted
	}
	for _, s := range steps {
		e.machine.Submit(now, s)
	}
	clear(steps)
	e.spare = steps
	return len(steps) > 0
}

// delegate has another worker send a batch.
func (e *Engine) delegate(b *combine.Batch) {
	select {
	case e.batches <- b:
	default:
		e.hire(b)
	}
}

// setTimer has keepTime tell the machine the time when it has to know it.
func (e *Engine) setTimer(now int64) {
	if wake := e.machine.Wake(); wake < e.wakeAt {
		e.wakeAt = wake
		e.timer.Reset(time.Duration(max(wake-now, 0)))
	}
}

// keepTime tells the machine the time.
func (e *Engine) keepTime() {
	for {
		select {
		case <-e.timer.C:
		case <-e.stop:
			return
		}
		e.mu.Lock()
		e.wakeAt = combine.Never
		e.mu.Unlock()
		if b := e.turn(nil); b != nil {
			e.mu.Lock()
			e.delegate(b)
			e.mu.Unlock()
		}
	}
}
