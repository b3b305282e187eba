package command

import "sync/atomic"

// Hook is a reason for sessions to do something before or after each of their calls.
type Hook uint32

const (
	Paused    Hook = 1 << iota // CLIENT PAUSE: calls may have to wait
	Monitored                  // MONITOR: calls are shown
	Timed                      // the slow log wants quick calls, so that each call is timed
	Full                       // more memory is used than maxmemory
	Notifying                  // keyspace notifications are published
)

// Hooks is the set of hooks that are in force. A session reads it once a turn, so that a call pays
// nothing while it is empty, and a change takes effect with each session's next turn.
type Hooks struct{ bits atomic.Uint32 }

// Set adds a hook to the set, or takes it out.
func (h *Hooks) Set(hook Hook, on bool) {
	if on {
		h.bits.Or(uint32(hook))
	} else {
		h.bits.And(^uint32(hook))
	}
}

// Has reports whether a hook is in force.
func (h *Hooks) Has(hook Hook) bool { return h.bits.Load()&uint32(hook) != 0 }

// Any reports whether there is any.
func (h *Hooks) Any() bool { return h.bits.Load() != 0 }
