// Package background bounds the calls that are made outside of the event loops: how many run at
// once, in which order, and how many long replies are in memory together.
package background

import (
	"container/list"
	"context"
	"runtime"
	"sync"
	"sync/atomic"
)

// Places is the places of calls. As many calls run at once as there are places; the others wait, in
// two queues: those that have not begun, and those that have given way. The two have the next free
// place in turns, so that a short call waits for a slice of the work of a long one rather than for
// all of it, and every call goes on some time.
//
// Of the calls whose replies get long one runs at a time, because many clients may ask for such a
// reply at once.
type Places struct {
	// Busy is how many goroutines have a place or wait for one, or do other work that the event loops
	// make way for.
	Busy atomic.Int32

	mu     sync.Mutex
	free   int
	queues [2]list.List // of chan struct{}, closed when its place is given; each in the order of arrival
	turn   int          // the queue that is served next, if it is not empty

	long chan struct{} // holds one value while a call with a long reply runs
}

// The queues.
const (
	fresh = iota
	begun
)

// Max is how many calls run at once: half as many as there are cores, so that event loops have the
// others.
func Max() int { return max(runtime.GOMAXPROCS(0)/2, 1) }

// NewPlaces makes Max places.
func NewPlaces() *Places { return &Places{free: Max(), long: make(chan struct{}, 1)} }

// take waits for a place. It returns false, without a place, if ctx ended before there was one.
func (p *Places) take(ctx context.Context, queue int) bool {
	p.mu.Lock()
	if p.free > 0 {
		p.free--
		p.mu.Unlock()
		return true
	}
	given := make(chan struct{})
	place := p.queues[queue].PushBack(given)
	p.mu.Unlock()
	select {
	case <-given:
		return true
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-given: // at the same moment
		return true
	default:
		p.queues[queue].Remove(place)
		return false
	}
}

// leave gives a place to the next call that waits.
func (p *Places) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	queue := p.turn
	if p.queues[queue].Len() == 0 {
		queue = 1 - queue
	}
	next := p.queues[queue].Front()
	if next == nil {
		p.free++
		return
	}
	close(p.queues[queue].Remove(next).(chan struct{}))
	p.turn = 1 - queue
}

// Waiting is how many calls wait for a place.
func (p *Places) Waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queues[fresh].Len() + p.queues[begun].Len()
}

// Free is how many places are free.
func (p *Places) Free() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.free
}

// Enter waits for a place for a call that has not begun. It returns false if ctx ends first: then
// the call is not made.
func (p *Places) Enter(ctx context.Context) bool {
	p.Busy.Add(1)
	if !p.take(ctx, fresh) {
		p.Busy.Add(-1)
		return false
	}
	if ctx.Err() != nil {
		p.Leave()
		return false
	}
	return true
}

// Leave ends a call that has entered.
func (p *Places) Leave() {
	p.leave()
	p.Busy.Add(-1)
}

// GiveWay lets other calls have the place of a call for a while, if any waits. The call has a place
// again when it returns, even if its client has gone: it finds that out by itself.
func (p *Places) GiveWay() {
	if p.Waiting() > 0 {
		p.leave()
		p.take(context.Background(), begun)
	}
}

// LongReply is how many bytes of a reply may be made while another call makes a long one.
const LongReply = 256 << 10

// EnterLong waits until no other call makes a long reply. The call's place is free meanwhile. It
// returns false if ctx ends first.
func (p *Places) EnterLong(ctx context.Context) bool {
	p.leave()
	defer p.take(context.Background(), begun)
	select {
	case p.long <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// LeaveLong is for when the reply has been delivered.
func (p *Places) LeaveLong() { <-p.long }

// Yield lets calls in the background run, if there are any. An event loop calls it after each turn:
// where every core has a loop that is always busy, they would otherwise run when the scheduler
// intervenes, after 10 ms.
func (p *Places) Yield() {
	if p.Busy.Load() > 0 {
		runtime.Gosched()
	}
}
