// Package session is the conversation with one client: it turns the bytes that arrive into calls and
// their replies into bytes. It knows no socket, and the store only by its contract.
//
// # The way of a call
//
// A transport feeds a Session the bytes that it has read. The session reads calls ahead (ahead.go),
// and answers them in order (turn.go): it finds the row, checks the arguments' number, the user's
// rights and the server's state (admit.go, authorize.go), counts the call (tally.go) and has the row
// write the reply. The transport sends what Output holds.
//
// # Turns
//
// A Session takes the bytes that have arrived, answers a turn's worth of calls, and leaves the
// replies in Output. A turn takes well under a millisecond: expensive commands and long calls count
// for more of it. What would take longer is made outside of the event loop:
//
//   - A command whose Cost is Unbounded, and a call of more than 1024 words or of many large ones,
//     is made in a goroutine (park.go). Meanwhile the session is parked: it makes no other call,
//     and its event loop serves the other clients. The package background bounds how many such
//     calls run at once, and how long each runs before others do.
//   - A client that waits for time or for another client, as in CLIENT PAUSE and WAIT, is parked
//     without a goroutine: see client.BlockedClients.
//
// # The hot path
//
// Calls are read up to 16 at a time. They share one reading of the clock, and the store prefetches
// their keys. In a pipeline most calls repeat the one before them about another key: comparing the
// two replaces reading, checking and binding. That, with rows found once and keys hashed once, took
// a CL.THROTTLE with 64 in flight from 3262 to 1886 user instructions (callgrind, BenchmarkSession,
// which `make instructions` runs).
//
// Checks that few calls need stand behind one bool each, which is set at the start of a turn:
//
//   - slowPath: a hook is in force (command.Hooks), the client wants no replies, or it is the turn
//     in 128 whose first call is timed.
//   - checked: the client has not logged in, or its user may not do everything. An acl.User is
//     immutable; changing a user stores another behind an atomic pointer.
//
// # Transactions
//
// EXEC makes the queued calls with their ordinary rows, in one View.Atomically (execute.go). What
// they cost is estimated before the first is made, because their keys stay locked: up to a turn's
// worth is made in the session's turn, up to 128 turns' worth in a goroutine, and more is refused.
// Messages of PUBLISH and the like leave when the keys are unlocked again.
//
// # Changes
//
// Stores that can do so announce each change, and the client that made it, to listeners: WATCH,
// CLIENT TRACKING and keyspace events. Each listens only while a client wants to know. A listener
// runs while the key is locked, so it takes notes; messages are sent after the call, or by a
// goroutine if there are many.
package session
