// Package transaction is MULTI, EXEC, DISCARD, WATCH and UNWATCH: the calls that a client has
// queued, and the keys that it watches. The session makes the calls.
package transaction

import (
	"strings"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/store"
)

// Session is what the commands need of the session that makes the call.
type Session interface {
	Transaction() *State
	// Execute makes the queued calls as one step, in this turn or outside the event loop, and ends
	// the transaction.
	Execute() error
}

// stateOf returns the transaction of the client that makes a call.
func stateOf(c *command.Call) *State { return c.Session.(Session).Transaction() }

// State is the transaction of one session. Only its session uses it.
type State struct {
	Queue *Queue // the calls since MULTI; nil outside of a transaction

	spare        *Queue // empty, for the next transaction
	client       *client.Client
	watches      *Watches
	watching     []*watch
	watchedBytes int // sum of the lengths of the keys in watching
	contentBytes int // sum of the lengths of what they held, if the store announces no changes
}

// Begin sets the client whose transaction it is.
func (s *State) Begin(c *client.Client, watches *Watches) { s.client, s.watches = c, watches }

// Abort makes EXEC refuse the transaction that is being queued, if there is one.
func (s *State) Abort() {
	if s.Queue != nil {
		s.Queue.Aborted = true
	}
}

// Leave ends the transaction, and the watches of its keys.
func (s *State) Leave() {
	if s.Queue != nil {
		s.client.Charge(-s.Queue.charged)
		s.Queue, s.spare = nil, s.Queue.recycle()
		s.Charge()
	}
	s.Unwatch()
}

// Detach takes the queue from the session, to be executed outside its event loop. Finish is called
// after that.
func (s *State) Detach() (q *Queue, watching Watching) {
	q, s.Queue, s.spare = s.Queue, nil, nil
	s.Charge()
	return q, s.Watching()
}

// Finish ends the execution of a queue that was detached.
func (s *State) Finish(q *Queue) {
	s.client.Charge(-q.charged)
	s.Unwatch()
}

// Charge charges the client for the memory of the queue, and updates what CLIENT LIST shows of it:
// the number of calls, plus one, in the high half of Queued, and their bytes in the low half.
func (s *State) Charge() {
	q := s.Queue
	if q == nil {
		s.client.Counts.Queued.Store(0)
		return
	}
	s.client.Counts.Queued.Store(int64(len(q.Calls)+1)<<32 | int64(q.size))
	held := q.size + q.count*client.WordBytes + len(q.Calls)*client.QueuedBytes
	s.client.Charge(held - q.charged)
	q.charged = held
}

// Commands lists the family in reading order.
func (ws *Watches) Commands() []*command.Command {
	return []*command.Command{&multi, &exec, &discard, ws.watch(), &unwatch}
}

// Cleanup ends the client's transaction and its watches.
func (ws *Watches) Cleanup() command.Cleanup {
	return command.Cleanup{
		Reset: func(c *command.Call) { stateOf(c).Leave() },
		Close: func(_ *client.Client, session command.Session) { session.(Session).Transaction().Unwatch() },
	}
}

// Info is the family's part of INFO.
func (ws *Watches) Info() command.InfoPart {
	return command.InfoPart{Section: "Clients", Write: func(_ *command.Call, out *command.InfoText) {
		clients, keys := ws.counts()
		out.Add("watching_clients", clients)
		out.Add("total_watched_keys", keys)
	}}
}

// flags are the flags that the commands of this family share.
const flags = command.NoScript | command.Loading | command.Stale | command.Fast | command.AllowBusy

var multi = command.Command{
	Name: "multi", Group: "transactions", Since: "1.2.0", Complexity: "O(1)", Flags: flags,
	Cost: command.Constant, Traits: command.Unqueued,
	Summary: "Begins a transaction: calls are queued until EXEC.", Reply: "OK.",
	Run: func(c *command.Call) error {
		s := stateOf(c)
		if s.Queue != nil {
			return command.Refusal("ERR MULTI calls can not be nested")
		}
		if s.Queue = s.spare; s.Queue == nil {
			s.Queue = new(Queue)
		}
		s.Charge()
		c.Out.Status("OK")
		return nil
	},
}

