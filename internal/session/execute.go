package session

import (
	"context"
	"slices"

	"cellserver/internal/command"
	"cellserver/internal/commands/transaction"
	"cellserver/internal/store"
)

// The bounds of a transaction's work. A transaction with more work is refused before its first call is made.
const (
	maxBackgroundWork = 64 << 20
	// MaxSessionWork is the bound if one of the calls needs the session, so that the transaction is
	// executed on the event loop.
	MaxSessionWork = 8 * command.TurnWork
)

const errTooExpensive command.Refusal = "EXECABORT Transaction discarded because it would keep others waiting for too long"

// execution is a transaction that is being executed, in a turn of its session or outside of the
// event loop.
type execution struct {
	instance *Instance
	queue    *transaction.Queue
	watching transaction.Watching
	database int
	all      bool // the calls may touch any key
	checked  bool // calls are checked against the user's rights
	slowPath bool // there is work before or after each call
	runs     []run
}

// Execute implements transaction.Session. It executes the transaction in this turn if that costs no
// more than a turn, else in the background.
func (s *Session) Execute() error {
	q := s.transaction.Queue
	x := &execution{
		instance: s.instance, queue: q, watching: s.transaction.Watching(), database: s.database,
		checked: s.rights != everything, slowPath: s.slowPath,
	}
	most := s.instance.MaxTurnTransaction
	if q.NeedsSession {
		most = MaxSessionWork
	}
	if q.Work <= most && (!q.Unbounded || q.NeedsSession) {
		if done, err := s.executeInTurn(x, most); done {
			return err
		}
	}
	if q.NeedsSession || q.Work > maxBackgroundWork {
		s.transaction.Leave()
		return errTooExpensive
	}
	s.executeInBackground(x)
	return nil
}

// executeInTurn executes a transaction in the session's turn. If it costs more than most because of
// the values at its keys, executeInTurn does nothing and returns false.
func (s *Session) executeInTurn(x *execution, most int) (done bool, err error) {
	c := &s.call
	c.Deferred = new(command.Deferred)
	confirmed := s.out.Mark()
	made, work, err := x.run(c, most)
	s.words = 0
	switch {
	case err != nil:
		s.transaction.Leave()
	case made:
		s.transaction.Leave()
		if !x.slowPath { // otherwise, EXEC is timed itself
			s.since += c.Shared
			c.Shared = 0
		}
		s.completeTransaction(confirmed)
		s.instance.Monitors.ShowTransaction(c)
		c.Work += work
		return true, nil
	default:
		c.Work = work
	}
	c.Deferred = nil
	return err != nil, err
}

// executeInBackground executes a transaction in a goroutine, while the event loop serves other
// clients. The session leaves the transaction when it takes the reply.
func (s *Session) executeInBackground(x *execution) {
	s.transaction.Detach()
	s.call.Offloaded = true
	row, words := s.row, command.CopyWords(s.call.Words)
	s.parkFor(s.ctx, row, 0, func(c *command.Call) error { // the words of the queue are charged already
		c.OnReply = func() {
			s.transaction.Finish(x.queue)
			if n := c.View.Selected(); n != s.database {
				s.SelectDatabase(n)
			}
		}
		c.Deferred = new(command.Deferred)
		c.Sampling.Begin(c.Now())
		switch made, _, err := x.run(c, maxBackgroundWork); {
		case err != nil:
			return err
		case !made:
			return errTooExpensive
		}
		s.instance.Monitors.ShowTransaction(c)
		s.instance.announce(&run{call: c, row: row, words: words, misses: c.Misses})
		if l := c.Deferred; len(l.Calls) > 0 {
			return l.Complete(c, slices.Concat(c.Out.Pieces()...))
		}
		return nil
	})
}

// run makes the calls as one step if their work is at most most, and returns their work. If the
// client has disconnected, it makes none, because the client's watches have ended.
func (x *execution) run(c *command.Call, most int) (made bool, work int, err error) {
	places, all := x.keyRefs(c.Server.Databases)
	mark, counted, began := c.Out.Mark(), c.Counts(), c.Server.Clock.Now()
	err = c.View.Atomically(c.Context, places, all, func() error {
		c.Out.Rewind(mark)
		c.ResetCounts(counted)
		c.Rollback() // in case the store has run this before
		x.runs = x.runs[:0]
		if work = x.queue.Work; x.queue.ValueSized && work <= most {
			work += x.queue.WorkOfValues(c, x.database, most-work)
		}
		switch made = work <= most; {
		case !made:
		case c.Context.Err() != nil, x.instance.Watches.Changed(c, x.watching):
			c.Out.NullArray()
		default:
			x.runCalls(c)
		}
		return nil
	})
	if err != nil {
		c.Rollback()
	} else {
		x.count(c, c.Server.Clock.Now()-began)
	}
	return made, work, err
}

