// Package background bounds the calls that are made outside the event loops: how many run at once,
// in which order, and how many long replies are in memory at the same time.
package background

import (
	"container/list"
	"context"
	"runtime"
	"sync"
	"sync/atomic"
)

// Slots admits calls: a call runs only while it holds a slot. Waiting calls are in two queues:
// calls that have not begun and calls that have yielded. A free slot goes to the two queues
// alternately, so that a short call waits for a slice of a long call's work rather than for all of
// it, and every call makes progress.
//
// Of the calls with long replies only one runs at a time, because many clients may ask for such a
// reply at once.
type Slots struct {
	// Busy is the number of goroutines that hold a slot, wait for one, or do other work for which
	// event loops yield.
	Busy atomic.Int32

	mu     sync.Mutex
	free   int
	queues [2]list.List // of chan struct{}, closed when its call gets a slot; in the order of arrival
	turn   int          // the queue that gets the next slot, unless it is empty

	long chan struct{} // holds one value while a call with a long reply runs
}

// The queues.
const (
	newCalls = iota
	resumedCalls
)

// MaxSlots returns the number of slots: half of the cores, which leaves the others to event loops,
// but at least one.
func MaxSlots() int { return max(runtime.GOMAXPROCS(0)/2, 1) }

// NewSlots returns MaxSlots free slots.
func NewSlots() *Slots { return &Slots{free: MaxSlots(), long: make(chan struct{}, 1)} }

// acquire waits for a slot in one of the queues. It returns false, without a slot, if ctx ends
// first.
func (s *Slots) acquire(ctx context.Context, queue int) bool {
	s.mu.Lock()
	if s.free > 0 {
		s.free--
		s.mu.Unlock()
		return true
	}
	given := make(chan struct{})
	element := s.queues[queue].PushBack(given)
	s.mu.Unlock()
	select {
	case <-given:
		return true
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-given: // it was given before the lock was taken
		return true
	default:
		s.queues[queue].Remove(element)
		return false
	}
}

// release gives a slot to the next call that waits.
func (s *Slots) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	queue := s.turn
	if s.queues[queue].Len() == 0 {
		queue = 1 - queue
	}
	next := s.queues[queue].Front()
	if next == nil {
		s.free++
		return
	}
	close(s.queues[queue].Remove(next).(chan struct{}))
	s.turn = 1 - queue
}

// Waiting returns the number of calls that wait for a slot.
func (s *Slots) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queues[newCalls].Len() + s.queues[resumedCalls].Len()
}

// Free returns the number of free slots.
func (s *Slots) Free() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.free
}

// Acquire waits for a slot for a call that has not begun. It returns false if ctx ends first, and
// then the call must not be made.
func (s *Slots) Acquire(ctx context.Context) bool {
	s.Busy.Add(1)
	if !s.acquire(ctx, newCalls) {
		s.Busy.Add(-1)
		return false
	}
	if ctx.Err() != nil {
		s.Release()
		return false
	}
	return true
}

// Release frees the slot of a call that has ended.
func (s *Slots) Release() {
	s.release()
	s.Busy.Add(-1)
}

// Yield gives the slot of a call to another call, if one waits, and waits for a slot again. It does
// not end early if the call's client disconnects.
func (s *Slots) Yield() {
	if s.Waiting() > 0 {
		s.release()
		s.acquire(context.Background(), resumedCalls)
	}
}

// Await calls wait without a slot, for a call that waits for something other than the processor, such
// as a disk. Then it waits for a slot again.
func (s *Slots) Await(wait func()) {
	s.Release()
	defer func() {
		s.Busy.Add(1)
		s.acquire(context.Background(), resumedCalls)
	}()
	wait()
}

// LongReply is the size, in bytes, above which a reply is a long one: see AcquireLong.
const LongReply = 256 << 10

// AcquireLong waits until no other call has a long reply. The call's slot is free meanwhile. It
// returns false if ctx ends first.
func (s *Slots) AcquireLong(ctx context.Context) bool {
	s.release()
	defer s.acquire(context.Background(), resumedCalls)
	select {
	case s.long <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// ReleaseLong is called when a long reply has been delivered.
func (s *Slots) ReleaseLong() { <-s.long }

// YieldThread lets calls in the background run, if there are any. An event loop calls it after each
// turn. Where every core has a busy event loop, such a call would otherwise run only when the
// scheduler preempts a loop, after 10 ms.
func (s *Slots) YieldThread() {
	if s.Busy.Load() > 0 {
		runtime.Gosched()
	}
}
