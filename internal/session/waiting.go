package session

import (
	"context"
	"encoding/binary"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/store"
	"cellserver/internal/waiting"
)

// waitingCalls holds the calls of an instance that wait for a limiter, and runs their rows again when
// the queue says so (package waiting). While no call waits, none of this runs.
//
// A goroutine runs the rows, not the event loop whose client has made a limiter admit calls. It takes one
// slot of the background, offers the slot to others after each call, and ends when no call is due. Over a
// store that may block, several goroutines ask about several keys at once, but only one about each key.
//
// While calls wait, waitingCalls listens to the changes of the store. The listener only notes that a call is
// due. If the store announces no changes, a key is asked about every pollEvery.
type waitingCalls struct {
	instance *Instance
	notifier store.Notifier // nil if the store announces no changes
	most     int            // number of workers

	mu          sync.Mutex
	queue       *waiting.Queue[*waiter] // nil until the first call waits
	max         int                     // see waiting.Queue.SetMax
	ids         map[idPlace]*waiter     // the calls that have an ID
	withIDs     atomic.Int64            // number of ids
	workers     int                     // goroutines that run rows
	idle        sync.Cond               // signalled when a worker ends
	timer       *time.Timer
	timerAt     int64 // instant; store.Never if the timer is not set
	unsubscribe func()
}

const (
	// maxWorkers bounds the goroutines that run rows over a store that may block.
	maxWorkers = 64
	// pollEvery is the longest time, in nanoseconds, until the store is asked about a key again, if it
	// does not announce changes.
	pollEvery = int64(100 * time.Millisecond)
)

// waiter is a call that waits.
type waiter struct {
	waiting.Call[*waiter]
	instance *Instance
	row      *command.Command
	packed   []byte // the words: each after its length
	database int
	id       *waitingID // nil if the call has none
	memory   int        // bytes that the queue may need to keep keys for the call
	waiterState
}

// waiterState is the part of a waiter that may change while it is its turn. The lock of waitingCalls guards
// it.
type waiterState struct {
	session    *Session // whose client gets the reply
	middleware func(c *command.Call) error
	caching    bool
	refusal    string // the error reply, in RESP, of a call that CLIENT UNBLOCK has ended
}

// waiterBytes estimates the memory of a waiter, in bytes, in addition to its words and its key.
const waiterBytes = 768

// bytes returns the memory for which the client is charged.
func (w *waiter) bytes() int { return waiterBytes + 2*cap(w.packed) + w.memory }

// begin is called when the instance begins.
func (ws *waitingCalls) begin(in *Instance) {
	ws.instance, ws.max, ws.timerAt, ws.most = in, math.MaxInt, store.Never, 1
	ws.idle.L = &ws.mu
	ws.notifier, _ = in.Store.(store.Notifier)
	if in.Store.MayBlock() {
		ws.most = maxWorkers
	}
}

// SetMaxWaiting bounds the number of calls that wait.
func (in *Instance) SetMaxWaiting(calls int) {
	ws := &in.waiting
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.max = calls; ws.queue != nil {
		ws.queue.SetMax(calls)
	}
}

// count returns the number of calls that wait.
func (ws *waitingCalls) count() int {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.queue == nil {
		return 0
	}
	return ws.queue.Len()
}

// SetPaused is called when a CLIENT PAUSE begins and ends.
func (in *Instance) SetPaused(on bool) {
	in.Hooks.Set(command.Paused, on)
	in.waiting.change(func(q *waiting.Queue[*waiter]) { q.Pause(on) })
}

// change changes the queue, if there is one, and arranges that due calls are run.
func (ws *waitingCalls) change(f func(q *waiting.Queue[*waiter])) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.queue != nil {
		f(ws.queue)
		ws.schedule()
	}
}

// IsAwaited implements command.Session.
func (s *Session) IsAwaited(key []byte) bool {
	ws := &s.instance.waiting
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.queue != nil && ws.queue.HasCalls(s.database, key)
}

