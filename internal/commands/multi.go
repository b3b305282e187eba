package commands

import (
	"cellserver/internal/resp"
	"cellserver/internal/store"
)

// Transactions: calls are queued, and then made as one step, if no key that the client watches has changed meanwhile.

// queue is the calls of a transaction that has not been executed.
type queue struct {
	calls  []queued
	words  [][]byte // of all calls, end to end: copies
	bytes  []byte   // where the latest of them are
	size   int      // bytes of all
	broken bool     // a call was refused already: so EXEC refuses them all
	full   bool     // and so is every call from here on
	places []store.Place
}

type queued struct {
	row        *Command
	start, end int // of its words
}

// The bounds of a queue: what it holds, and so how long EXEC keeps others from its keys. Its bytes are bounded as a call's are.
const maxQueuedWords = 1 << 17

const errTooMuchQueued refusal = "ERR too many words are queued for one transaction"

// enqueue takes a call for EXEC. Of a long one the words are in long.
func (s *Session) enqueue(row *Command, words [][]byte, long [][]byte) error {
	q := s.queue
	if long != nil && !q.broken {
		words = resp.SplitCall(long)
	}
	if !q.add(row, words, s.instance.limits.Load().Query) {
		return errTooMuchQueued
	}
	s.showQueue()
	s.out.Status("QUEUED")
	return nil
}

// showQueue tells others how long the queue is.
func (s *Session) showQueue() {
	shown := int64(0)
	if q := s.queue; q != nil {
		shown = int64(len(q.calls)+1)<<32 | int64(q.size)
	}
	s.queued.Store(shown)
}

// add copies a call to the queue's end; false if it is full.
func (q *queue) add(row *Command, words [][]byte, most int) bool {
	if q.broken {
		return !q.full
	}
	size := 0
	for _, word := range words {
		size += len(word)
	}
	if q.size += size; len(q.words)+len(words) > maxQueuedWords || q.size > most {
		*q = queue{broken: true, full: true}
		return false
	}
	if cap(q.bytes)-len(q.bytes) < size { // not to be moved: there are words in it
		q.bytes = make([]byte, 0, max(size, 2*cap(q.bytes), 128))
	}
	start := len(q.words)
	for _, word := range words {
		at := len(q.bytes)
		q.bytes = append(q.bytes, word...)
		q.words = append(q.words, q.bytes[at:len(q.bytes):len(q.bytes)])
	}
	q.calls = append(q.calls, queued{row, start, len(q.words)})
	return true
}

// emptied is a queue for the next transaction: the same, unless it needs much memory. Idle sessions are many.
func (q *queue) emptied() *queue {
	const few = 16
	if cap(q.calls) > few || cap(q.words) > 4*few || cap(q.bytes) > 64*few || cap(q.places) > few {
		return new(queue)
	}
	clear(q.words)
	clear(q.places)
	*q = queue{calls: q.calls[:0], words: q.words[:0], bytes: q.bytes[:0], places: q.places[:0]}
	return q
}

// spoil has EXEC refuse the transaction that is being queued, if there is one.
func (s *Session) spoil() {
	if s.queue != nil {
		s.queue.broken = true
	}
}

// about commands of transactions.
const control = NoScript | Loading | Stale | Fast | Unqueued | AllowBusy

var multi = Command{
	Name: "multi", Group: "transactions", Since: "1.2.0", Complexity: "O(1)", Flags: control,
	Summary: "Begins a transaction: calls are queued until EXEC.", Reply: "OK.",
	Run: func(c *Call) error {
		if c.Session.queue != nil {
			return refusal("ERR MULTI calls can not be nested")
		}
		if c.Session.queue = c.Session.lastQueue; c.Session.queue == nil {
			c.Session.queue = new(queue)
		}
		c.Session.showQueue()
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
	if s.queue != nil {
		s.queue, s.lastQueue = nil, s.queue.emptied()
		s.showQueue()
	}
	s.unwatch()
}

var exec = Command{
	Name: "exec", Group: "transactions", Since: "1.2.0", Complexity: "Depends on the commands in the transaction",
	Flags:   NoScript | Loading | Stale | Unqueued | Quick | Unlogged,
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
		s.published = new(published)
		all := q.findPlaces(s.database, c.instance.store.Databases())
		for _, w := range s.watching {
			q.places = append(q.places, w.place)
		}
		c.View.Atomically(c.Context, q.places, all, func() {
			if s.instance.watches.changed(c, s.watching) {
				c.Out.NullArray()
				return
			}
			c.runQueued(q)
		})
		s.endPublished()
		c.showTransaction()
		return nil
	},
}

// runQueued makes the calls. An error of one does not keep the others from being made.
func (c *Call) runQueued(q *queue) {
	moved := 0
	c.inTransaction = true
	defer func() { c.inTransaction = false }()
	c.Out.Array(len(q.calls))
	for _, call := range q.calls {
		mark := c.Out.Mark()
		if err := c.runOne(call.row, q.words[call.start:call.end]); err != nil {
			c.Out.Rewind(max(mark, c.Session.mark)) // which moves if something is told aloud
			c.Out.Error(c.instance.fail(call.row, err))
		}
		if c.Out.Len() > maxReply {
			c.Out.Rewind(max(mark, c.Session.mark))
			c.Out.Error(string(errReplyTooLong))
		}
		if moved += c.moved; call.row.Flags&(Fast|Quick) == 0 {
			moved += unhurried * fewBytes
		}
	}
	c.moved, c.Session.words = moved, len(q.words) // which is what EXEC counts of a turn
}

// runOne makes a call of a transaction, and counts it.
func (c *Call) runOne(row *Command, words [][]byte) (err error) {
	if c.Session.guarded {
		if err := c.Session.allowQueued(row, words); err != nil {
			return err
		}
	}
	if row.Flags&(Fast|Quick) != 0 && !c.Session.careful && !c.instance.isNew(row) {
		err = c.run(row, words, false)
	} else {
		err = c.timed(row, words, false)
	}
	r := c.instance.statsOf(row)
	r.calls.Add(1)
	r.limited.Add(c.limits)
	c.limits = 0
	return err
}

// findPlaces finds the keys that the calls touch, from a selected database on; all if they may touch any.
func (q *queue) findPlaces(database, databases int) (all bool) {
	var few [4][]byte
	for _, call := range q.calls {
		words := q.words[call.start:call.end]
		if call.row.is(&selectDB) {
			if n, ok := resp.ParseInt(words[1]); ok && n >= 0 && n < int64(databases) {
				database = int(n)
			}
			continue
		}
		all = all || call.row.Flags&Whole != 0
		keys, _ := call.row.keysOf(few[:0], words)
		for _, key := range keys {
			q.places = append(q.places, store.Place{Database: database, Key: key})
		}
	}
	return all
}
