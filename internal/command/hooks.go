package command

import "sync/atomic"

// Hook is a reason for sessions to do more than usual before or after each call.
type Hook uint32

const (
	Paused      Hook = 1 << iota // CLIENT PAUSE: calls may have to wait
	Monitored                    // MONITOR: calls are shown
	Timed                        // each call is timed, because the slow log keeps quick calls too
	Full                         // more memory is used than maxmemory
	Notifying                    // keyspace notifications are published
	DataLoading                  // keys of an earlier run are being read: only rows with the flag Loading are called
	DiskFailing                  // the disk fails, and calls that write are refused meanwhile
	StoreBlocks                  // calls of the store may block, so sessions overlap calls; it never changes
)

// Hooks is the set of hooks that are in force. A session reads it once per turn. So an empty set adds
// nothing to the cost of calls, and a change takes effect in the next turn of each session.
type Hooks struct{ bits atomic.Uint32 }

// Set adds a hook to the set, or removes it.
func (h *Hooks) Set(hook Hook, on bool) {
	if on {
		h.bits.Or(uint32(hook))
	} else {
		h.bits.And(^uint32(hook))
	}
}

// Has reports whether a hook is in force.
func (h *Hooks) Has(hook Hook) bool { return h.bits.Load()&uint32(hook) != 0 }

// Any reports whether any hook is in force.
func (h *Hooks) Any() bool { return h.bits.Load() != 0 }
