package transaction

import (
	"slices"

	"cellserver/internal/command"
	"cellserver/internal/resp"
	"cellserver/internal/store"
)

// Queue holds the calls of a transaction that has not been executed.
type Queue struct {
	Calls   []Queued
	Aborted bool // a call was refused, so EXEC is refused
	Work    int  // of all calls, as far as their words determine it: see command.WorkOf
	KeyRefs []store.KeyRef
	// Snapshot is the snapshot with which command.KeyRules.Touched has found KeyRefs; nil if no call needs it.
	Snapshot any

	// Properties that hold if any of the calls has them.
	ValueSized   bool // the work depends on values: see WorkOfValues
	Unbounded    bool // it is never made on an event loop
	NeedsSession bool // it needs the session that queued it

	words   [][]byte // of the latest calls, one call after another
	bytes   []byte   // holds the copies that the latest words point into
	count   int      // number of all words
	size    int      // bytes of all words
	charged int      // bytes of memory for which the client is charged
	full    bool     // a call did not fit: no further call is queued
}

// Queued is a queued call.
type Queued struct {
	Row   *command.Command
	Words [][]byte
}

// MaxQueuedWords bounds the words of a queue, and so how long EXEC blocks other clients from its
// keys. Their bytes have the bound of a single call.
const MaxQueuedWords = 1 << 17

// Admit reports whether a call of so many words and bytes fits; maxSize bounds the bytes of the
// queue. After a call that does not fit, the queue is aborted and admits no call, and EXEC is
// refused.
func (q *Queue) Admit(words, size, maxSize int) bool {
	if q.Aborted {
		return !q.full
	}
	if q.count+words > MaxQueuedWords || q.size+size > maxSize {
		*q = Queue{Aborted: true, full: true, charged: q.charged}
		return false
	}
	return true
}

// Copy adds a call and copies its words. longest bounds the bytes of a value.
func (q *Queue) Copy(row *command.Command, words [][]byte, size, longest int) {
	if cap(q.bytes)-len(q.bytes) < size { // append must not move the bytes, because words point into them
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
	q.Add(row, q.words[start:len(q.words):len(q.words)], size, longest)
}

// Add adds a call and keeps its words, which must stay valid.
func (q *Queue) Add(row *command.Command, words [][]byte, size, longest int) {
	q.Calls = append(q.Calls, Queued{row, words})
	q.count += len(words)
	q.size += size
	q.Work += command.WorkOf(row, words, size, longest)
	q.ValueSized = q.ValueSized || row.IsValueSized(words) || row.Traits&command.WalksKeys != 0
	q.Unbounded = q.Unbounded || row.Cost == command.Unbounded
	q.NeedsSession = q.NeedsSession || row.NeedsSession()
}

// recycle returns an empty queue for the next transaction. It reuses the memory of q if that is
// little; many idle sessions may keep such a queue.
func (q *Queue) recycle() *Queue {
	const few = 16
	if cap(q.Calls) > few || cap(q.words) > 4*few || cap(q.bytes) > 64*few || cap(q.KeyRefs) > few {
		return new(Queue)
	}
	clear(q.Calls)
	clear(q.words)
	clear(q.KeyRefs)
	*q = Queue{Calls: q.Calls[:0], words: q.words[:0], bytes: q.bytes[:0], KeyRefs: q.KeyRefs[:0]}
	return q
}

// FindKeys sets KeyRefs to the keys that the calls touch; database is the one that is selected
// before the first call. It returns true if they may touch any key.
func (q *Queue) FindKeys(database, databases int) (all bool) {
	q.each(database, databases, func(row *command.Command, words, keys [][]byte, database int) {
		all = all || row.Traits&command.AnyKey != 0
		for _, key := range keys {
			q.KeyRefs = append(q.KeyRefs, store.KeyRef{Database: database, Key: key})
		}
		if len(keys) > 0 {
			row.EachToken(words, func(token []byte) {
				q.KeyRefs = append(q.KeyRefs, store.KeyRef{Database: database, Key: keys[0], Token: token})
			})
		}
	})
	return all
}

// Selects reports whether there is a SELECT among the calls.
func (q *Queue) Selects() bool {
	return slices.ContainsFunc(q.Calls, func(call Queued) bool { return call.Row.Traits&command.SelectsDatabase != 0 })
}

// flags returns which of the flags Write and DenyOOM any of the calls has; q may be nil.
func (q *Queue) flags() (all command.Flags) {
	if q == nil {
		return 0
	}
	for _, call := range q.Calls {
		all |= call.Row.Flags & (command.Write | command.DenyOOM)
	}
	return all
}

// each calls visit for every call except SELECT, with its keys and the database that is selected at
// that point.
func (q *Queue) each(database, databases int, visit func(row *command.Command, words, keys [][]byte, database int)) {
	var few [4][]byte
	for _, call := range q.Calls {
		if call.Row.Traits&command.SelectsDatabase != 0 {
			if n, ok := resp.ParseInt(call.Words[1]); ok && n >= 0 && n < int64(databases) {
				database = int(n)
			}
			continue
		}
		visit(call.Row, call.Words, q.keysOf(few[:0], call), database)
	}
}

// keysOf appends the names of the keys that a call touches.
func (q *Queue) keysOf(keys [][]byte, call Queued) [][]byte {
	if q.Snapshot == nil && call.Row.Keys.Snapshot != nil {
		q.Snapshot = call.Row.Keys.Snapshot()
	}
	return call.Row.TouchedKeys(keys, call.Words, q.Snapshot)
}