var discard = command.Command{
	Name: "discard", Group: "transactions", Since: "2.0.0",
	Complexity: "O(N) in the number of queued calls", Flags: flags, Cost: command.Constant,
	Traits:  command.Unqueued | command.AllowedFull,
	Summary: "Discards the queued calls, and stops watching keys.", Reply: "OK.",
	Run: func(c *command.Call) error {
		s := stateOf(c)
		if s.Queue == nil {
			return command.Refusal("ERR DISCARD without MULTI")
		}
		s.Leave()
		c.Out.Status("OK")
		return nil
	},
}

const execFlags = command.NoScript | command.Loading | command.Stale | command.Unlogged

var exec = command.Command{
	Name: "exec", Group: "transactions", Since: "1.2.0",
	Complexity: "Depends on the commands in the transaction",
	Flags:      execFlags,
	Cost:       command.Constant, Traits: command.Unqueued | command.AllowedFull,
	Admit: command.Admission{
		Flags: func(c *command.Call) command.Flags { return execFlags | stateOf(c).Queue.flags() },
		Refused: func(c *command.Call, err error) error {
			stateOf(c).Leave()
			return command.Refusal("EXECABORT Transaction discarded because of: " + strings.TrimPrefix(err.Error(), "ERR "))
		},
	},
	Summary: "Executes the queued calls, as one step.",
	Reply:   "The replies, in order; nil if a watched key has changed, and then none was executed.",
	Run: func(c *command.Call) error {
		switch s := stateOf(c); {
		case s.Queue == nil:
			return command.Refusal("ERR EXEC without MULTI")
		case s.Queue.Aborted:
			s.Leave()
			return command.Refusal("EXECABORT Transaction discarded because of previous errors.")
		case c.Server.Abilities&store.IsExternal != 0 && s.Watching().inOther(c.View.Selected()):
			s.Leave()
			return errWatchedElsewhere
		}
		return c.Session.(Session).Execute()
	},
}

const errWatchedElsewhere command.Refusal = "EXECABORT Transaction discarded because it watches a key of another database. " +
	"If the keys are in another program (--store), a transaction touches keys of one database only."

const errTooManyWatched command.Refusal = "ERR too many keys are watched"

func (ws *Watches) watch() *command.Command {
	return &command.Command{
		Name: "watch", OverLong: errTooManyWatched, Group: "transactions", Since: "2.2.0",
		Complexity: "O(1) for every key", Flags: flags, Cost: command.Constant,
		Traits: command.Unqueued, KeyAccess: "RO",
		Summary: "Watches keys: the next EXEC does nothing if one of them changes before it.",
		Args:    []command.Arg{command.Key("key").Many()}, Reply: "OK.",
		Run: func(c *command.Call) error {
			if stateOf(c).Queue != nil {
				return command.Refusal("ERR WATCH inside MULTI is not allowed")
			}
			c.Work += len(c.Words) * command.SubscribeWork
			for _, key := range c.Many() {
				if err := ws.add(c, key); err != nil {
					return err
				}
			}
			c.Out.Status("OK")
			return nil
		},
	}
}

var unwatch = command.Command{
	Name: "unwatch", Group: "transactions", Since: "2.2.0",
	Complexity: "O(N) in the number of watched keys", Flags: flags, Cost: command.Constant,
	Traits: command.Sessionless, Summary: "Stops watching keys.", Reply: "OK.",
	Run: func(c *command.Call) error {
		// Outside the event loop, in EXEC, there is nothing to do: the watches end when the session
		// takes the reply to EXEC.
		if c.Session != nil {
			stateOf(c).Unwatch()
		}
		c.Out.Status("OK")
		return nil
	},
}
