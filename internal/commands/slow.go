package commands

import (
	"container/list"
	"context"
	"runtime"
	"sync"
	"sync/atomic"
)

// slowPlaces are the places of Slow commands, and of other calls that are made beside the loops: so
// many run at once, and leave cores to the event loops. The others wait: those that have not begun,
// and those that have given way. These two have the next free place by turns, so that a short call
// waits for a slice of another one's work, and not for six calls of a million words; and none waits
// for ever.
type slowPlaces struct {
	about atomic.Int32 // how many run, or wait for a place

	mu     sync.Mutex
	free   int
	queues [2]list.List // of chan struct{}, which is closed as its place is given; each in the order of coming
	turn   int          // the queue that is served next, if somebody waits in it
}

const (
	newcomers = iota
	begun
)

// maxSlow bounds the calls that run at once.
func maxSlow() int { return max(runtime.GOMAXPROCS(0)/2, 1) }

// take waits for a place. It is false if ctx ended before there was one: then none is taken.
func (p *slowPlaces) take(ctx context.Context, queue int) bool {
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

// leave gives a place to the next that waits.
func (p *slowPlaces) leave() {
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

// isWanted says whether somebody waits for a place.
func (p *slowPlaces) isWanted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queues[newcomers].Len()+p.queues[begun].Len() > 0
}

// takeSlow waits for a Slow command's place. It is false if the client leaves first: its call is
// not made.
func (in *Instance) takeSlow(ctx context.Context) bool {
	in.slow.about.Add(1)
	if !in.slow.take(ctx, newcomers) {
		in.slow.about.Add(-1)
		return false
	}
	if ctx.Err() != nil {
		in.leaveSlow()
		return false
	}
	return true
}

func (in *Instance) leaveSlow() {
	in.slow.leave()
	in.slow.about.Add(-1)
}

// Yield lets Slow commands run, if there are any: an event loop calls it after each turn. Where
// every core has a loop that is always busy, they would else have a turn when the scheduler steps
// in, after 10 ms.
func (in *Instance) Yield() {
	if in.slow.about.Load() > 0 {
		runtime.Gosched()
	}
}

// Yield implements Beside.
func (b *besideLoop) Yield() {
	if slow := &b.instance.slow; slow.isWanted() {
		slow.leave()
		// A call that has begun has its turn again although its client has gone: it finds that out
		// by itself.
		slow.take(context.Background(), begun)
	}
}
