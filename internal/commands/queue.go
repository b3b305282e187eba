package commands

import (
	"slices"
	"strings"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/resp"
	"cellserver/internal/store"
)

// queue is the calls of a transaction that has not been executed.
type queue struct {
	calls  []queued
	words  [][]byte // of the latest calls, end to end
	bytes  []byte   // where the latest of them are: copies
	count  int      // of words
	size   int      // bytes of all
	shown  int      // bytes of memory that are charged to the session
	cost   int      // of all calls, as far as they tell it themselves: see costOf
	broken bool     // a call was refused already: so EXEC refuses them all
	full   bool     // and so is every call from here on
	sized  bool     // what some cost grows with what stands at their keys
	slow   bool     // some are never made on an event loop
	own    bool     // some need the session that queued them
	places []store.KeyRef
}

type queued struct {
	row   *command.Command
	words [][]byte
}

// The bounds of a queue: what it holds, and so how long EXEC keeps others from its keys. Its bytes
// are bounded as a call's are.
const maxQueuedWords = 1 << 17

const errTooMuchQueued command.Refusal = "ERR too many words are queued for one transaction"

// enqueue takes a call for EXEC. Of a long one the words are in long: they are found beside the
// loop, if there is room for them.
func (s *Session) enqueue(row *command.Command, words [][]byte, long [][]byte) error {
	q, size := s.queue, command.TotalLength(words)
	if long != nil {
		size = command.TotalLength(long)
	}
	limits := s.instance.Limits.Load()
	if !q.takes(s.words, size, limits.Query) {
		s.showQueue()
		return errTooMuchQueued
	}
	switch {
	case q.broken:
	case long != nil:
		s.enqueueLong(row, long)
		return nil
	case size > muchToCopy && s.ahead.isHeld():
		q.add(row, s.takeOver(words), size, limits.Bulk)
	default:
		q.copy(row, words, size, limits.Bulk)
	}
	s.showQueue()
	s.out.Status("QUEUED")
	return nil
}

// enqueueLong has the words of a long call found beside the loop, and then queued.
func (s *Session) enqueueLong(row *command.Command, long [][]byte) {
	guarded, q := s.guarded, s.queue
	s.parkFor(row, client.TotalLength(long)*longCallBytes, func(call *command.Call) error {
		words := resp.SplitCall(long, call.Yield)
		if guarded {
			if err := allow(call, row, words, true); err != nil {
				call.OnReply = func() { q.broken = true }
				return err
			}
		}
		call.OnReply = func() {
			q.add(row, words, command.TotalLength(long), s.instance.Limits.Load().Bulk)
			s.showQueue()
		}
		call.Out.Status("QUEUED")
		return nil
	})
}

// muchToCopy is a call, in bytes, whose words are taken over from the reader rather than copied.
const muchToCopy = 64 << 10

// takeOver is own for the words of a call that the reader holds, without a copy of them; unless
// what came behind the call is more, which would be moved.
func (s *Session) takeOver(words [][]byte) [][]byte {
	if s.reader.Buffered() > command.TotalLength(words) {
		return command.CopyWords(words)
	}
	s.reader.Detach()
	return append([][]byte(nil), words...)
}

// showQueue tells others how long the queue is.
func (s *Session) showQueue() {
	q := s.queue
	if q == nil {
		s.Queued.Store(0)
		return
	}
	s.Queued.Store(int64(len(q.calls)+1)<<32 | int64(q.size))
	held := q.size + q.count*client.WordBytes + len(q.calls)*client.QueuedBytes
	s.Charge(held - q.shown)
	q.shown = held
}

// takes says whether there is room for a call of so many words and bytes; once there is none, there
// is none for any.
func (q *queue) takes(words, size, most int) bool {
	if q.broken {
		return !q.full
	}
	if q.count+words > maxQueuedWords || q.size+size > most {
		*q = queue{broken: true, full: true, shown: q.shown}
		return false
	}
	return true
}

// copy copies a call to the queue's end.
func (q *queue) copy(row *command.Command, words [][]byte, size, longest int) {
	if cap(q.bytes)-len(q.bytes) < size { // not to be moved: there are words in it
		q.bytes = make([]byte, 0, max(size, 2*cap(q.bytes), 128))
	}
	if cap(q.words)-len(q.words) < len(words) {
		q.words = make([][]byte, 0, max(len(words), 2*cap(q.words), 8))
	}
	start := len(q.words)
	for _, word := range words {
		at := len(q.bytes)
		q.bytes = append(q.bytes, word...)
		q.words = append(q.words, q.bytes[at:len(q.bytes):len(q.bytes)])
	}
	q.add(row, q.words[start:len(q.words):len(q.words)], size, longest)
}

// add adds a call whose words are the queue's for good.
func (q *queue) add(row *command.Command, words [][]byte, size, longest int) {
	q.calls = append(q.calls, queued{row, words})
	q.count += len(words)
	q.size += size
	q.cost += command.UnitsOf(row, words, size, longest)
	q.sized = q.sized || row.IsValueSized(words) || row.Traits&command.WalksKeys != 0
	q.slow = q.slow || row.Cost == command.Unbounded
	q.own = q.own || row.NeedsSession()
}

// emptied is a queue for the next transaction: the same, unless it needs much memory. Idle sessions
// are many.
func (q *queue) emptied() *queue {
	const few = 16
	if cap(q.calls) > few || cap(q.words) > 4*few || cap(q.bytes) > 64*few || cap(q.places) > few {
		return new(queue)
	}
	clear(q.calls)
	clear(q.words)
	clear(q.places)
	*q = queue{calls: q.calls[:0], words: q.words[:0], bytes: q.bytes[:0], places: q.places[:0]}
	return q
}

// abortTransaction has EXEC refuse the transaction that is being queued, if there is one.
func (s *Session) abortTransaction() {
	if s.queue != nil {
		s.queue.broken = true
	}
}

// execAbort begins the refusal of an EXEC, and of what it would have made.
const execAbort = "EXECABORT Transaction discarded because of: "

// turnAway refuses a call before it is made. The transaction that it would be part of cannot be
// executed any more; one that it would have executed is discarded.
func (s *Session) turnAway(row *command.Command, err error) error {
	s.abortTransaction()
	if row.Traits&command.Executes != 0 {
		s.leaveTransaction()
		err = command.Refusal(execAbort + strings.TrimPrefix(err.Error(), "ERR "))
	}
	return s.reject(row, err)
}

// findPlaces finds the keys that the calls touch, from a selected database on; all if they may
// touch any.
func (q *queue) findPlaces(database, databases int) (all bool) {
	q.each(database, databases, func(row *command.Command, words, keys [][]byte, database int) {
		all = all || row.Traits&command.AnyKey != 0
		for _, key := range keys {
			q.places = append(q.places, store.KeyRef{Database: database, Key: key})
		}
	})
	return all
}

// selects says whether there is a SELECT among the calls.
func (q *queue) selects() bool {
	return slices.ContainsFunc(q.calls, func(call queued) bool { return call.row.Traits&command.SelectsDatabase != 0 })
}

// each shows the calls with their keys, and the database that is selected then; but SELECT.
func (q *queue) each(database, databases int, visit func(row *command.Command, words, keys [][]byte, database int)) {
	var few [4][]byte
	for _, call := range q.calls {
		if call.row.Traits&command.SelectsDatabase != 0 {
			if n, ok := resp.ParseInt(call.words[1]); ok && n >= 0 && n < int64(databases) {
				database = int(n)
			}
			continue
		}
		keys, _ := call.row.KeysOf(few[:0], call.words)
		visit(call.row, call.words, keys, database)
	}
}
