// Package meter finds the longest of what has to be short: the turns of an event loop, the time
// that a lock is held. It counts the CPU time of the thread, not the time of day, because a busy
// machine takes the processor away at any moment. A measurement costs about a microsecond.
package meter

import (
	"runtime"
	"sync/atomic"
	"time"
)

// MaxCPUTime remembers the longest of many times, and how many were over a millisecond: the time that
// a shared machine takes away may count as the thread's, so one alone says little. A nil MaxCPUTime
// measures nothing and costs a comparison. It is safe for use by many goroutines.
type MaxCPUTime struct{ ns, over atomic.Int64 }

// Start begins a measurement: what it returns is for Stop. Until then the goroutine stays on its
// thread, whose clock it is.
func (l *MaxCPUTime) Start() (began int64) {
	if l == nil {
		return 0
	}
	runtime.LockOSThread()
	return threadTime()
}

// Stop ends a measurement, on the goroutine that began it.
func (l *MaxCPUTime) Stop(began int64) {
	if l == nil {
		return
	}
	took := threadTime() - began
	runtime.UnlockOSThread()
	if took > int64(time.Millisecond) {
		l.over.Add(1)
	}
	for longest := l.ns.Load(); took > longest && !l.ns.CompareAndSwap(longest, took); longest = l.ns.Load() {
	}
}

// OverMillisecond is how many times were over a millisecond.
func (l *MaxCPUTime) OverMillisecond() int64 { return l.over.Load() }

// Value is the longest time so far.
func (l *MaxCPUTime) Value() time.Duration { return time.Duration(l.ns.Load()) }
