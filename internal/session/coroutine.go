package session

import (
	"context"
	"iter"
	"sync"

	"cellserver/internal/command"
	"cellserver/internal/resp"
	"cellserver/internal/store"
)

// coroutine makes one call after another, each for any session. While a call waits for the store, the
// coroutine is suspended. Resuming one costs a fraction of a microsecond and allocates nothing, so
// coroutines are kept for further calls.
type coroutine struct {
	instance *Instance
	call     command.Call // Session is nil, as outside the event loop
	out      resp.Writer
	run      run // its words are copies, in bytes: the call may outlive the batch of its words
	bytes    []byte
	sized    bool     // the call reads a value of any length
	keys     [][]byte // if the call may use the store several times; else empty

	done    <-chan struct{} // closed when the call can run on
	driver  store.Driven    // of the call; nil if the store works by itself
	ended   bool
	charged int // bytes for which the session's client is charged

	answer func() error // makes the call; its time includes the wait until it is resumed
	next   func() (struct{}, bool)
	stop   func()
}

// newCoroutine returns a suspended coroutine.
func (in *Instance) newCoroutine() *coroutine {
	c := &coroutine{instance: in}
	c.call = command.Call{View: in.Store.View(), Out: &c.out, Server: &in.Server}
	c.answer = func() error {
		in.make(&c.run)
		return c.run.err
	}
	c.next, c.stop = iter.Pull(c.makeCalls)
	return c
}

// makeCalls makes calls until the coroutine is stopped.
func (c *coroutine) makeCalls(yield func(struct{}) bool) {
	wait := func(done <-chan struct{}) {
		c.done = done
		yield(struct{}{})
	}
	if c.driver, _ = c.call.View.(store.Driven); c.driver != nil {
		c.driver.SetDriven(wait)
	} else {
		c.call.View.(store.Suspender).SetWait(wait)
	}
	for more := yield(struct{}{}); more; more = yield(struct{}{}) {
		c.run.err = c.instance.guard(&c.call, c.run.row, c.answer)
		c.ended = true
	}
}

// resume runs the coroutine until its call waits or has ended.
func (c *coroutine) resume() { c.next() }

// await waits until the call can run on.
func (c *coroutine) await() {
	if c.driver != nil {
		c.driver.Drive(c.done)
		return
	}
	<-c.done
}

// begin prepares a call of a session, which resume then begins.
func (c *coroutine) begin(s *Session, row *command.Command, words [][]byte) {
	c.ended, c.call.Snapshot = false, s.call.Snapshot
	c.run = run{call: &c.call, row: row, words: c.copyWords(words)}
	if c.call.OneStep = row.MakesOneStep(words); !c.call.OneStep {
		c.keys = row.TouchedKeys(c.keys[:0], c.run.words, c.call.Snapshot)
	}
	c.out.SetProtocol(s.out.Protocol())
	c.call.Context, c.call.Client, c.call.Outcome = s.ctx, s.Client, s.call.Outcome
	c.call.View.Select(s.database)
	c.call.View.SetCaller(s.ID)
	c.call.View.Begin()
}

// refuse makes an error the reply, in place of a call.
func (c *coroutine) refuse(err error) { c.run, c.ended = run{err: err}, true }

// copyWords returns copies of words, in memory that is used again.
func (c *coroutine) copyWords(words [][]byte) (copies [][]byte) {
	copies, c.bytes = c.run.words[:0], c.bytes[:0]
	for _, word := range words {
		c.bytes = append(c.bytes, word...)
	}
	rest := c.bytes
	for _, word := range words {
		copies = append(copies, rest[:len(word):len(word)])
		rest = rest[len(word):]
	}
	return copies
}

// coroutineBytes estimates the memory of a coroutine, in bytes: its stack, its call and its view.
const coroutineBytes = 12 << 10

// size returns the memory that the coroutine uses, in bytes.
func (c *coroutine) size() int {
	return coroutineBytes + cap(c.bytes) + cap(c.call.Value) + c.out.Capacity()
}

// maxIdleBytes bounds the memory, in bytes, of each buffer of a coroutine that makes no call.
const maxIdleBytes = 1 << 10

// reset discards what is left of a call, and memory that most calls do not need.
func (c *coroutine) reset() {
	if c.out.Reset(); c.out.Capacity() > maxIdleBytes {
		c.out = resp.Writer{}
	}
	if cap(c.bytes) > maxIdleBytes {
		c.bytes = nil
	}
	clear(c.run.words)
	clear(c.keys)
	c.keys = c.keys[:0]
	c.call.Context, c.call.Client, c.call.Words = context.Background(), nil, nil
	c.call.Snapshot, c.call.Outcome = nil, nil
	c.done, c.sized, c.run = nil, false, run{words: c.run.words[:0]}
}

// coroutines holds the coroutines of an instance that make no call.
type coroutines struct {
	announces bool // the store is a store.Notifier

	mu    sync.Mutex
	idle  []*coroutine
	least int // the lowest number of idle since the latest trim
	users int // number of sessions, which may need coroutines
}

// takeCoroutine returns an idle coroutine, or a new one.
func (in *Instance) takeCoroutine() *coroutine {
	cs := &in.coroutines
	cs.mu.Lock()
	last := len(cs.idle) - 1
	if last < 0 {
		cs.mu.Unlock()
		c := in.newCoroutine()
		c.resume() // to its first suspension
		return c
	}
	defer cs.mu.Unlock()
	c := cs.idle[last]
	cs.idle[last] = nil
	cs.idle = cs.idle[:last]
	cs.least = min(cs.least, last)
	return c
}

// add adds idle coroutines.
func (cs *coroutines) add(idle []*coroutine) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.idle = append(cs.idle, idle...)
}

// trim stops the coroutines that no session has needed since the latest trim.
func (cs *coroutines) trim() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.stopIdle(len(cs.idle) - cs.least)
	cs.least = len(cs.idle) // until one is taken
}

// stopIdle stops idle coroutines until only so many are left. The caller holds the lock.
func (cs *coroutines) stopIdle(left int) {
	for _, c := range cs.idle[left:] {
		c.stop()
	}
	clear(cs.idle[left:])
	cs.idle, cs.least = cs.idle[:left], min(cs.least, left)
}

// addUser is called when a session begins.
func (cs *coroutines) addUser() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.users++
}

// removeUser is called when a session ends. Without sessions, no coroutine is kept.
func (cs *coroutines) removeUser() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.users--; cs.users == 0 {
		cs.stopIdle(0)
	}
}
