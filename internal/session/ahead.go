package session

import (
	"bytes"
	"slices"

	"cellserver/internal/command"
	"cellserver/internal/resp"
)

// ahead is a window of calls that were read and wait for their answers.
type ahead struct {
	words [][]byte // of all of them, end to end
	calls [Lookahead]waiting
	keys  [][]byte // the calls' first keys
	count int
	next  int      // the call that is answered next
	most  int      // in words: up to where windows of this batch have used it
	owned bool     // what is left was copied, and outlives its batch
	long  [][]byte // the last call, if it is a long one, whole: then of its words only the first are here
	total int      // how many words that has
}

// waiting is one of them.
type waiting struct {
	row        *command.Command // that its first word names, nil if it names none
	start, end int              // of its words, in the window's
	repeats    bool             // its words are those of the call before it, but for the second, which is a key
	second     []byte           // then
	held       bool             // its words stand in the reader's own memory
}

// Lookahead is how many calls are read before the first is answered: enough for the memory of a
// modern processor to fetch them all at once (it follows ten to sixteen loads at a time), few
// enough to keep the calls themselves in its first cache.
const Lookahead = 16

// idleWords is the room that a session keeps between batches: an ordinary call's.
const idleWords = 16

func (a *ahead) empty() bool { return a.next == a.count }

// take is the next call, and its words: all that it had, but for a long one.
func (a *ahead) take() (w *waiting, words [][]byte) {
	w = &a.calls[a.next]
	a.next++
	words = a.words[w.start:w.end]
	if w.repeats {
		words[1] = w.second // the call that had another is answered
	}
	return w, words
}

// repeats says whether the next call says the same as the one before it, but for its key.
func (a *ahead) repeats() bool { return a.calls[a.next].repeats }

// latest is the row of the call that was taken last, nil if it has none.
func (a *ahead) latest() *command.Command {
	w := &a.calls[a.next-1]
	return w.row.Subcommand(a.words[w.start:w.end])
}

// isLong is the whole of the call that was taken last if it is a long one, else nil.
func (a *ahead) isLong() [][]byte {
	if a.empty() {
		return a.long
	}
	return nil
}

// isHeld says whether the words of the call that was taken last stand in the reader's memory.
func (a *ahead) isHeld() bool { return !a.owned && a.calls[a.next-1].held }

// clear makes room for another window.
func (a *ahead) clear() {
	a.most = max(a.most, len(a.words))
	a.words, a.count, a.next, a.owned, a.long = a.words[:0], 0, 0, false, nil
}

// rest lets go of what the last windows needed, when their batch is over: idle connections are
// many. Words that nobody needs any more must not hold on to what they point into, which may be a
// call of many megabytes.
func (a *ahead) rest() {
	if !a.empty() {
		return
	}
	a.clear()
	if cap(a.words) > Lookahead*idleWords || cap(a.keys) > 2*manyKeys {
		*a = ahead{}
		return
	}
	clear(a.words[:a.most])
	clear(a.keys[:cap(a.keys)])
	a.most = 0
}

// fill reads up to most calls, until the window is full, or there is no whole one, or the reader
// fails. It finds each call's row, and gathers their keys.
func (a *ahead) fill(r *resp.Reader, t *command.Table, known *command.LookupCache, most int) (err error) {
	a.keys = a.keys[:0]
	for a.count < most && a.long == nil && !r.Drained() {
		if a.repeat(r) {
			continue
		}
		if a.count == 1 && r.Buffered() > 0 { // those that come together are mostly of one kind
			a.words = slices.Grow(a.words, (Lookahead-1)*len(a.words))
		}
		start := len(a.words)
		if a.words, err = r.Append(a.words); len(a.words) == start {
			return err
		}
		words := a.words[start:]
		row := t.LookupCached(words[0], known)
		a.calls[a.count] = waiting{row: row, start: start, end: len(a.words), held: r.WordsOwned()}
		a.gather(row, words)
		a.count++
		if a.long = r.Long(); a.long != nil {
			a.total = r.WordCount()
		}
		if row != nil && row.Traits&command.ChangesRights != 0 {
			break // who is logged out by it may say less behind it
		}
	}
	return nil
}

// gather adds the key of a call, or the keys if it names which of its words they are.
func (a *ahead) gather(row *command.Command, words [][]byte) {
	switch {
	case row == nil || row.FirstKey == 0 || len(words) <= row.FirstKey || len(a.keys) >= manyKeys:
	case row.Keys.Find != nil:
		a.keys, _ = row.Keys.Find(a.keys, words)
	default:
		a.keys = append(a.keys, words[row.FirstKey])
	}
}

// manyKeys are enough to be brought near at a time.
const manyKeys = 2 * Lookahead

// repeat reads the next call if it repeats the one before it, about another key.
func (a *ahead) repeat(r *resp.Reader) bool {
	if a.count == 0 || a.calls[a.count-1].row == nil || a.calls[a.count-1].row.FirstKey != 1 {
		return false
	}
	second, ok := r.Repeat()
	if !ok {
		return false
	}
	before, w := &a.calls[a.count-1], &a.calls[a.count]
	w.row, w.start, w.end = before.row, before.start, before.end
	w.repeats, w.second, w.held = true, second, false
	a.keys = append(a.keys, second)
	a.count++
	return true
}

// own copies the calls that are left, so that they outlive the batch that lent them.
func (a *ahead) own() {
	if a.owned {
		return
	}
	copied := -1
	for i := a.next; i < a.count; i++ {
		w := &a.calls[i]
		if w.start != copied { // calls that repeat one another share their words
			words := a.words[w.start:w.end]
			copy(words, command.CopyWords(words))
			copied = w.start
		}
		if w.repeats {
			w.second = bytes.Clone(w.second)
		}
	}
	a.owned = true
}

// peek is the row of the call that is answered next, nil if it will be refused for its name or the
// number of its words.
func (a *ahead) peek() *command.Command {
	w := &a.calls[a.next]
	words := a.words[w.start:w.end]
	if row := w.row.Subcommand(words); row != nil && row.Grammar.Fits(len(words)) {
		return row
	}
	return nil
}
