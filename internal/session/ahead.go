package session

import (
	"bytes"
	"slices"

	"cellserver/internal/command"
	"cellserver/internal/resp"
)

// ahead is a window of calls that have been read and not answered.
type ahead struct {
	words       [][]byte // of all calls, one call after another
	calls       [Lookahead]pendingCall
	keys        [][]byte    // keys to prefetch: the first of each call, or all that its row finds
	varied      resp.Varied // the keys that the row of the latest call has found
	repeated    repeated    // which calls repeat the latest one that was not itself read as a repeat
	tokenLength int         // of the latest call, if its token may differ in calls that repeat it
	count       int         // of calls
	next        int         // index of the call that is answered next
	usedWords   int         // the maximum length of words in this batch
	copied      bool        // the words of the remaining calls are copies, which stay valid after the batch
	long        *longCall   // the last call if it is a long one; words has only its first words
}

// repeated says which calls repeat a call.
type repeated uint8

const (
	byNothing repeated = iota
	byKey              // calls that differ from it only in their second word, a key
	byToken            // calls that differ from it only in this word and in the last, an ID token
	byKeys             // calls that differ from it only in the words ahead.varied
)

// pendingCall is a call that has been read and not answered.
type pendingCall struct {
	row        *command.Command // nil if no command has that name
	start, end int32            // of its words in ahead.words; idle connections are many, so it is small
	key        []byte           // its first key, if it repeats the call before it
	token      []byte           // its last word, if it repeats that call byToken
	repeats    repeated         // how the call repeats the one before it
	inReader   bool             // its words are in the reader's own memory
}

// longCall is a call of more words than are read on an event loop: see resp.LongCall.
type longCall struct {
	count, bytes int                         // of its words
	words        func(pause func()) [][]byte // reads them, and calls pause now and then
}

// Lookahead is the number of calls that are read before the first of them is answered. A modern
// processor can have ten to sixteen loads in flight, so it fetches the records of that many keys at
// the same time; and that many calls still fit in its first-level cache.
const Lookahead = 16

// idleWords is the capacity, in words per call, that a session keeps between batches.
const idleWords = 16

func (a *ahead) empty() bool { return a.next == a.count }

// take returns the next call and its words, or only the first words of a long call.
func (a *ahead) take() (w *pendingCall, words [][]byte) {
	w = &a.calls[a.next]
	a.next++
	words = a.words[w.start:w.end]
	if w.repeats != byNothing {
		w.patch(words)
	}
	return w, words
}

// patch puts the words in which a repeating call differs into words, which it may share with the call before it: that
// call has been answered.
func (w *pendingCall) patch(words [][]byte) {
	words[w.row.FirstKey] = w.key
	if w.repeats == byToken {
		words[len(words)-1] = w.token
	}
}

// putBack undoes take.
func (a *ahead) putBack() { a.next-- }

// latest returns the row of the call that was taken last; nil if it has none.
func (a *ahead) latest() *command.Command {
	w := &a.calls[a.next-1]
	return w.row.Subcommand(a.words[w.start:w.end])
}

// longCall returns the call that was taken last if it is a long one, else nil.
func (a *ahead) longCall() *longCall {
	if a.empty() {
		return a.long
	}
	return nil
}

// inReader reports whether the words of the call that was taken last are in the reader's own
// memory.
func (a *ahead) inReader() bool { return !a.copied && a.calls[a.next-1].inReader }

// reset empties the window for the next one.
func (a *ahead) reset() {
	a.usedWords = max(a.usedWords, len(a.words))
	a.words, a.count, a.next, a.copied, a.long = a.words[:0], 0, 0, false, nil
}

// release frees what the window does not need between batches, because idle connections are many.
// It clears its references to words: otherwise they would keep the input that they point into,
// which may be a call of many megabytes.
func (a *ahead) release() {
	if !a.empty() {
		return
	}
	a.reset()
	if cap(a.words) > Lookahead*idleWords || cap(a.keys) > 2*maxKeys {
		*a = ahead{}
		return
	}
	clear(a.words[:a.usedWords])
	clear(a.keys[:cap(a.keys)])
	a.usedWords = 0
}

// fill reads calls until there are limit of them, no whole call is left, or the reader fails. It
// finds the row and the keys of each.
func (a *ahead) fill(r *resp.Reader, t *command.Table, known *command.LookupCache, limit int) (err error) {
	a.keys = a.keys[:0]
	for a.count < limit && a.long == nil && !r.Drained() {
		if a.readRepeat(r) {
			continue
		}
		a.growWords(r)
		start := len(a.words)
		if a.words, err = r.Append(a.words); len(a.words) == start {
			return err
		}
		words := a.words[start:]
		row := t.LookupCached(words[0], known)
		w := &a.calls[a.count]
		*w = pendingCall{row: row, start: int32(start), end: int32(len(a.words)), inReader: r.WordsOwned()}
		a.addKeys(row, words)
		if a.repeated = byNothing; !r.Drained() { // nothing repeats a call that is alone
			a.setRepeated(r, row, words)
		}
		a.count++
		if long := r.Long(); long != nil {
			a.long = &longCall{r.WordCount(), command.TotalLength(long), func(pause func()) [][]byte {
				return resp.SplitCall(long, pause)
			}}
		}
		if row != nil && row.Flags&command.NoAuth != 0 {
			break // the call may log the client in or out, and calls of a client that is not logged in must be short
		}
	}
	return nil
}

