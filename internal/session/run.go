package session

import (
	"runtime/debug"

	"cellserver/internal/client"
	"cellserver/internal/command"
)

// run is one run of a row, and what is counted of it. Wherever a call is made, make makes it, count
// counts it and announce tells others of it: in a turn of its session, outside of the event loop
// (park.go), while other calls of its client are under way (coroutine.go), again after it has waited
// (rerun.go), or in a transaction (execute.go). The exception is the hot path in turn.go: a call that is
// not timed has no run, and is counted with the other calls of its turn (tally.go).
type run struct {
	call    *command.Call // nil if the call was refused before its row ran
	row     *command.Command
	words   [][]byte
	repeats bool // see command.Call.Run

	err     error
	isTimed bool  // ns and slow are set
	slow    bool  // SLOWLOG keeps it, by the setting when the call was made
	ns      int64 // duration in nanoseconds
	shared  int64 // part of ns that is counted for other calls: see command.Call.Shared
	limited int64 // number of decisions that limited, where the session's tally does not count them
	misses  int64 // call.Misses before
}

// make runs the row and takes the time. While memory is short, the row of a limiter gets a view that takes no more
// memory.
func (in *Instance) make(r *run) {
	c := r.call
	if r.row.Traits&command.Decides != 0 && in.Hooks.Has(command.Full) {
		view := c.View
		defer func() { c.View = view }()
		c.View = view.WithoutGrowth()
	}
	r.misses = c.Misses
	began := in.Clock.Now()
	r.err = c.Run(r.row, r.words, r.repeats)
	r.ns, r.isTimed = in.Clock.Now()-began, true
	r.slow = in.IsSlow(r.row, r.ns)
	r.shared, c.Shared = c.Shared, 0
	if c.Session == nil || c.InTransaction {
		r.limited, c.Limited = c.Limited, 0
	}
}

// count adds a run to the statistics. A call that goes on, because its client is blocked or because it is
// repeated outside the event loop, is observed when it ends.
func (in *Instance) count(r *run) {
	c, calls := r.call, in.Stats.Of(r.row.Number)
	calls.Limited.Add(r.limited)
	calls.Ns.Add(r.ns - r.shared)
	if !r.isTimed || c.Offloaded || c.Blocks {
		return
	}
	if in.Observe(r.row, r.ns); r.slow {
		in.Stats.SlowLog.Add(c.SlowCall(r.row, r.words), r.ns/1000)
	}
}

// announce shows a run to MONITOR, once for each call, and publishes the changes of keys.
func (in *Instance) announce(r *run) {
	c := r.call
	if c.Offloaded {
		return
	}
	if in.Hooks.Has(command.Monitored) && c.Attempt == command.FirstAttempt {
		in.Monitors.Show(c, r.row, r.words)
	}
	if in.Hooks.Has(command.Notifying) {
		in.notify(r)
	}
}

// runTimed makes a call, counts it and announces it.
func (in *Instance) runTimed(c *command.Call, row *command.Command, words [][]byte, repeats bool) error {
	r := run{call: c, row: row, words: words, repeats: repeats}
	in.make(&r)
	in.count(&r)
	in.announce(&r)
	return r.err
}

// runTimed makes a call in a turn, and measures its time apart from the time that the other calls of the turn share.
func (s *Session) runTimed(row *command.Command, words [][]byte, repeats bool) error {
	s.CountCalls()
	err := s.instance.runTimed(&s.call, row, words, repeats)
	s.since = s.instance.Clock.Now()
	return err
}

// guard calls run, which makes a call outside the session's turn. If it panics, the error is
// command.ErrStopped, which ends the connection: see Session.recoverPanic.
func (in *Instance) guard(c *command.Call, row *command.Command, run func() error) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			in.logPanic(c.Client, row, reason)
			err = command.ErrStopped
		}
	}()
	return run()
}

// recoverPanic closes the connection of a client whose command has panicked in the session's turn, so that a
// defect in a command does not end the server. No lock is held by then: locks are released by deferred calls.
func (s *Session) recoverPanic() {
	if reason := recover(); reason != nil {
		s.instance.logPanic(s.Client, s.row, reason)
		s.call.Out.Rewind(s.mark)
		s.CloseAfterReply()
	}
}

// logPanic logs that the command of a row has panicked; row may be nil.
func (in *Instance) logPanic(c *client.Client, row *command.Command, reason any) {
	name := ""
	if row != nil {
		name = row.Name
	}
	in.ClientLog.Error("a command panicked", "client", c.ID, "command", name, "reason", reason,
		"stack", string(debug.Stack()))
}

// replyOf returns the reply of a call that was made outside the session's turn: what it has written, or an
// error. A call that was stopped ends its connection.
func (in *Instance) replyOf(c *command.Call, row *command.Command, err error) (pieces [][]byte) {
	if err == command.ErrStopped {
		c.Client.Peer.Cut()
	}
	if err != nil {
		c.Out.Pieces() // discards what the row has written
		c.Out.Error(in.CountError(row, err))
	}
	c.CountReads()
	return c.Out.Pieces()
}
