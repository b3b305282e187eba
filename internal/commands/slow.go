package commands

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// slowPlaces are the places of Slow commands, and of other calls that are made beside the loops: so many run at once, and leave cores to
// the event loops. The others wait: those that have not begun, and those that have given way. These two have the next free place by
// turns, so that a short call waits for a slice of another one's work, and not for six calls of a million words; and none waits for ever.
type slowPlaces struct {
	about atomic.Int32 // how many run, or wait for a place

	mu     sync.Mutex
	free   int
	queues [2][]chan struct{} // each in the order of coming
	turn   int                // the queue that is served next, if somebody waits in it
}

const (
	newcomers = iota
	begun
)

// maxSlow bounds the calls that run at once.
func maxSlow() int { return max(runtime.GOMAXPROCS(0)/2, 1) }

// take waits for a place.
func (p *slowPlaces) take(queue int) {
	p.mu.Lock()
	if p.free > 0 {
		p.free--
		p.mu.Unlock()
		return
	}
	given := make(chan struct{})
	p.queues[queue] = append(p.queues[queue], given)
	p.mu.Unlock()
	<-given
}

// leave gives a place to the next who waits.
func (p *slowPlaces) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	queue := p.turn
	if len(p.queues[queue]) == 0 {
		queue = 1 - queue
	}
	if len(p.queues[queue]) == 0 {
		p.free++
		return
	}
	close(p.queues[queue][0])
	p.queues[queue][0] = nil
	p.queues[queue] = p.queues[queue][1:]
	p.turn = 1 - queue
}

// isWanted says whether somebody waits for a place.
func (p *slowPlaces) isWanted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.queues[newcomers])+len(p.queues[begun]) > 0
}

// takeSlow waits for a Slow command's place.
func (in *Instance) takeSlow() {
	in.slow.about.Add(1)
	in.slow.take(newcomers)
}

func (in *Instance) leaveSlow() {
	in.slow.leave()
	in.slow.about.Add(-1)
}

// Yield lets Slow commands run, if there are any: an event loop calls it after each turn. Where every core has a loop that is
// always busy, they would else have a turn when the scheduler steps in, after 10 ms.
func (in *Instance) Yield() {
	if in.slow.about.Load() > 0 {
		runtime.Gosched()
	}
}

// GiveWay implements Beside.
func (b *besideLoop) GiveWay() {
	if slow := &b.instance.slow; slow.isWanted() {
		slow.leave()
		slow.take(begun)
	}
}
