package resp

import (
	"bytes"
	"math"
)

// This file manages the memory of the reader's bytes. Usually it is borrowed: Feed lends it, the
// reader reads it in place, and Keep returns it. A call that has arrived in part is copied to the
// reader's own memory. The input of the next Feed then follows that copy: the bytes that complete
// the call are copied, and the rest of the input is read in place again. So the bytes of split
// calls are copied, and no others.
//
// An unfinished call of many bytes is kept in parts, each of whole words, so that what has arrived
// of it is not moved again each time the buffer grows: no move is longer than about a word.

// The memory that a reader keeps between batches. There may be many idle connections, so each keeps
// what one ordinary call needs.
const (
	idleWords   = 32      // words: enough for a CL.ALL over four limiters
	idleRetired = 8       // capacity of Reader.retired
	idleBytes   = 512     // bytes of own, and of scratch, while nothing is unread
	alwaysKept  = 8 << 10 // bytes of own while something is unread, so that a stream split at random does not allocate
	minUse      = 8       // larger memory is kept if at least 1/minUse of it is in use
	minCopy     = 128     // bytes that are copied at once while the length of an unfinished call is unknown
)

// partBytes is the size from which the whole words of an unfinished call become a part.
const partBytes = 64 << 10

// Buffered returns the number of bytes that are not read yet, including an unfinished call.
func (r *Reader) Buffered() int {
	return r.parts.bytes + len(r.buf) - r.start + len(r.input) - r.copied
}

// Capacity returns the size in bytes of the reader's own memory.
func (r *Reader) Capacity() int { return r.parts.bytes + cap(r.own) }

// EncodedLength returns the number of bytes of a call of these words that is sent as an array.
func EncodedLength(words [][]byte) int {
	length := lineLength(len(words))
	for _, word := range words {
		length += lineLength(len(word)) + len(word) + 2
	}
	return length
}

// Feed lends input to the reader, to be read after the bytes that are still unread. The reader does
// not write to it, and the caller must not change it until Keep. Only the bytes that complete an
// unfinished call are copied, later. Words returned before are no longer valid.
func (r *Reader) Feed(input []byte) {
	if r.err != nil {
		return
	}
	if r.Buffered() == 0 {
		r.borrow(input)
		return
	}
	if r.borrowed || r.input != nil {
		r.Keep() // there is no Keep between two Feeds; one input can be borrowed at a time
	}
	r.input = input
}

// borrow makes the reader read input. Its own memory is unused until Keep.
func (r *Reader) borrow(input []byte) {
	r.buf, r.borrowed, r.previous = input, true, callShape{}
	r.input, r.copied = nil, 0
	r.start, r.pos, r.scanned = 0, 0, 0
}

// copyInput copies the next n bytes of the waiting input to the end of buf.
func (r *Reader) copyInput(n int) {
	if cap(r.buf)-len(r.buf) < n {
		r.grow(n)
	}
	r.buf = append(r.buf, r.input[r.copied:r.copied+n]...)
	r.own = r.buf
	r.copied += n
	r.countWork(n)
}

// grow makes capacity for n more bytes after the unread bytes. It first removes whole words of a
// long call to a part, so that it moves at most about a word. The new memory has twice the capacity
// that the moved bytes need, so that a byte is moved about once, but not more than the word needs,
// if its length is known.
func (r *Reader) grow(n int) {
	whole := r.pos // end of the whole words
	if r.bodyLength > 0 {
		whole -= lineLength(r.bodyLength - 2)
	}
	if r.wordsLeft > 0 && whole-r.start >= r.parts.size {
		r.parts.list = append(r.parts.list, r.buf[r.start:whole])
		r.parts.bytes += whole - r.start
		r.start, r.parts.words = whole, len(r.words)
	} else {
		r.retired = append(r.retired, r.own) // words of earlier calls may be in it until Keep
	}
	unread := len(r.buf) - r.start
	capacity := pooledSize(2 * unread)
	if r.parts.bytes > 0 {
		capacity = max(capacity, r.parts.size)
	}
	if r.restricted { // there may be many such readers: no more than a call needs, and no reused buffers
		r.moveUnread(make([]byte, 0, max(unread+n, min(capacity, int(r.maxCall)))))
		return
	}
	if r.bodyLength > r.parts.size {
		capacity = min(capacity, r.pos-r.start+r.bodyLength)
	}
	r.moveUnread(allocate(max(unread+n, capacity)))
}

// copyMore copies the bytes that the unfinished call is known to need, or a few if that is unknown.
// It returns false if no input waits.
func (r *Reader) copyMore() bool {
	waiting := len(r.input) - r.copied
	if waiting == 0 {
		return false
	}
	lacking := r.bodyLength - (len(r.buf) - r.pos)
	r.copyInput(min(waiting, max(lacking, minCopy)))
	return true
}

// readInPlace makes the reader read the input in place once it has read the call that was copied,
// if all unread bytes were copied from the input.
func (r *Reader) readInPlace() {
	if surplus := len(r.buf) - r.start; surplus <= r.copied && r.input != nil {
		r.borrow(r.input[r.copied-surplus:])
	}
}

// Drained reports whether everything has been read: there is no call, no part of one, and no error.
func (r *Reader) Drained() bool { return r.start == len(r.buf) && r.err == nil }

