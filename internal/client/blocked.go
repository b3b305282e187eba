package client

import (
	"math"
	"sync"
	"time"

	"cellserver/internal/store"
)

// BlockedClients holds the clients that wait: for a time or for another client, in WAIT, CLIENT
// PAUSE and DEBUG SLEEP, or for a limiter, with the option WAIT. A blocked client has no goroutine:
// its session makes no call, and its event loop serves the other clients.
type BlockedClients struct {
	clock store.Clock
	// paused is called, with the lock held, when a pause begins (true) or ends (false).
	paused func(on bool)

	mu      sync.Mutex
	clients map[*Client]Block
	// waiting holds the clients whose waits end with Answer. They are not in clients, which Tick visits.
	waiting map[*Client]Interrupter
	timer   *time.Timer
	next    int64 // instant for which the timer is set; store.Never if it is not set
	stopped bool  // the server is stopping, so no client waits
	pause   pause
}

// State says whether the session of a client makes calls. The session changes it from Running, and back when
// it takes a delivery. BlockedClients changes it when a wait ends.
type State int32

const (
	Running   State = iota // the session makes calls as they arrive
	Parked                 // a call is being made outside the event loop, or its reply is in the mailbox
	Blocked                // the client waits in a call, such as WAIT, or for a limiter
	Postponed              // the next call waits for the end of a CLIENT PAUSE
)

// State returns the state of the client's session. Any goroutine may call it.
func (c *Client) State() State { return State(c.state.Load()) }

// SetState changes the state. Only the session calls it, and BlockedClients.
func (c *Client) SetState(s State) { c.state.Store(int32(s)) }

// Block describes the wait of a blocked client.
type Block struct {
	Until int64  // instant, nanoseconds, at which the wait times out; store.Never if it does not
	Reply string // in RESP, sent when the wait times out
	Ended func() // called when the wait ends; may be nil

	// forPause is set if the client waits for the end of a pause. Its call is made after the pause,
	// so Reply is not sent.
	forPause bool
}

// Interrupter is the wait of a client that ends with Answer.
type Interrupter interface {
	// Interrupt is called, perhaps several times, if the wait of a client must end early: because of CLIENT
	// UNBLOCK, or because the server stops. It must make sure that Answer is called soon, with refusal, which is
	// an error reply in RESP, or if refusal is empty, with the reply to a call whose time is over. BlockedClients
	// is locked meanwhile.
	Interrupt(c *Client, refusal string)
}

// pause is a CLIENT PAUSE.
type pause struct {
	until int64 // instant, nanoseconds; 0 if there is no pause
	all   bool  // all calls wait, not only writes
}

// shortestWait is the least time between two runs of Tick, because each takes time in proportion to
// the number of blocked clients.
const shortestWait = time.Millisecond

// Begin initializes b. It calls paused, with the lock held, when a pause begins and when it ends.
func (b *BlockedClients) Begin(clock store.Clock, paused func(on bool)) {
	b.clock, b.paused = clock, paused
	b.clients, b.waiting, b.next = make(map[*Client]Block), make(map[*Client]Interrupter), store.Never
}

// AddWaiting blocks a client until Answer is called.
func (b *BlockedClients) AddWaiting(c *Client, w Interrupter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c.SetState(Blocked)
	if b.waiting[c] = w; b.stopped {
		w.Interrupt(c, "")
	}
}

// Answer ends a wait that AddWaiting has begun, with a reply. It does nothing for a client whose
// connection has ended.
func (b *BlockedClients) Answer(c *Client, d Delivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting[c] == nil {
		return
	}
	delete(b.waiting, c)
	c.SetState(Parked)
	c.Deliver(d)
}

// Add blocks a client until w.Until, or until Unblock or End is called. The client's session makes no
// call meanwhile.
func (b *BlockedClients) Add(c *Client, w Block) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(c, w)
}

func (b *BlockedClients) add(c *Client, w Block) {
	c.SetState(Blocked)
	if w.forPause {
		c.SetState(Postponed)
	}
	b.clients[c] = w
	if b.stopped {
		b.release(c, w.Reply)
	} else {
		b.wakeAt(w.Until)
	}
}

