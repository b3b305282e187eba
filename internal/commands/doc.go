// Package commands is what cellserver understands: the list of command families, the state that
// they share, and the sessions that turn a client's bytes into calls and their replies into bytes.
// It knows no socket, and a store only by its contract.
//
// # Turns
//
// A Session takes the bytes that have arrived, answers a turn's worth of calls, and leaves the
// replies in Output. A turn takes well under a millisecond: expensive commands and long calls count
// for more of it (turn.go, session.go). What would take longer is made outside the loop:
//
//   - A command whose Cost is Unbounded, and a call of more than 1024 words or of many large ones,
//     is made in a goroutine (slow.go). Meanwhile the session is parked: it makes no other call,
//     and its event loop serves the other clients. Half as many such calls run at once as there
//     are cores. A long one gives its place away after a slice of its work; the next place goes,
//     in turns, to a call that has not begun and to one that has.
//   - A long reply leaves in pieces, and only one at a time gets long (longreply.go).
//   - A session that waits for time or for another client, as in CLIENT PAUSE and WAIT, is parked
//     without a goroutine (waits.go).
//
// # The hot path
//
// Calls are read up to 16 at a time (ahead.go). They share one reading of the clock, and the store
// prefetches their keys. In a pipeline most calls repeat the one before them about another key:
// comparing the two replaces reading, checking and binding. That, with rows found once and keys
// hashed once, took a CL.THROTTLE with 64 in flight from 3262 to 1886 user instructions (callgrind,
// BenchmarkSession, which `make instructions` runs).
//
// Checks that few calls need stand behind one bool each, which is set at the start of a turn:
//
//   - slowPath: clients are paused, calls are shown to MONITOR, the slow log takes calls of less
//     than a millisecond, keyspace events are published, or memory is full (the bits of the
//     instance's hooks); or the client wants no replies; or it is the turn in 128 whose first
//     call is timed.
//   - guarded: the client is not logged in, or its user may not do everything (rights.go). An
//     acl.User is immutable; changing a user stores another behind an atomic pointer.
//
// # Transactions
//
// EXEC makes the queued calls with their ordinary rows, in one View.Atomically. What they cost is
// estimated before the first is made (weigh.go), because their keys stay locked: up to a turn's
// worth is made in the session's turn, up to 128 turns' worth in a goroutine, and more is refused.
// Messages of PUBLISH and the like leave when the keys are unlocked again.
//
// # Changes
//
// Stores that can do so announce each change, and the client that made it, to listeners: WATCH,
// CLIENT TRACKING and keyspace events. Each listens only while a client wants to know. A listener
// runs while the key is locked, so it takes notes; messages are sent after the call, or by a
// goroutine if there are many.
package commands
