package client

import (
	"math"
	"sync"
	"time"

	"cellserver/internal/store"
)

// BlockedClients are the clients whose call waits for a time or for another client (WAIT, CLIENT
// PAUSE, DEBUG SLEEP). A blocked client has no goroutine: its session reads nothing more, and its
// event loop serves the others. There are never more of them than clients.
type BlockedClients struct {
	clock store.Clock
	// paused is called with the lock held when a pause begins or ends.
	paused func(on bool)

	mu      sync.Mutex
	clients map[*Client]Block
	timer   *time.Timer
	next    int64 // instant that the timer is set to, store.Never if it is not
	over    bool  // the server stops: no call waits any more
	pause   pause
}

// Block is what a client waits for.
type Block struct {
	Until int64  // instant, nanoseconds; store.Never if only another client can end it
	Reply string // what ends it, in RESP
	Ended func() // is called when it is over; may be nil

	// held is set for a call that waits for a pause to end. The call has not been made: it is made
	// then, and there is no reply before.
	held bool
}

// pause is a CLIENT PAUSE.
type pause struct {
	until int64 // instant, nanoseconds; 0 if there is none
	all   bool  // every call waits, not only calls that write
}

// shortestWait is the least time between two looks at the blocked clients, because a look takes
// time in proportion to their number.
const shortestWait = time.Millisecond

// Begin sets the clock, and the function that is called when a pause begins or ends.
func (b *BlockedClients) Begin(clock store.Clock, paused func(on bool)) {
	b.clock, b.paused = clock, paused
	b.clients, b.next = make(map[*Client]Block), store.Never
}

// Add blocks a client until the instant of w, or until Unblock or End is called. The client's
// session makes no call meanwhile.
func (b *BlockedClients) Add(c *Client, w Block) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(c, w)
}

func (b *BlockedClients) add(c *Client, w Block) {
	c.Parked.Store(true)
	c.Blocked.Store(true)
	b.clients[c] = w
	if b.over {
		b.release(c, w.Reply)
	} else {
		b.wakeAt(w.Until)
	}
}

// release ends a client's wait. It needs the lock.
func (b *BlockedClients) release(c *Client, reply string) {
	if ended := b.clients[c].Ended; ended != nil {
		ended()
	}
	delete(b.clients, c)
	c.Blocked.Store(false)
	if reply == "" {
		c.Deliver(Delivery{})
	} else {
		c.Deliver(Delivery{Reply: [][]byte{[]byte(reply)}})
	}
}

// Forget drops a client whose connection has ended.
func (b *BlockedClients) Forget(c *Client) {
	if c.Blocked.Load() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.clients, c)
	}
}

// wakeAt sets the timer, if it is set to a later instant. It needs the lock.
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

// Tick ends every wait, and the pause, whose time is over. The timer calls it, and tests whose clock
// stands still.
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
		if !w.held && now >= w.Until {
			b.release(c, w.Reply)
		} else {
			next = min(next, w.Until)
		}
	}
	b.wakeAt(next)
}

// Unblock ends the wait of a client with a reply, or with the one it was blocked with if reply is
// empty. It returns false if the client is not blocked, or only paused.
func (b *BlockedClients) Unblock(c *Client, reply string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	w, blocked := b.clients[c]
	if !blocked || w.held {
		return false
	}
	if reply == "" {
		reply = w.Reply
	}
	b.release(c, reply)
	return true
}

// Count is the number of blocked clients.
func (b *BlockedClients) Count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.clients)
}

// End ends the pause and every wait as if its time were over, and all that begin later: the server
// stops.
func (b *BlockedClients) End() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unpause()
	b.over = true
	for c, w := range b.clients {
		b.release(c, w.Reply)
	}
}

// Pause begins a pause until an instant, of all calls or of those that write. It makes a pause that
// is in force longer and stricter, never shorter or laxer.
func (b *BlockedClients) Pause(until int64, all bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return
	}
	b.pause.until = max(b.pause.until, until)
	b.pause.all = b.pause.all || all
	b.paused(true)
	b.wakeAt(b.pause.until)
}

// Unpause ends the pause: the calls that waited for that are made.
func (b *BlockedClients) Unpause() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unpause()
}

func (b *BlockedClients) unpause() {
	b.pause = pause{}
	b.paused(false)
	for c, w := range b.clients {
		if w.held {
			b.release(c, "")
		}
	}
}

// Hold blocks a client before its next call, if that has to wait for the pause to end. It returns
// false if it does not. before is called first, with the lock held: the pause cannot end meanwhile.
func (b *BlockedClients) Hold(c *Client, writes bool, before func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.pause.until == 0 || !writes && !b.pause.all:
		return false
	case b.clock.Now() >= b.pause.until:
		b.unpause() // the timer is late
		return false
	}
	before()
	b.add(c, Block{Until: math.MaxInt64, held: true})
	return true
}

// MsAfter is the instant so many milliseconds after another, store.Never if that is beyond what can
// be said.
func MsAfter(now, ms int64) int64 {
	if ms > (store.Never-now)/int64(time.Millisecond) {
		return store.Never
	}
	return now + ms*int64(time.Millisecond)
}