// WaitingCalls returns the first calls that wait for a key of a database, at most most.
func (in *Instance) WaitingCalls(database int, key []byte, most int) (calls []command.WaitingCall) {
	ws := &in.waiting
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.queue == nil {
		return nil
	}
	now := in.Now()
	for _, c := range ws.queue.First(database, key, most) {
		w := c.Of
		calls = append(calls,
			command.WaitingCall{Client: w.session.ID, Command: w.row.Name, Left: max(c.Deadline()-now, 0)})
	}
	return calls
}

// Wait implements command.Session. The call counts when it ends.
func (s *Session) Wait(d command.Delay) error {
	w := &waiter{
		instance: s.instance, row: s.call.Row, database: s.database, waiterState: s.waiterState(),
	}
	w.Of, w.packed, w.id, w.memory = w, pack(s.call.Words), newWaitingID(s.database, d.ID), d.Memory
	return s.parkWith(w, func() error { return s.instance.waiting.add(w, d) })
}

func (s *Session) waiterState() waiterState {
	return waiterState{session: s, middleware: s.call.Middleware, caching: s.call.Caching}
}

// parkWith parks the session until a call that waits is answered. If enter returns an error, the session
// does not wait for it.
func (s *Session) parkWith(w *waiter, enter func() error) error {
	s.dropReply = s.isMuted()
	s.instance.Blocked.AddWaiting(s.Client, w)
	if err := enter(); err != nil {
		s.instance.Blocked.Forget(s.Client)
		s.dropReply = false
		s.SetState(client.Running)
		return err
	}
	s.tallies[s.tally].calls--
	s.waiter = w
	s.Charge(w.bytes())
	return nil
}

// pack joins words into one piece of memory.
func pack(words [][]byte) (packed []byte) {
	size := 0
	for _, word := range words {
		size += len(word) + binary.MaxVarintLen32
	}
	packed = make([]byte, 0, size)
	for _, word := range words {
		packed = append(binary.AppendUvarint(packed, uint64(len(word))), word...)
	}
	return packed
}

// unpack appends the words of a waiter to words.
func (w *waiter) unpack(words [][]byte) [][]byte {
	for rest := w.packed; len(rest) > 0; {
		length, n := binary.Uvarint(rest)
		end := n + int(length)
		words = append(words, rest[n:end:end])
		rest = rest[end:]
	}
	return words
}

// add lets a call wait for a key.
func (ws *waitingCalls) add(w *waiter, d command.Delay) error {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.queue == nil {
		ws.queue = waiting.New[*waiter]()
		ws.queue.SetMax(ws.max)
		ws.queue.Pause(ws.instance.Hooks.Has(command.Paused))
	}
	if ws.unsubscribe == nil && ws.notifier != nil {
		ws.unsubscribe = ws.notifier.Subscribe(ws.noteChange)
	}
	defer ws.schedule()
	now := ws.instance.Now()
	if ws.queue.Add(&w.Call, w.database, d.Key, now+d.Left, now) != nil {
		return command.ErrManyWait
	}
	ws.queue.SetKeys(&w.Call, w.database, func(i int) []byte { return d.Needs[i].Key }, len(d.Needs))
	ws.addID(w)
	return nil
}

// leave removes a call whose client has disconnected, unless another client has taken its place. If its
// row is running at this moment, what the row takes stays taken.
func (ws *waitingCalls) leave(w *waiter, s *Session) {
	ws.change(func(q *waiting.Queue[*waiter]) {
		if w.session == s {
			ws.remove(w)
		}
	})
}

// remove removes a call from the queue. ws.mu must be locked.
func (ws *waitingCalls) remove(w *waiter) {
	ws.queue.Leave(&w.Call, ws.instance.Now())
	ws.forgetID(w)
}

// end removes a call that has ended, and returns the session that gets the reply.
func (ws *waitingCalls) end(w *waiter) (s *Session) {
	ws.change(func(*waiting.Queue[*waiter]) {
		ws.remove(w)
		s = w.session
	})
	return s
}

