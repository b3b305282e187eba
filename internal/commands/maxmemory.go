package commands

import (
	"runtime"
	"sync/atomic"
	"time"

	"cellserver/internal/client"
	"cellserver/internal/command"
)

// maxmemory: while more is used, calls that may need some are refused, as Redis refuses them under
// its policy noeviction; limiters go on with the keys that are there. There is no other policy: a
// limiter whose key is evicted lets its client through.
//
// What is used is looked at ten times a second, by nobody who answers calls; while it is too much,
// a hook (pause.go) says so, which sessions see when a turn begins: until then a call costs
// nothing. So it can be exceeded by what clients can write in a tenth of a second, and in a turn:
// tens of megabytes of keys, or what the network carries of large values.
type memoryBound struct {
	most    atomic.Int64 // bytes; 0 for no bound
	peak    atomic.Int64
	startup int64
	there   int64        // bytes that the machine, or the container, has
	outside func() int64 // bytes outside of Go's heap
	heap    func() int64 // and in it, with what is garbage
	collect func()
	next    int64 // instant, nanoseconds, before which garbage is not collected again; for Sample alone
}

// outsider is a store that keeps keys outside of Go's heap.
type outsider interface{ OffHeapBytes() int64 }

// begin has the process, and what the store keeps, measured.
func (m *memoryBound) begin(store any) {
	m.outside, m.heap, m.collect = func() int64 { return 0 }, heapBytes, runtime.GC
	if s, ok := store.(outsider); ok {
		m.outside = s.OffHeapBytes
	}
	m.startup, m.there = m.used(), client.AvailableMemory()
}

// used is the memory of keys, and of all else that the process has made, in bytes.
func (m *memoryBound) used() int64 {
	used := m.outside() + m.heap()
	for peak := m.peak.Load(); used > peak && !m.peak.CompareAndSwap(peak, used); peak = m.peak.Load() {
	}
	return used
}

// weigh sees whether too much is used, and has the sessions know.
func (in *Instance) weigh() {
	if most := in.memory.most.Load(); most > 0 && in.memory.used() > most {
		in.hooks.Or(full)
	} else {
		in.hooks.And(^full)
	}
}

// Garbage counts as used until it is collected, which Go may put off until there is as much of it
// as of all else. So when it may be garbage that is too much, it is collected to find out: by
// Sample's goroutine, and so that it takes a twentieth of its time at most.
const (
	collectEvery = int64(time.Second)
	collectShare = 20
)

// clear collects garbage, if that may be what is too much.
func (in *Instance) clear() {
	m, now := &in.memory, in.Now()
	if in.hooks.Load()&full == 0 || m.outside() > m.most.Load() || now < m.next {
		return
	}
	m.collect()
	done := in.Now()
	m.next = done + max(collectEvery, collectShare*(done-now))
	in.weigh()
}

// setMaxMemory changes how many bytes may be used; 0 is any number.
func (in *Instance) setMaxMemory(bytes int64) {
	in.memory.most.Store(bytes)
	in.shareMemory()
	in.weigh()
	if used := in.memory.used(); bytes > 0 && used > bytes {
		in.log.Info("maxmemory is exceeded: calls that may need memory are refused", "used", used, "maxmemory", bytes)
	}
}

// short says whether memory is short for a call of a limiter. These are never refused beforehand:
// most need none, and a flood of new keys must not switch off the limits of those that are there.
func short(c *command.Call, row *command.Command) bool {
	return row.Traits&command.Decides != 0 && instanceOf(c).hooks.Load()&full != 0
}

// runShort is run where limiters must not take memory.
func runShort(c *command.Call, row *command.Command, words [][]byte, repeats bool) error {
	view := c.View
	defer func() { c.View = view }()
	c.View = view.WithoutGrowth()
	return c.Run(row, words, repeats)
}

const errOOM command.Refusal = "OOM command not allowed when used memory > 'maxmemory'."

// outOfMemory says whether a call is not to be made for want of memory: one that may need some,
// EXEC of such a call, and whatever would be queued but calls of limiters.
func (s *Session) outOfMemory(row *command.Command) bool {
	switch {
	case s.instance.hooks.Load()&full == 0:
		return false
	case s.queue == nil:
		return row.Flags&command.DenyOOM != 0
	case row.Traits&command.Executes != 0:
		return s.queue.needsMemory()
	}
	return row.Group != "limiter" && row.Traits&command.AllowedFull == 0
}

func (q *queue) needsMemory() bool {
	for _, call := range q.calls {
		if call.row.Flags&command.DenyOOM != 0 {
			return true
		}
	}
	return false
}

// barred says why a call that makes sense is not to be made now; nil if it may be.
func (s *Session) barred(row *command.Command) error {
	switch {
	case s.monitors && row.Flags&(command.Write|command.ReadOnly) != 0:
		return s.reject(row, errMonitors)
	case s.outOfMemory(row):
		return s.turnAway(row, errOOM)
	}
	return nil
}
