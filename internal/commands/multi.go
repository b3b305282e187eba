package commands

import (
	"cellserver/internal/resp"
	"cellserver/internal/store"
)

// Transactions: calls are queued, and then made as one step, if no key that the client watches has changed meanwhile.

// queue is the calls of a transaction that has not been executed.
type queue struct {
	calls  []queued
	words  int
	bytes  int
	broken bool // a call was refused already: so EXEC refuses them all
}

type queued struct {
	row   *Command
	words [][]byte // copies
}

// The bounds of a queue: what it holds, and so how long EXEC keeps others from its keys. Its bytes are bounded as a call's are.
const maxQueuedWords = 1 << 17

const errTooMuchQueued refusal = "ERR too many words are queued for one transaction"

// enqueue takes a call for EXEC. Of a long one the words are in long.
func (s *Session) enqueue(row *Command, words [][]byte, long [][]byte) error {
	q := s.queue
	if long != nil {
		words = resp.SplitCall(long)
	}
	q.words += len(words)
	for _, word := range words {
		q.bytes += len(word)
	}
	if q.words > maxQueuedWords || q.bytes > s.instance.limits.Query {
		q.calls, q.broken = nil, true
		return errTooMuchQueued
	}
	if !q.broken {
		q.calls = append(q.calls, queued{row, own(words)})
	}
	s.out.Status("QUEUED")
	return nil
}

// spoil has EXEC refuse the transaction that is being queued, if there is one.
func (s *Session) spoil() {
	if s.queue != nil {
		s.queue.broken = true
	}
}

// about commands of transactions.
const control = NoScript | Loading | Stale | Fast | Unqueued

var multi = Command{
	Name: "multi", Group: "transactions", Since: "1.2.0", Complexity: "O(1)", Flags: control,
	Summary: "Begins a transaction: calls are queued until EXEC.", Reply: "OK.",
	Run: func(c *Call) error {
		if c.Session.queue != nil {
			return refusal("ERR MULTI calls can not be nested")
		}
		c.Session.queue = new(queue)
		c.Out.Status("OK")
		return nil
	},
}

var discard = Command{
	Name: "discard", Group: "transactions", Since: "2.0.0", Complexity: "O(N) in the number of queued calls", Flags: control,
	Summary: "Forgets the calls that were queued, and the keys that are watched.", Reply: "OK.",
	Run: func(c *Call) error {
		if c.Session.queue == nil {
			return refusal("ERR DISCARD without MULTI")
		}
		c.Session.leaveTransaction()
		c.Out.Status("OK")
		return nil
	},
}

// leaveTransaction forgets what was queued and watched.
func (s *Session) leaveTransaction() {
	s.queue = nil
	s.unwatch()
}

var exec = Command{
	Name: "exec", Group: "transactions", Since: "1.2.0", Complexity: "Depends on the commands in the transaction",
	Flags:   NoScript | Loading | Stale | Unqueued | Quick,
	Summary: "Makes the calls that were queued, as one step.",
	Reply:   "The replies, in order; nil if a watched key has changed: then none was made.",
	Run: func(c *Call) error {
		s := c.Session
		q := s.queue
		if q == nil {
			return refusal("ERR EXEC without MULTI")
		}
		defer s.leaveTransaction()
		if q.broken {
			return refusal("EXECABORT Transaction discarded because of previous errors.")
		}
		s.queue, s.published = nil, new(published)
		places, all := q.places(s.database, c.instance.store.Databases())
		for _, w := range s.watching {
			places = append(places, w.place)
		}
		c.View.Atomically(c.Context, places, all, func() {
			if s.instance.watches.changed(c, s.watching) {
				c.Out.NullArray()
				return
			}
			c.runQueued(q)
		})
		s.endPublished()
		return nil
	},
}

// runQueued makes the calls. An error of one does not keep the others from being made.
func (c *Call) runQueued(q *queue) {
	moved := 0
	c.Out.Array(len(q.calls))
	for _, call := range q.calls {
		mark := c.Out.Mark()
		if err := c.run(call.row, call.words, false); err != nil {
			c.Out.Rewind(mark)
			c.Out.Error(text(err))
			c.instance.stats.errors.Add(1)
		}
		if c.Out.Len() > maxReply {
			c.Out.Rewind(mark)
			c.Out.Error(string(errReplyTooLong))
		}
		if moved += c.moved; call.row.Flags&(Fast|Quick) == 0 {
			moved += unhurried * fewBytes
		}
	}
	c.moved, c.Session.words = moved, q.words // which is what EXEC counts of a turn
}

// places are the keys that the calls touch, from a selected database on; all if they may touch any.
func (q *queue) places(database, databases int) (places []store.Place, all bool) {
	for _, call := range q.calls {
		if call.row == &selectDB {
			if n, ok := resp.ParseInt(call.words[1]); ok && n >= 0 && n < int64(databases) {
				database = int(n)
			}
			continue
		}
		all = all || call.row.Flags&Whole != 0
		keys, _ := call.row.keysOf(call.words)
		for _, key := range keys {
			places = append(places, store.Place{Database: database, Key: key})
		}
	}
	return places, all
}