// Interrupt implements client.Interrupter.
func (w *waiter) Interrupt(c *client.Client, refusal string) {
	w.instance.waiting.change(func(q *waiting.Queue[*waiter]) {
		if w.session.Client == c {
			w.refusal = refusal
			q.End(&w.Call)
		}
	})
}

// noteChange is the listener of the store. A call that only takes from its keys cannot make them admit
// others, so it is ignored.
func (ws *waitingCalls) noteChange(database int, key []byte, why store.Event, by int64) {
	if why == store.Flushed {
		ws.change(func(q *waiting.Queue[*waiter]) { q.WakeAll() })
		return
	}
	if !ws.queue.MayWait(database, key) {
		return
	}
	if why == store.Changed || why == store.Created {
		c := ws.instance.runningCall(by)
		if c != nil && c.Row != nil && c.Row.Keys.Takes != nil && c.Row.Keys.Takes(c) {
			return
		}
	}
	ws.change(func(q *waiting.Queue[*waiter]) { q.Wake(database, key, ws.instance.Now()) })
}

// schedule starts a worker if a call is due and not all workers run, or sets the timer for the next
// call. ws.mu must be locked.
func (ws *waitingCalls) schedule() {
	if ws.queue.Len() == 0 && ws.unsubscribe != nil {
		ws.unsubscribe()
		ws.unsubscribe = nil
	}
	switch at, now := ws.queue.At(), ws.instance.Now(); {
	case at <= now:
		if ws.workers < ws.most {
			ws.workers++
			go ws.work()
		}
	case at < ws.timerAt:
		ws.timerAt = at
		if in := time.Duration(at - now); ws.timer == nil {
			ws.timer = time.AfterFunc(in, ws.tick)
		} else {
			ws.timer.Reset(in)
		}
	}
}

// tick is called by the timer, and by tests that have advanced the clock.
func (ws *waitingCalls) tick() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.timerAt = store.Never; ws.queue != nil {
		ws.schedule()
	}
}

// RunWaiting runs the rows of the calls that are due, and waits for that. It is for tests, which advance
// the clock. It returns the instant at which the next call is due, or store.Never.
func (in *Instance) RunWaiting() (next int64) {
	ws := &in.waiting
	ws.tick()
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for ws.workers > 0 {
		ws.idle.Wait()
	}
	if ws.queue == nil {
		return store.Never
	}
	return ws.queue.At()
}

// work runs the rows of calls until none is due.
func (ws *waitingCalls) work() {
	slots := ws.instance.Background
	slots.Acquire(context.Background())
	defer slots.Release()
	r := newRerun(ws.instance)
	for {
		w, state, due := ws.next()
		if due == waiting.Nothing {
			return
		}
		r.again(w, state, due)
		runtime.Gosched()
		slots.Yield()
	}
}

// next returns the next call that is due, and its state at this moment. If there is none, the worker must
// end.
func (ws *waitingCalls) next() (*waiter, rerunState, waiting.Due) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	defer ws.schedule()
	c, due := ws.queue.Next(ws.instance.Now())
	if due == waiting.Nothing {
		ws.workers--
		ws.idle.Broadcast()
		return nil, rerunState{}, due
	}
	return c.Of, rerunState{c.Of.waiterState, c.Deadline(), c.Key()}, due
}

// stay lets a call wait on, and reports whether it waits. If there is an error, it is the reply of the call.
func (ws *waitingCalls) stay(w *waiter, d command.Delay, began int64) (stays bool, err error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	defer ws.schedule()
	latest, now := int64(math.MaxInt64), ws.instance.Now()
	if ws.notifier == nil {
		latest = began + pollEvery
	}
	needs := make([]waiting.Need, 0, 8)
	for i := range d.Needs {
		needs = append(needs, waiting.Need(d.Needs[i]))
	}
	if len(needs) == 0 {
		needs = append(needs, waiting.Need{Key: d.Key, RetryAfter: d.RetryAfter})
	}
	if ws.queue.StayAmong(&w.Call, w.database, needs, began, latest, now) == waiting.ErrMany {
		return false, command.ErrManyWait
	}
	return true, nil
}
