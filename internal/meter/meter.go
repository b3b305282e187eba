// Package meter measures the longest duration of operations that must be short: the turns of an
// event loop, and the time that a lock is held. It measures the CPU time of the thread instead of
// elapsed time, because a busy machine may preempt a thread at any moment. A measurement costs
// about a microsecond.
package meter

import (
	"runtime"
	"sync/atomic"
	"time"
)

// MaxCPUTime records the longest of many measurements, and how many of them were over a
// millisecond. A virtual machine may count time that the host used otherwise as CPU time of the
// thread, so a single long measurement proves little. A nil MaxCPUTime measures nothing and costs
// one comparison. It is safe for concurrent use.
type MaxCPUTime struct{ ns, over atomic.Int64 }

// Start begins a measurement and returns the value to pass to Stop. It locks the goroutine to its
// thread until Stop, because the clock it reads is the thread's.
func (l *MaxCPUTime) Start() (began int64) {
	if l == nil {
		return 0
	}
	runtime.LockOSThread()
	return threadTime()
}

// Stop ends a measurement. It must be called by the goroutine that called Start.
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

// OverMillisecond returns how many measurements were over a millisecond.
func (l *MaxCPUTime) OverMillisecond() int64 { return l.over.Load() }

// Value returns the longest measurement so far.
func (l *MaxCPUTime) Value() time.Duration { return time.Duration(l.ns.Load()) }
