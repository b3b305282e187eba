package commands

import (
	"slices"

	"cellserver/internal/command"
	"cellserver/internal/store"
)

// Transactions: calls are queued, and then made as one step, if no key that the client watches has
// changed meanwhile.

// about commands of transactions.
const control = command.NoScript | command.Loading | command.Stale | command.Fast | command.AllowBusy

var multi = command.Command{
	Name: "multi", Group: "transactions", Since: "1.2.0", Complexity: "O(1)", Flags: control,
	Cost: command.Constant, Traits: command.Unqueued,
	Summary: "Begins a transaction: calls are queued until EXEC.", Reply: "OK.",
	Run: func(c *command.Call) error {
		if sessionOf(c).queue != nil {
			return command.Refusal("ERR MULTI calls can not be nested")
		}
		if sessionOf(c).queue = sessionOf(c).lastQueue; sessionOf(c).queue == nil {
			sessionOf(c).queue = new(queue)
		}
		sessionOf(c).showQueue()
		c.Out.Status("OK")
		return nil
	},
}

var discard = command.Command{
	Name: "discard", Group: "transactions", Since: "2.0.0",
	Complexity: "O(N) in the number of queued calls", Flags: control, Cost: command.Constant,
	Traits:  command.Unqueued | command.AllowedFull,
	Summary: "Discards the queued calls, and stops watching keys.", Reply: "OK.",
	Run: func(c *command.Call) error {
		if sessionOf(c).queue == nil {
			return command.Refusal("ERR DISCARD without MULTI")
		}
		sessionOf(c).leaveTransaction()
		c.Out.Status("OK")
		return nil
	},
}

// leaveTransaction forgets what was queued and watched.
func (s *Session) leaveTransaction() {
	if s.queue != nil {
		s.Charge(-s.queue.shown)
		s.queue, s.lastQueue = nil, s.queue.emptied()
		s.showQueue()
	}
	s.unwatch()
}

var exec = command.Command{
	Name: "exec", Group: "transactions", Since: "1.2.0",
	Complexity: "Depends on the commands in the transaction",
	Flags:      command.NoScript | command.Loading | command.Stale | command.Unlogged,
	Cost:       command.Constant, Traits: command.Unqueued | command.Executes,
	Summary: "Executes the queued calls, as one step.",
	Reply:   "The replies, in order; nil if a watched key has changed, and then none was executed.",
	Run: func(c *command.Call) error {
		s := sessionOf(c)
		switch q := s.queue; {
		case q == nil:
			return command.Refusal("ERR EXEC without MULTI")
		case q.broken:
			s.leaveTransaction()
			return command.Refusal("EXECABORT Transaction discarded because of previous errors.")
		}
		return s.execute()
	},
}

// execution is a transaction that is being made, by its session or beside it.
type execution struct {
	queue    *queue
	watching []*watch
	database int
	all      bool // any key may be touched
	guarded  bool // calls may be forbidden
	slowPath bool // something is to be done before or after each call
}

// execute makes the calls that were queued, here if they are a turn's worth.
func (s *Session) execute() error {
	q, c := s.queue, &s.call
	x := &execution{queue: q, watching: s.watching, database: s.database, guarded: s.guarded, slowPath: s.slowPath}
	most := s.instance.inTurn
	if q.own {
		most = maxOwnCost
	}
	if q.cost <= most && (!q.slow || q.own) {
		c.Deferred = new(command.Deferred)
		made, cost, err := x.make(c, most)
		s.words = 0
		if made || err != nil {
			s.leaveTransaction()
		}
		if err != nil {
			c.Deferred = nil
			return err
		}
		if made {
			s.makeLater()
			showTransaction(c)
			c.Work += cost * command.BytesPerUnit
			return nil
		}
		c.Deferred = nil
		c.Work = cost * command.BytesPerUnit
	}
	if q.own || q.cost > maxCost {
		s.leaveTransaction()
		return errTooCostly
	}
	s.executeBeside(x)
	return nil
}

// executeBeside makes the calls beside the event loop, which serves others meanwhile. What the
// transaction leaves behind of the session, that does when it takes the reply.
func (s *Session) executeBeside(x *execution) {
	s.queue, s.lastQueue = nil, nil
	s.showQueue()
	s.call.Offloaded = true
	row, words := s.row, command.CopyWords(s.call.Words)
	s.parkFor(row, 0, func(c *command.Call) error { // its queue counts already
		c.OnReply = func() {
			s.Charge(-x.queue.shown)
			s.unwatch()
			if n := c.View.Selected(); n != s.database {
				s.selectDatabase(n)
			}
		}
		c.Deferred = new(command.Deferred)
		c.Sampling.Begin(c.View.Now())
		switch made, _, err := x.make(c, maxCost); {
		case err != nil:
			return err
		case !made:
			return errTooCostly
		}
		notify(c, c.Misses, false)
		showTransaction(c)
		if instanceOf(c).hooks.Load()&monitored != 0 {
			show(c, row, words)
		}
		if l := c.Deferred; len(l.Calls) > 0 {
			return l.Complete(c, slices.Concat(c.Out.Pieces()...))
		}
		return nil
	})
}

