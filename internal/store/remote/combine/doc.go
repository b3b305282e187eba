// Package combine is the core of the remote store: it makes atomic steps on keys that a backend
// such as Redis or Valkey holds, by compare and set. It computes the new value of a key here, and
// sets it only if the key still holds what it was computed from. Steps that arrive while a key is
// being written wait, and the next write applies all of them: a hot key costs one command for each
// round trip, whatever the number of callers.
//
// A Machine is pure, like the limiters' algorithms: the caller passes it the time, the steps and the
// replies, and it says what to send. It has no goroutine, no clock and no socket, so a simulation can
// run many of them on a virtual network.
//
// # Queue, flight and lane
//
//	steps               queues           flight               lane of a primary
//
//	take b 1 ─────────▶ key b: 1 1 1 ──▶ b: 5 → 8 ──────────▶ ┌─────────┐
//	take b 1 ─────────▶                  one request          │ flights │   one pipeline,
//	take b 1 ─────────▶                                       │ that    │   when a connection
//	take a 2 ─────────▶ key a: 2 ──────▶ a: 0 → 2, c: 7 → 9   │ are     │──▶ is idle
//	take a 1 and c 2 ─▶ key a: 1   ┐ ──▶ both or neither ───▶ │ ready   │
//	                    key c: 2   ┘                          └─────────┘
//
// Each key with steps has a queue (queue.go). A flight (flight.go) takes the steps that are decided
// together, by one request; a key is in at most one flight at a time. A step on several keys joins a
// flight when it is the first in all of their queues, and brings its keys with it. The flight reads
// the keys whose values are not known, computes (compute.go), and writes. If the write is a conflict,
// the flight computes again from the values that the reply carries (reply.go). A step that changes
// nothing must not be judged by a value that may be out of date, so a flight that changes nothing ends
// with a read instead of a write.
//
// Flights that are ready to be sent wait in the lane (lane.go) of their primary and database for an
// idle connection, and share a pipeline. That is where the throughput comes from: nothing waits on
// purpose, but while a connection is busy, steps collect in queues and flights collect in lanes.
//
// # Contention
//
// Compare and set by itself starves the processes that are further away from the backend: the value
// they know is older when their write arrives, so a nearer process has always been faster. Processes
// therefore take turns on a key that they lose (contention.go), by a key of its own in the backend.
//
// The most frequent steps, which only take from a limiter, need no turn: the backend is asked to make
// them itself on a key that others write (add.go).
package combine
