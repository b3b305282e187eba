package transaction

import (
	"slices"

	"cellserver/internal/command"
	"cellserver/internal/resp"
	"cellserver/internal/store"
)

// Queue is the calls of a transaction that has not been executed.
type Queue struct {
	Calls   []Queued
	Aborted bool // a call was refused: EXEC refuses them all
	Cost    int  // of all calls, where their words tell it: see command.UnitsOf
	Sized   bool // the cost of some grows with what their keys hold: see Weigh
	Slow    bool // some are never made on an event loop
	Own     bool // some need the session that queued them
	Places  []store.KeyRef

	words   [][]byte // of the latest calls, end to end
	bytes   []byte   // copies of the latest of them
	count   int      // of words
	size    int      // bytes of all words
	charged int      // bytes of memory that are charged to the client
	full    bool     // no further call is taken
}

// Queued is one call of it.
type Queued struct {
	Row   *command.Command
	Words [][]byte
}

// MaxQueuedWords bounds what a queue holds, and so how long EXEC keeps other clients from its keys.
// Its bytes are bounded as a call's are.
const MaxQueuedWords = 1 << 17

// Takes reports whether there is capacity for a call of so many words and bytes; most is the bound
// of the bytes. Once there is not, the queue takes no call at all, and EXEC is refused.
func (q *Queue) Takes(words, size, most int) bool {
	if q.Aborted {
		return !q.full
	}
	if q.count+words > MaxQueuedWords || q.size+size > most {
		*q = Queue{Aborted: true, full: true, charged: q.charged}
		return false
	}
	return true
}

// Copy adds a call, of whose words it keeps copies. longest bounds the bytes of a value.
func (q *Queue) Copy(row *command.Command, words [][]byte, size, longest int) {
	if cap(q.bytes)-len(q.bytes) < size { // it must not move: words point into it
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

// Add adds a call whose words the queue keeps.
func (q *Queue) Add(row *command.Command, words [][]byte, size, longest int) {
	q.Calls = append(q.Calls, Queued{row, words})
	q.count += len(words)
	q.size += size
	q.Cost += command.UnitsOf(row, words, size, longest)
	q.Sized = q.Sized || row.IsValueSized(words) || row.Traits&command.WalksKeys != 0
	q.Slow = q.Slow || row.Cost == command.Unbounded
	q.Own = q.Own || row.NeedsSession()
}

// emptied is a queue for the next transaction. It is the same one, unless that has taken much
// memory: idle sessions are many.
func (q *Queue) emptied() *Queue {
	const few = 16
	if cap(q.Calls) > few || cap(q.words) > 4*few || cap(q.bytes) > 64*few || cap(q.Places) > few {
		return new(Queue)
	}
	clear(q.Calls)
	clear(q.words)
	clear(q.Places)
	*q = Queue{Calls: q.Calls[:0], words: q.words[:0], bytes: q.bytes[:0], Places: q.Places[:0]}
	return q
}

// FindPlaces finds the keys that the calls touch, if a database is selected before the first. It
// returns true if they may touch any key.
func (q *Queue) FindPlaces(database, databases int) (all bool) {
	q.each(database, databases, func(row *command.Command, words, keys [][]byte, database int) {
		all = all || row.Traits&command.AnyKey != 0
		for _, key := range keys {
			q.Places = append(q.Places, store.KeyRef{Database: database, Key: key})
		}
	})
	return all
}

// Selects reports whether there is a SELECT among the calls.
func (q *Queue) Selects() bool {
	return q.has(func(row *command.Command) bool { return row.Traits&command.SelectsDatabase != 0 })
}

// Writes reports whether one of the calls may change a key.
func (q *Queue) Writes() bool {
	return q.has(func(row *command.Command) bool { return row.Flags&command.Write != 0 })
}

// NeedsMemory reports whether one of the calls is refused while memory is short.
func (q *Queue) NeedsMemory() bool {
	return q.has(func(row *command.Command) bool { return row.Flags&command.DenyOOM != 0 })
}

func (q *Queue) has(property func(row *command.Command) bool) bool {
	return slices.ContainsFunc(q.Calls, func(call Queued) bool { return property(call.Row) })
}

// each visits the calls except SELECT with their keys, and the database that is selected then.
func (q *Queue) each(database, databases int, visit func(row *command.Command, words, keys [][]byte, database int)) {
	var few [4][]byte
	for _, call := range q.Calls {
		if call.Row.Traits&command.SelectsDatabase != 0 {
			if n, ok := resp.ParseInt(call.Words[1]); ok && n >= 0 && n < int64(databases) {
				database = int(n)
			}
			continue
		}
		keys, _ := call.Row.KeysOf(few[:0], call.Words)
		visit(call.Row, call.Words, keys, database)
	}
}