// release ends a client's wait with a reply. b.mu must be locked.
func (b *BlockedClients) release(c *Client, reply string) {
	if ended := b.clients[c].Ended; ended != nil {
		ended()
	}
	delete(b.clients, c)
	c.SetState(Parked)
	if reply == "" {
		c.Deliver(Delivery{})
	} else {
		c.Deliver(Delivery{Reply: [][]byte{[]byte(reply)}})
	}
}

// Forget removes a client whose connection has ended.
func (b *BlockedClients) Forget(c *Client) {
	if c.State() > Parked {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.clients, c)
		delete(b.waiting, c)
		c.SetState(Parked)
	}
}

// wakeAt sets the timer to an instant unless it is set to an earlier one. b.mu must be locked.
func (b *BlockedClients) wakeAt(instant int64) {
	if instant >= b.next {
		return
	}
	b.next = instant
	in := max(time.Duration(instant-b.clock.Now()), shortestWait)
	if b.timer == nil {
		b.timer = time.AfterFunc(in, b.Tick)
	} else {
		b.timer.Reset(in)
	}
}

// Tick ends every wait that has timed out, and a pause that is over. The timer calls it; tests with a
// manual clock do too.
func (b *BlockedClients) Tick() {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	b.next = store.Never
	if b.pause.until != 0 && now >= b.pause.until {
		b.unpause()
	}
	next := store.Never
	if b.pause.until != 0 {
		next = b.pause.until
	}
	for c, w := range b.clients {
		if !w.forPause && now >= w.Until {
			b.release(c, w.Reply)
		} else {
			next = min(next, w.Until)
		}
	}
	b.wakeAt(next)
}

// Unblock ends the wait of a client with a reply, or with the reply of its Block if reply is empty. It
// returns false if the client is not blocked, or only waits for the end of a pause. A client that waits
// for a limiter may be admitted at the same moment, and then gets the reply to that.
func (b *BlockedClients) Unblock(c *Client, reply string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w := b.waiting[c]; w != nil {
		w.Interrupt(c, reply)
		return true
	}
	w, blocked := b.clients[c]
	if !blocked || w.forPause {
		return false
	}
	if reply == "" {
		reply = w.Reply
	}
	b.release(c, reply)
	return true
}

// Count returns the number of blocked clients.
func (b *BlockedClients) Count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.clients) + len(b.waiting)
}

// End ends the pause and every wait, and makes later waits end at once. It is called when the server
// stops.
func (b *BlockedClients) End() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unpause()
	b.stopped = true
	for c, w := range b.clients {
		b.release(c, w.Reply)
	}
	for c, w := range b.waiting {
		w.Interrupt(c, "")
	}
}

// Pause pauses calls until an instant: all calls, or only writes. If a pause is in force, it
// can make that longer or extend it to all calls, but not the reverse.
func (b *BlockedClients) Pause(until int64, all bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return
	}
	b.pause.until = max(b.pause.until, until)
	b.pause.all = b.pause.all || all
	b.paused(true)
	b.wakeAt(b.pause.until)
}

// Unpause ends the pause. Then the calls are made that have waited for its end.
func (b *BlockedClients) Unpause() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unpause()
}

func (b *BlockedClients) unpause() {
	b.pause = pause{}
	b.paused(false)
	for c, w := range b.clients {
		if w.forPause {
			b.release(c, "")
		}
	}
}

// Hold blocks a client before its next call if the call has to wait for the end of a pause; else it
// returns false.
func (b *BlockedClients) Hold(c *Client, writes bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.pause.until == 0 || !writes && !b.pause.all:
		return false
	case b.clock.Now() >= b.pause.until:
		b.unpause() // Tick has not run yet
		return false
	}
	b.add(c, Block{Until: math.MaxInt64, forPause: true})
	return true
}

// MsAfter returns the instant that is ms milliseconds after now; store.Never if it is too large for
// an int64.
func MsAfter(now, ms int64) int64 {
	if ms > (store.Never-now)/int64(time.Millisecond) {
		return store.Never
	}
	return now + ms*int64(time.Millisecond)
}