// Keep copies the unread bytes into the reader's own memory, so that the caller can use the
// borrowed memory again, and releases memory that a large call needed. Words returned before are no
// longer valid. The caller calls it at the end of each batch.
func (r *Reader) Keep() {
	if r.borrowed && !r.dirty && r.start == len(r.buf) {
		r.buf, r.borrowed = r.own[:0], false // most batches end here: nothing is unread, and no memory was needed
		r.start, r.pos, r.scanned = 0, 0, 0
		return
	}
	r.dirty = false
	if r.scratch = r.scratch[:0]; cap(r.scratch) > idleBytes {
		r.scratch = nil
	}
	unread := len(r.buf) - r.start
	// Own memory is moved only once as many bytes have been read as are unread, so that a byte is moved
	// about once.
	if r.borrowed || r.start >= unread {
		r.trimWords()
		before := r.own
		if r.moveUnread(r.emptyMemory(unread)); cap(r.own) != cap(before) {
			release(before)
		}
	}
	for i, b := range r.retired {
		release(b)
		r.retired[i] = nil
	}
	if r.retired = r.retired[:0]; cap(r.retired) > idleRetired {
		r.retired = nil
	}
	r.copyInput(len(r.input) - r.copied)
	r.input, r.copied = nil, 0
}

// Long returns the bytes of the call that Next returned last, in one or more parts of whole words,
// if it is a long one, else nil. The bytes belong to the caller: if the call arrived in pieces, the
// reader gives its own memory away instead of copying. SplitCall finds the words.
func (r *Reader) Long() [][]byte {
	call := r.longCall
	switch {
	case call == nil:
	case r.owned && !r.borrowed && len(r.buf)-r.start > len(call[len(call)-1]):
		call[len(call)-1] = bytes.Clone(call[len(call)-1]) // more bytes follow the call than it has: copy the call
		r.longCall = nil
	case r.owned:
		r.owned, r.longCall, r.own, r.words = false, nil, nil, nil
		if !r.borrowed {
			r.moveUnread(nil) // copy the bytes that follow the call
		}
	default:
		call = [][]byte{bytes.Clone(call[0])}
	}
	return call
}

// WordsOwned reports whether the words that Next or Append returned last are in the reader's own
// memory. Those of a call that arrived in pieces are.
func (r *Reader) WordsOwned() bool { return r.owned }

// Detach makes the words for which WordsOwned is true belong to the caller, by giving the reader
// other memory. It is for words that are expensive to copy.
func (r *Reader) Detach() {
	clear(r.retired)
	if r.retired, r.own = r.retired[:0], nil; !r.borrowed {
		r.moveUnread(nil)
	}
}

// WordCount returns the number of words of the call that Next or Append returned last, with those
// of a long call that are not in words.
func (r *Reader) WordCount() int { return r.wordCount }

// SplitCall returns the words of a call that Long has returned. They are slices of it. SplitCall
// calls pause after each part, so that the caller can yield the processor.
func SplitCall(call [][]byte, pause func()) [][]byte {
	r := NewReader(Limits{Bulk: math.MaxInt, Words: math.MaxInt, Inline: math.MaxInt, Query: math.MaxInt})
	r.maxNoted = math.MaxInt
	for _, words := range call {
		r.borrow(words)
		_, _ = r.read(words) // it has been read before, so it is complete and valid
		pause()
	}
	return r.words
}

// trimWords removes words that were returned, and reallocates the slice if it is too large for the
// words that stay.
func (r *Reader) trimWords() {
	if r.wordsLeft == 0 {
		r.words = r.words[:0]
	}
	if cap(r.words) > idleWords && len(r.words) < cap(r.words)/minUse {
		r.words = append([][]byte(nil), r.words...)
	}
	clear(r.words[len(r.words):cap(r.words)]) // else they would keep borrowed memory from the garbage collector
}

// emptyMemory returns memory for so many unread bytes: the reader's own, if it is large enough and
// not far too large.
func (r *Reader) emptyMemory(unread int) []byte {
	switch capacity := cap(r.own); {
	case unread == 0 && capacity > idleBytes:
		return nil
	case unread > capacity, capacity > alwaysKept && unread < capacity/minUse:
		return make([]byte, 0, unread)
	}
	return r.own[:0]
}

// moveUnread copies the unread bytes to the beginning of to, which becomes the reader's own memory.
// The two may overlap.
func (r *Reader) moveUnread(to []byte) {
	r.countWork(len(r.buf) - r.start)
	r.buf = append(to, r.buf[r.start:]...)
	r.own = r.buf
	r.borrowed = false
	r.pos, r.scanned, r.start = max(r.pos-r.start, 0), max(r.scanned-r.start, 0), 0
	if r.wordsLeft > 0 {
		r.relocateWords()
	}
}

// relocateWords updates the words of the unfinished call after its bytes have moved, except for
// those in its parts. It computes the positions from the lengths of the words: a length has one
// spelling, so the line with the length has one length too.
func (r *Reader) relocateWords() {
	at, words := r.start, r.words[r.parts.words:]
	if r.parts.bytes == 0 {
		at += lineLength(r.wordCount)
	}
	for i, word := range words {
		at += lineLength(len(word))
		end := at + len(word)
		words[i] = r.buf[at:end:end]
		at = end + 2
	}
	r.countWork(len(words))
}

// lineLength returns the number of bytes of a line with the count or length n.
func lineLength(n int) int {
	length := len("$0\r\n")
	for ; n > 9; n /= 10 {
		length++
	}
	return length
}

// countWork counts work for the test that it is linear.
func (r *Reader) countWork(n int) {
	if r.work != nil {
		*r.work += n
	}
}