// count counts the runs, which took ns nanoseconds together. It is called after the commit, because a store may run the
// step more than once. The runs that were not timed, and EXEC, share the rest of the time equally.
func (x *execution) count(c *command.Call, ns int64) {
	c.Committed() // first, because some effects count what is counted before Calls
	untimed := int64(1)
	for i := range x.runs {
		if r := &x.runs[i]; r.isTimed {
			ns -= r.ns
		} else if r.call != nil {
			untimed++
		}
	}
	share := max(ns, 0) / untimed
	for i := range x.runs {
		r := &x.runs[i]
		calls := c.Server.Stats.Of(r.row.Number)
		if r.call == nil {
			c.Server.CountError(nil, r.err)
			calls.Rejected.Add(1)
			continue
		}
		if r.err != nil {
			c.Server.CountError(r.row, r.err)
		}
		if !r.isTimed {
			r.ns = share
		}
		x.instance.count(r)
		calls.Calls.Add(1)
		c.Shared += r.ns
	}
	x.runs = nil
}

// keyRefs returns the keys that the calls touch and the watched keys; all is true if the
// calls may touch any key.
func (x *execution) keyRefs(databases int) (places []store.KeyRef, all bool) {
	q := x.queue
	if len(q.KeyRefs) == 0 { // otherwise, an attempt in the session's turn has found them
		// SELECT may be refused
		x.all = q.FindKeys(x.database, databases) || q.Selects() && (x.checked || q.NeedsSession)
		q.KeyRefs = append(q.KeyRefs, x.watching.KeyRefs()...)
	}
	return q.KeyRefs, x.all
}

const errNotMade command.Refusal = "ERR not made: the replies of the transaction are longer than 64 MiB"

// The bounds of matching all patterns of a transaction, in steps of a few nanoseconds, because its
// keys are locked meanwhile: a fraction of a millisecond on an event loop, some tens of
// milliseconds in the background. Ordinary patterns take a few steps for each key.
const (
	turnPatternSteps       = 1 << 16
	backgroundPatternSteps = 1 << 23
)

// runCalls makes the calls. After an error, the following calls are still made; once the replies
// exceed command.MaxReply, no further call is made.
func (x *execution) runCalls(c *command.Call) {
	c.InTransaction, c.PatternSteps = true, backgroundPatternSteps
	if c.Session != nil {
		c.PatternSteps = turnPatternSteps
	}
	c.Snapshot = x.queue.Snapshot
	defer func() { c.InTransaction, c.Snapshot = false, nil }()
	c.Out.Array(len(x.queue.Calls))
	x.runs = slices.Grow(x.runs, len(x.queue.Calls))
	for i, call := range x.queue.Calls {
		x.runs = append(x.runs, run{row: call.Row, words: call.Words, err: errNotMade})
		mark, r := c.Out.Mark(), &x.runs[i]
		if mark <= command.MaxReply {
			x.runOne(c, r)
		}
		if r.err != nil {
			c.Out.Rewind(mark)
			c.Out.Error(command.ErrorText(r.err))
		}
		c.Out.Break()
	}
	c.Work = 0 // it is included in the transaction's work
}

// runOne makes a call of a transaction. Its reads are counted for EXEC.
func (x *execution) runOne(c *command.Call, r *run) {
	s := sessionOf(c) // its checked and slowPath may have been changed by an earlier call
	if x.checked || s != nil && s.rights != everything || s == nil && mustCheck(c.Client) {
		if r.err = x.instance.authorizeQueued(c, r.row, r.words); r.err != nil {
			return
		}
	}
	r.call = c
	if r.row.Cost == command.Constant && !x.slowPath && (s == nil || !s.slowPath) &&
		!c.Server.Stats.IsNew(r.row.Number) {
		r.err = c.Run(r.row, r.words, false)
		r.limited, c.Limited = c.Limited, 0
		return
	}
	x.instance.make(r)
	x.instance.announce(r)
}

// completeTransaction does the work that the calls have deferred until the keys are unlocked, and completes the reply.
// The reply begins at s.mark, and the messages at confirmed in their writer; the two are the same if the client wants
// replies.
func (s *Session) completeTransaction(confirmed int) {
	l, out, begin := s.call.Deferred, s.call.Out, s.mark
	s.call.Deferred = nil
	if l.PushBytes > 0 {
		s.insertPushes(confirmed, l.PushBytes)
	}
	if len(l.Calls) == 0 {
		return
	}
	reply := slices.Clone(out.Bytes()[s.mark:])
	out.Rewind(s.mark)
	cost := 0
	for i := range l.Calls {
		l.Calls[i].At -= begin
		cost += l.Calls[i].Work()
	}
	if cost > command.MaxLoopWork {
		s.parkFor(context.Background(), s.row, 0, func(c *command.Call) error { return l.Complete(c, reply) })
		return
	}
	s.call.Work += cost
	_ = l.Complete(&s.call, reply) // it never fails
}