// growWords makes room for the words of a window, once its first call has been read: most calls of a pipeline have
// equally many words.
func (a *ahead) growWords(r *resp.Reader) {
	if a.count == 1 && r.Buffered() > 0 {
		a.words = slices.Grow(a.words, (Lookahead-1)*len(a.words))
	}
}

// fillFrom is fill for the calls of a client in this process. It does not compare calls with one another: making them
// costs more than comparing would save.
func (a *ahead) fillFrom(calls *Calls, limits *resp.Limits, t *command.Table, known *command.LookupCache,
	limit int) error {
	a.keys, a.copied = a.keys[:0], true
	for a.count < limit && a.long == nil && calls.made < len(calls.calls) {
		start := len(a.words)
		a.words = calls.next(a.words)
		words := a.words[start:]
		if err := limits.Check(words); err != nil {
			a.words = a.words[:start]
			return err
		}
		if calls.made++; len(words) > resp.LongCall {
			all := slices.Clone(words)
			a.long = &longCall{len(all), resp.EncodedLength(all), func(func()) [][]byte { return all }}
			a.words = a.words[:start+resp.LongCall]
		}
		row := t.LookupCached(words[0], known)
		a.calls[a.count] = pendingCall{row: row, start: int32(start), end: int32(len(a.words))}
		a.addKeys(row, words)
		a.count++
	}
	return nil
}

// addKeys adds the first key of a call to the keys to prefetch, or all keys if the row finds them
// itself. It adds nothing if the row makes its keys from other words.
func (a *ahead) addKeys(row *command.Command, words [][]byte) {
	a.varied.At = a.varied.At[:0]
	switch {
	case row == nil || row.FirstKey == 0 || len(words) <= row.FirstKey || len(a.keys) >= maxKeys:
	case row.Keys.Find != nil:
		a.varied.At, _ = row.Keys.Find(a.varied.At, words)
		a.addVaried(words)
	case row.Keys.Touched == nil:
		a.keys = append(a.keys, words[row.FirstKey])
	}
}

// setRepeated finds out what may repeat a call that was read last: so far, nothing.
func (a *ahead) setRepeated(r *resp.Reader, row *command.Command, words [][]byte) {
	switch {
	case row == nil:
	case len(a.varied.At) > 0:
		a.repeated = byKeys
		r.Vary(&a.varied, words)
	case row.FirstKey != 1:
	case row.EndsWithToken(words):
		a.repeated, a.tokenLength = byToken, len(words[len(words)-1])
	default:
		a.repeated = byKey
	}
}

// maxKeys bounds the keys that are prefetched for one window, except for the keys of its last call.
const maxKeys = 2 * Lookahead

func (a *ahead) addVaried(words [][]byte) {
	for _, i := range a.varied.At {
		a.keys = append(a.keys, words[i])
	}
}

// readRepeat reads the next call if it repeats the one before it.
func (a *ahead) readRepeat(r *resp.Reader) bool {
	if a.count == 0 {
		return false
	}
	var key []byte
	var ok bool
	switch a.repeated {
	case byKey:
		key, ok = r.Repeat()
	case byToken:
		key, a.calls[a.count].token, ok = r.RepeatWithLast(a.tokenLength)
	case byKeys:
		return a.readVaried(r)
	}
	if !ok {
		return false
	}
	before, w := &a.calls[a.count-1], &a.calls[a.count]
	w.row, w.start, w.end = before.row, before.start, before.end
	w.repeats, w.key, w.inReader = a.repeated, key, false
	if before.row.Keys.Touched == nil {
		a.keys = append(a.keys, key)
	}
	a.count++
	return true
}

// readVaried is readRepeat for a call that differs in several keys. It gets words of its own.
func (a *ahead) readVaried(r *resp.Reader) bool {
	a.growWords(r)
	before, start := &a.calls[a.count-1], len(a.words)
	a.words = append(a.words, a.words[before.start:before.end]...)
	words := a.words[start:]
	if !r.RepeatVaried(&a.varied, words) {
		a.words = a.words[:start]
		return false
	}
	if len(a.keys) < maxKeys {
		a.addVaried(words)
	}
	w := &a.calls[a.count]
	w.row, w.start, w.end = before.row, int32(start), int32(len(a.words))
	w.repeats, w.key, w.inReader = byKeys, words[before.row.FirstKey], false
	a.count++
	return true
}

// copyRest copies the words of the calls that are left, which are borrowed until the end of the
// batch.
func (a *ahead) copyRest() {
	if a.copied {
		return
	}
	copied := int32(-1)
	for i := a.next; i < a.count; i++ {
		w := &a.calls[i]
		if w.start != copied { // a repeat shares the words of the call before it
			words := a.words[w.start:w.end]
			copy(words, command.CopyWords(words))
			copied = w.start
		}
		if w.repeats != byNothing {
			w.key, w.token = bytes.Clone(w.key), bytes.Clone(w.token)
		}
	}
	a.copied = true
}

// peek returns the row of the next call; nil if the call has no row, or the wrong number of words.
func (a *ahead) peek() *command.Command {
	w := &a.calls[a.next]
	words := a.words[w.start:w.end]
	if row := w.row.Subcommand(words); row != nil && row.Grammar.Fits(len(words)) {
		return row
	}
	return nil
}