// make makes the calls as one step, if they cost no more than that. It makes none for a client that
// has gone: what that watched is not heard of any more.
func (x *execution) make(c *command.Call, most int) (made bool, cost int, err error) {
	places, all := x.places(c.Server.Databases)
	mark, counted := c.Out.Mark(), c.Counts()
	err = c.View.Atomically(c.Context, places, all, func() error {
		c.Out.Rewind(mark)
		c.ResetCounts(counted)
		if cost = x.queue.cost; x.queue.sized && cost <= most {
			cost += x.queue.weigh(c, x.database, most-cost)
		}
		switch made = cost <= most; {
		case !made:
		case c.Context.Err() != nil, instanceOf(c).watches.changed(c, x.watching):
			c.Out.NullArray()
		default:
			x.run(c)
		}
		return nil
	})
	return made, cost, err
}

// places are the keys that are touched, or were watched; all if any may be.
func (x *execution) places(databases int) (places []store.KeyRef, all bool) {
	q := x.queue
	if len(q.places) == 0 { // else it was found out that the calls cost too much for an event loop
		x.all = q.findPlaces(x.database, databases) || q.selects() && (x.guarded || q.own) // SELECT may be refused
		for _, w := range x.watching {
			q.places = append(q.places, w.place)
		}
	}
	return q.places, x.all
}

const errNotMade command.Refusal = "ERR not made: the replies of the transaction are longer than 64 MiB"

// The steps of a few nanoseconds that all patterns of a transaction may take to match: on an event
// loop a fraction of a millisecond, beside it some tens, while its keys are locked. Patterns that
// people write take a few for each key.
const (
	stepsInTurn = 1 << 16
	stepsBeside = 1 << 23
)

// run makes the calls. An error of one does not keep the others from being made; but when the
// replies are too long, no more are.
func (x *execution) run(c *command.Call) {
	c.InTransaction, c.PatternSteps = true, stepsBeside
	if c.Session != nil {
		c.PatternSteps = stepsInTurn
	}
	defer func() { c.InTransaction = false }()
	c.Out.Array(len(x.queue.calls))
	for _, call := range x.queue.calls {
		mark, err := c.Out.Mark(), error(errNotMade)
		if mark <= command.MaxReply {
			err = x.runOne(c, call)
		}
		if err != nil {
			if c.Session != nil {
				mark = max(mark, sessionOf(c).mark) // which moves if something is told aloud
			}
			c.Out.Rewind(mark)
			c.Out.Error(instanceOf(c).fail(call.row, err))
		}
		c.Out.Break()
	}
	c.Work = 0 // it is in the cost
}

// runOne makes a call of a transaction, and counts it.
func (x *execution) runOne(c *command.Call, call queued) (err error) {
	row := call.row
	s := sessionOf(c) // which a call before this one may have changed
	if x.guarded || s != nil && s.guarded || s == nil && isGuarded(c.Client) {
		if err := allowQueued(c, row, call.words); err != nil {
			return err
		}
	}
	if row.Cost == command.Constant && !x.slowPath && (s == nil || !s.slowPath) && !instanceOf(c).isNew(row) {
		err = c.Run(row, call.words, false)
	} else {
		err = runTimed(c, row, call.words, false)
	}
	r := instanceOf(c).statsOf(row)
	r.Calls.Add(1)
	r.Limited.Add(c.Limited)
	c.Limited = 0
	return err
}

// makeLater does what the transaction has left, and completes its reply, which begins at the
// session's mark.
func (s *Session) makeLater() {
	l := s.call.Deferred
	s.call.Deferred = nil
	if len(l.Calls) == 0 && l.PushBytes == 0 {
		return
	}
	reply := slices.Clone(s.out.Bytes()[s.mark:])
	s.out.Rewind(s.mark)
	s.takeEarly(l.PushBytes)
	worth := 0
	for i := range l.Calls {
		l.Calls[i].At = max(l.Calls[i].At-s.mark, 0) // a reply that is not wanted was begun anew
		worth += l.Calls[i].Work()
	}
	if worth > command.MaxLoopWork {
		s.parkToEnd(s.row, func(c *command.Call) error { return l.Complete(c, reply) })
		return
	}
	s.call.Work += worth
	_ = l.Complete(&s.call, reply) // it never fails
}
