// Package session answers the calls of one client: it turns the bytes that arrive into calls, and
// the replies into bytes. It does not depend on sockets, and uses the store only through the
// interfaces of package store.
//
// # How a call is answered
//
// A transport feeds a Session the bytes that it has read. The session reads calls ahead (ahead.go)
// and answers them in order (turn.go). For each, it finds the command's row in the command.Table,
// checks the number of arguments, the user's rights and the server's state (admit.go, authorize.go),
// counts the call (tally.go) and runs the row, which writes the reply. The transport sends the bytes
// that Output returns.
//
// A client in this process, such as a request over HTTP, needs no bytes: Caller.Do (do.go) takes words,
// and is the transport. In all else, it is a client like any other.
//
// # Turns
//
// An event loop serves its sessions one after the other. What it does for one of them before it
// serves the next is a turn: the Session takes the bytes that have arrived, answers calls until their
// estimated cost reaches a bound, and leaves the replies in Output. A turn takes well under a
// millisecond: expensive commands and long calls use more of the bound.
//
// # States
//
// The state of a session is its client's, client.State: Running, or one in which the session
// makes no call until there is a delivery in the client's mailbox.
//
//   - Parked: a goroutine makes a call outside the event loop (park.go): a call of a command whose Cost is
//     Unbounded, or a call with more than 1024 words or with large words. The package background bounds how
//     many such calls run at once, and how long each runs before others do.
//   - Blocked: the call waits for a time or for another client, as in WAIT (client.BlockedClients), or
//     for a limiter, with the option WAIT. Waiting calls have no goroutines of their own. When it is the turn of
//     a call that waits for a limiter, a goroutine that serves all such calls makes it again (waiting.go,
//     rerun.go).
//   - Postponed: CLIENT PAUSE is in force, and the next call has not been made yet.
//
// # Runs
//
// A call is made in a turn, by a goroutine, in a coroutine, again after it has waited, or by EXEC. In each case
// the same three functions make, count and announce a run (run.go): they take the time, feed the statistics,
// SLOWLOG and MONITOR, and publish keyspace events. Only the hot path does less: see below.
//
// # The hot path
//
// Calls are read up to 16 at a time. The clock is read once for them, and the store prefetches
// their keys. In a pipeline, most calls repeat the one before them with another key; comparing the
// two replaces reading, checking and binding (command.Repeatable). Together with looking up each row
// once and hashing each key once, this reduced the user instructions of a CL.THROTTLE with 64 in
// flight by two fifths (callgrind, BenchmarkSession, which `make instructions` runs).
//
// Checks that few calls need are guarded by two fields, which are set at the start of a turn:
//
//   - slowPath: a hook is in force (command.Hooks), the client wants no replies, or it is the turn in
//     128 whose first call is timed.
//   - rights: the client has not logged in, or its user may not do everything. An acl.User is
//     immutable; changing a user stores another behind an atomic pointer.
//
// # Transactions
//
// EXEC makes the queued calls with their ordinary rows, in one View.Atomically (execute.go). Their
// keys stay locked meanwhile, so their cost is estimated before the first call is made: up to a
// turn's worth is made in the session's turn, up to 128 turns' worth in a goroutine, and more is
// refused. Messages of PUBLISH and of keyspace events are sent after the keys are unlocked.
//
// # Stores that wait
//
// If calls of the store may block, calls of a client overlap (overlap.go): while one waits for the
// store, the session begins the next, up to 64, so that a pipeline of the client becomes a pipeline of
// the store. Each of these calls has a coroutine with a view and an output of its own (coroutine.go),
// and replies are sent in the order of the calls. command.Command.Overlaps says which calls overlap;
// all others are made alone. The session's goroutine waits for the store, so the server uses no event
// loops. Over a store that never blocks, nothing of this runs: the hook command.StoreBlocks is not
// set, and the code is on the slow path.
//
// # Changes
//
// A store that is a store.Notifier announces each change, and the client that made it, to
// listeners: WATCH, CLIENT TRACKING and keyspace events. Each of them listens only while a client
// needs it. A listener runs while the key is locked, so it only takes notes; messages are sent
// after the call, or by a goroutine if there are many.
//
// # What was tried
//
//   - Requests over HTTP were written in RESP and fed to a session, and their replies were parsed again. A take
//     cost 1.68 times as much as a handler that answers nothing. With words and values, it costs at most 1.3 times
//     as much as a handler that answers as much. The session does not know the type of the values: a hook for
//     them made it import the policies.
//   - Each way to make a call counted the call by itself, and forgot something different: a call refused after a
//     wait was observed with a duration of 0.
//   - Three booleans said whether a call repeats the one before it, whether that call was bound, and whether it had
//     passed its checks. A call that repeated a refused call got the arguments of an earlier one. Now one value
//     says all three, and each call resets it.
//   - Replies that CLIENT REPLY suppresses were written to the client's output, and removed afterwards. Messages
//     could stand between them, so these replies have a writer of their own now.
package session
