package session

import (
	"slices"

	"cellserver/internal/command"
	"cellserver/internal/commands/transaction"
	"cellserver/internal/store"
)

// The bounds of what one transaction may cost: more is refused before its first call is made.
const (
	maxBackgroundCost = 1 << 16
	// MaxSessionCost is the bound where a call needs the session, and so is made on the event loop.
	MaxSessionCost = 8 * command.TurnUnits
)

const errTooCostly command.Refusal = "EXECABORT Transaction discarded because it would keep others waiting for too long"

// execution is a transaction that is being executed, in a turn of its session or outside of the
// event loop.
type execution struct {
	instance *Instance
	queue    *transaction.Queue
	watching transaction.Watching
	database int
	all      bool // any key may be touched
	checked  bool // calls are checked against the user's rights
	slowPath bool // something is to be done before or after each call
	outcomes []outcome
}

// outcome is what the statistics learn of a call that was made.
type outcome struct {
	call    transaction.Queued
	made    bool  // rather than refused
	ns      int64 // that it took; untimed if that was not measured
	limited int64 // decisions of it that limited
	err     error
}

const untimed = -1

// Execute implements transaction.Session. The calls are made here if they are a turn's worth.
func (s *Session) Execute() error {
	q := s.transaction.Queue
	x := &execution{
		instance: s.instance, queue: q, watching: s.transaction.Watching(), database: s.database,
		checked: s.checked, slowPath: s.slowPath,
	}
	most := s.instance.MaxTurnTransaction
	if q.NeedsSession {
		most = MaxSessionCost
	}
	if q.Cost <= most && (!q.Unbounded || q.NeedsSession) {
		if done, err := s.executeInTurn(x, most); done {
			return err
		}
	}
	if q.NeedsSession || q.Cost > maxBackgroundCost {
		s.transaction.Leave()
		return errTooCostly
	}
	s.executeInBackground(x)
	return nil
}

// executeInTurn makes the calls in the session's turn. It does nothing and returns false if they
// cost more than most, because of what their keys hold.
func (s *Session) executeInTurn(x *execution, most int) (done bool, err error) {
	c := &s.call
	c.Deferred = new(command.Deferred)
	made, cost, err := x.run(c, most)
	s.words = 0
	switch {
	case err != nil:
		s.transaction.Leave()
	case made:
		s.transaction.Leave()
		s.completeTransaction()
		s.instance.Monitors.ShowTransaction(c)
		c.Work += cost * command.BytesPerUnit
		return true, nil
	default:
		c.Work = cost * command.BytesPerUnit
	}
	c.Deferred = nil
	return err != nil, err
}

// executeInBackground makes the calls in a goroutine, while the event loop serves other clients.
// The session leaves the transaction when it takes the reply.
func (s *Session) executeInBackground(x *execution) {
	s.transaction.Detach()
	s.call.Offloaded = true
	row, words := s.row, command.CopyWords(s.call.Words)
	s.parkFor(row, 0, func(c *command.Call) error { // the words of the queue are charged already
		c.OnReply = func() {
			s.transaction.Finish(x.queue)
			if n := c.View.Selected(); n != s.database {
				s.SelectDatabase(n)
			}
		}
		c.Deferred = new(command.Deferred)
		c.Sampling.Begin(c.View.Now())
		switch made, _, err := x.run(c, maxBackgroundCost); {
		case err != nil:
			return err
		case !made:
			return errTooCostly
		}
		s.instance.notify(c, c.Misses, false)
		s.instance.Monitors.ShowTransaction(c)
		if c.Server.Hooks.Has(command.Monitored) {
			s.instance.Monitors.Show(c, row, words)
		}
		if l := c.Deferred; len(l.Calls) > 0 {
			return l.Complete(c, slices.Concat(c.Out.Pieces()...))
		}
		return nil
	})
}

// run makes the calls as one step, if they cost at most so much. It makes none for a client that
// has gone, because its watches have ended.
func (x *execution) run(c *command.Call, most int) (made bool, cost int, err error) {
	places, all := x.keyRefs(c.Server.Databases)
	mark, counted := c.Out.Mark(), c.Counts()
	err = c.View.Atomically(c.Context, places, all, func() error {
		c.Out.Rewind(mark)
		c.ResetCounts(counted)
		c.BeginTransaction()
		x.outcomes = x.outcomes[:0]
		if cost = x.queue.Cost; x.queue.ValueSized && cost <= most {
			cost += x.queue.CostOfValues(c, x.database, most-cost)
		}
		switch made = cost <= most; {
		case !made:
		case c.Context.Err() != nil, x.instance.Watches.Changed(c, x.watching):
			c.Out.NullArray()
		default:
			x.runCalls(c)
		}
		return nil
	})
	if err == nil {
		x.settle(c)
	}
	return made, cost, err
}

// settle counts the calls that were made, once the store has kept what they did.
func (x *execution) settle(c *command.Call) {
	server := c.Server
	for _, o := range x.outcomes {
		row := o.call.Row
		calls := server.Stats.Of(row.Number)
		if o.made {
			calls.Calls.Add(1)
			calls.Limited.Add(o.limited)
		}
		if o.err != nil {
			server.CountError(row, o.err)
		}
		if o.ns != untimed && server.Observe(row, o.ns) {
			server.Stats.SlowLog.Add(c.SlowCall(row, o.call.Words), o.ns/1000)
		}
	}
	x.outcomes = nil
	c.Committed()
}

// keyRefs are the keys that the calls touch and those that were watched; all if they may touch any.
func (x *execution) keyRefs(databases int) (places []store.KeyRef, all bool) {
	q := x.queue
	if len(q.KeyRefs) == 0 { // else an attempt in the session's turn has found them
		x.all = q.FindKeys(x.database, databases) || q.Selects() && (x.checked || q.NeedsSession) // SELECT may be refused
		q.KeyRefs = append(q.KeyRefs, x.watching.KeyRefs()...)
	}
	return q.KeyRefs, x.all
}

const errNotMade command.Refusal = "ERR not made: the replies of the transaction are longer than 64 MiB"

// The steps, of a few nanoseconds each, that matching all patterns of a transaction may take while
// its keys are locked: a fraction of a millisecond on an event loop, some tens outside. Patterns
// that people write take a few steps a key.
const (
	stepsInTurn  = 1 << 16
	stepsOutside = 1 << 23
)

// runCalls makes the calls. An error of one does not keep the others from being made. Once the
// replies are too long, no more calls are.
func (x *execution) runCalls(c *command.Call) {
	c.InTransaction, c.PatternSteps = true, stepsOutside
	if c.Session != nil {
		c.PatternSteps = stepsInTurn
	}
	defer func() { c.InTransaction = false }()
	c.Out.Array(len(x.queue.Calls))
	for _, call := range x.queue.Calls {
		mark, o := c.Out.Mark(), outcome{call: call, ns: untimed, err: errNotMade}
		if mark <= command.MaxReply {
			x.runOne(c, &o)
		}
		if o.err != nil {
			c.Out.Rewind(mark)
			c.Out.Error(command.ErrorText(o.err))
		}
		x.outcomes = append(x.outcomes, o)
		c.Out.Break()
	}
	c.Work = 0 // it is in the cost
}

// runOne makes a call of a transaction.
func (x *execution) runOne(c *command.Call, o *outcome) {
	row, words := o.call.Row, o.call.Words
	s := sessionOf(c) // an earlier call may have changed it
	if x.checked || s != nil && s.checked || s == nil && mustCheck(c.Client) {
		if o.err = x.instance.authorizeQueued(c, row, words); o.err != nil {
			return
		}
	}
	o.made = true
	if row.Cost == command.Constant && !x.slowPath && (s == nil || !s.slowPath) && !c.Server.Stats.IsNew(row.Number) {
		o.err = c.Run(row, words, false)
	} else {
		misses := c.Misses
		o.ns, o.err = x.instance.runAndTime(c, row, words, false)
		x.instance.runHooks(c, row, words, misses, o.err != nil)
	}
	o.limited, c.Limited = c.Limited, 0
}

// completeTransaction does what the transaction has left to do when no key is locked, and completes
// its reply, which begins at the session's mark.
func (s *Session) completeTransaction() {
	l, out := s.call.Deferred, s.call.Out
	s.call.Deferred = nil
	if len(l.Calls) == 0 && l.PushBytes == 0 {
		return
	}
	reply := slices.Clone(out.Bytes()[s.mark:])
	out.Rewind(s.mark)
	s.takePushes(l.PushBytes)
	cost := 0
	for i := range l.Calls {
		l.Calls[i].At -= s.mark
		cost += l.Calls[i].Work()
	}
	if cost > command.MaxLoopWork {
		s.parkToEnd(s.row, func(c *command.Call) error { return l.Complete(c, reply) })
		return
	}
	s.call.Work += cost
	_ = l.Complete(&s.call, reply) // it never fails
}
