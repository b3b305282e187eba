package resp

import (
	"bytes"
	"math"
)

// This file is about whose memory the reader's bytes are in. In the usual case they are lent by
// Feed, read where they are, and forgotten by Keep. A call cut in two is held in the reader's own
// memory; the next Feed's input waits behind it, gives what the call lacks, and is then read where
// it is again. So what is copied is what was cut, not what was fed.
//
// A call of many megabytes is held in parts, each of whole words, so that what has arrived of it is
// not moved again and again: no move is of more than a word.

// What a reader holds between batches. Idle connections are many, so each keeps what one ordinary
// call needs and no more.
const (
	idleWords   = 32      // words: room for a CL.ALL over four limiters
	idleRetired = 8       // buffers: an array of them
	idleBytes   = 512     // bytes, of own and of scratch, when nothing is unread
	slack       = 8 << 10 // bytes that own may have whatever is unread, so that a stream cut at random does not allocate
	sparse      = 8       // memory beyond the above must be at least one part in this many in use
	piece       = 128     // bytes to take while it is not known what an unfinished call lacks
)

// partBytes is how many bytes of whole words of an unfinished call are moved no more.
const partBytes = 64 << 10

// Buffered returns the number of bytes held or lent and not yet read: 0 if and only if no call is
// unfinished.
func (r *Reader) Buffered() int { return r.parted + len(r.buf) - r.start + len(r.input) - r.taken }

// Capacity is the bytes of memory that the reader keeps for what it holds.
func (r *Reader) Capacity() int { return r.parted + cap(r.own) }

// EncodedLength is the number of bytes of a call of these words, as an array.
func EncodedLength(words [][]byte) int {
	length := lineLength(len(words))
	for _, word := range words {
		length += lineLength(len(word)) + len(word) + 2
	}
	return length
}

// Feed lends input to the reader, after what is still unread. The reader does not write to it; it
// must stay as it is until Keep. Nothing is copied yet, and later only what completes an unfinished
// call. Words returned before are no longer valid.
func (r *Reader) Feed(input []byte) {
	if r.err != nil {
		return
	}
	if r.Buffered() == 0 {
		r.lend(input)
		return
	}
	if r.lent || r.input != nil {
		r.Keep() // fed twice: only one loan at a time
	}
	r.input = input
}

// lend makes input what is read. The reader's own memory is spare until Keep.
func (r *Reader) lend(input []byte) {
	r.buf, r.lent, r.before = input, true, shape{}
	r.input, r.taken = nil, 0
	r.start, r.pos, r.scan = 0, 0, 0
}

// take copies the next n bytes of the input that waits behind what is held.
func (r *Reader) take(n int) {
	if cap(r.buf)-len(r.buf) < n {
		r.makeRoom(n)
	}
	r.buf = append(r.buf, r.input[r.taken:r.taken+n]...)
	r.own = r.buf
	r.taken += n
	r.spend(n)
}

// makeRoom makes room for n more bytes behind what is unread. What it moves, which is a word at
// most if it is much, gets twice the room, so a byte is moved about once; but no more than the word
// is known to need.
func (r *Reader) makeRoom(n int) {
	whole := r.pos // up to where there are whole words
	if r.body > 0 {
		whole -= lineLength(r.body - 2)
	}
	if r.left > 0 && whole-r.start >= r.part {
		r.parts = append(r.parts, r.buf[r.start:whole])
		r.parted += whole - r.start
		r.start, r.placed = whole, len(r.words)
	} else {
		r.retired = append(r.retired, r.own) // words of calls before this one may stand in it, until Keep
	}
	unread := len(r.buf) - r.start
	room := atMost(2 * unread)
	if r.parted > 0 {
		room = max(room, r.part)
	}
	if r.restricted { // there may be many such readers: exactly what a call needs, and nothing that is kept for others
		r.move(make([]byte, 0, max(unread+n, min(room, int(r.query)))))
		return
	}
	if r.body > r.part {
		room = min(room, r.pos-r.start+r.body)
	}
	r.move(allocate(max(unread+n, room)))
}

// takeMore takes what the unfinished call is known to lack, or a piece if that is not known. False
// if no input waits.
func (r *Reader) takeMore() bool {
	waiting := len(r.input) - r.taken
	if waiting == 0 {
		return false
	}
	lacking := r.body - (len(r.buf) - r.pos)
	r.take(min(waiting, max(lacking, piece)))
	return true
}

// overtake goes over to the input in place once the call that was held is done, and all that is
// held stands there too.
func (r *Reader) overtake() {
	if surplus := len(r.buf) - r.start; surplus <= r.taken && r.input != nil {
		r.lend(r.input[r.taken-surplus:])
	}
}

// Drained says that there is nothing to read: no call, no part of one, no error.
func (r *Reader) Drained() bool { return r.start == len(r.buf) && r.err == nil }

// Keep copies what is unread into the reader's own memory, so that the lent bytes may be used
// again, and lets go of memory that a large call needed. Words returned before are no longer valid.
// To be called at the end of each batch.
func (r *Reader) Keep() {
	if r.lent && !r.noted && r.start == len(r.buf) {
		r.buf, r.lent = r.own[:0], false // nothing is unread, and no memory was needed: of most batches this is all
		r.start, r.pos, r.scan = 0, 0, 0
		return
	}
	r.noted = false
	if r.scratch = r.scratch[:0]; cap(r.scratch) > idleBytes {
		r.scratch = nil
	}
	unread := len(r.buf) - r.start
	if r.lent || r.start >= unread { // else moving costs more than was read: later, so that a byte is moved about once
		r.keepWords()
		before := r.own
		if r.move(r.spare(unread)); cap(r.own) != cap(before) {
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
	r.take(len(r.input) - r.taken)
	r.input, r.taken = nil, 0
}

// Long returns the call that Next returned last if that is a long one, else nil: its bytes, in one
// or more parts of whole words. They are the caller's for good: a call that came in pieces is
// handed over, not copied. SplitCall finds its words.
func (r *Reader) Long() [][]byte {
	call := r.long
	switch {
	case call == nil:
	case r.held && !r.lent && len(r.buf)-r.start > len(call[len(call)-1]):
		call[len(call)-1] = bytes.Clone(call[len(call)-1]) // what came behind it is more
		r.long = nil
	case r.held:
		r.held, r.long, r.own, r.words = false, nil, nil, nil
		if !r.lent {
			r.move(nil) // what came behind the call
		}
	default:
		call = [][]byte{bytes.Clone(call[0])}
	}
	return call
}

// WordsOwned says that the words which Next or Append returned last stand in the reader's own memory: all
// of a call that came in pieces do.
func (r *Reader) WordsOwned() bool { return r.held }

// Detach has the words of Held be the caller's for good: the reader goes on in other memory. It is
// for words that are much to copy.
func (r *Reader) Detach() {
	clear(r.retired)
	if r.retired, r.own = r.retired[:0], nil; !r.lent {
		r.move(nil)
	}
}

// WordCount is how many words the call has that Next or Append returned last, a long one too.
func (r *Reader) WordCount() int { return r.total }

// SplitCall finds the words of a long call. They are parts of call. After each of these it calls
// pause.
func SplitCall(call [][]byte, pause func()) [][]byte {
	r := NewReader(Limits{Bulk: math.MaxInt, Words: math.MaxInt, Inline: math.MaxInt, Query: math.MaxInt})
	r.record = math.MaxInt
	for _, words := range call {
		r.lend(words)
		_, _ = r.read(words) // it was read before, so it is whole and right
		pause()
	}
	return r.words
}

// keepWords lets go of words already returned, and of their memory if it is much for what stays.
func (r *Reader) keepWords() {
	if r.left == 0 {
		r.words = r.words[:0]
	}
	if cap(r.words) > idleWords && len(r.words) < cap(r.words)/sparse {
		r.words = append([][]byte(nil), r.words...)
	}
	clear(r.words[len(r.words):cap(r.words)]) // or they would hold on to lent memory
}

// spare is empty memory of the reader's own for unread bytes: what it has, if that is enough and
// not far too much.
func (r *Reader) spare(unread int) []byte {
	switch room := cap(r.own); {
	case unread == 0 && room > idleBytes:
		return nil
	case unread > room, room > slack && unread < room/sparse:
		return make([]byte, 0, unread)
	}
	return r.own[:0]
}

// move copies the unread bytes to the beginning of to, which is from then on the reader's own
// memory. The two may overlap.
func (r *Reader) move(to []byte) {
	r.spend(len(r.buf) - r.start)
	r.buf = append(to, r.buf[r.start:]...)
	r.own = r.buf
	r.lent = false
	r.pos, r.scan, r.start = max(r.pos-r.start, 0), max(r.scan-r.start, 0), 0
	if r.left > 0 {
		r.placeWords()
	}
}

// placeWords points the words of the unfinished call at start to where its bytes are now, but for
// those in its parts. Their places need not have been noted: a length has one spelling, so the
// lengths alone tell how long each line is.
func (r *Reader) placeWords() {
	at, words := r.start, r.words[r.placed:]
	if r.parted == 0 {
		at += lineLength(r.total)
	}
	for i, word := range words {
		at += lineLength(len(word))
		end := at + len(word)
		words[i] = r.buf[at:end:end]
		at = end + 2
	}
	r.spend(len(words))
}

// lineLength is the number of bytes in a length line that says n.
func lineLength(n int) int {
	length := len("$0\r\n")
	for ; n > 9; n /= 10 {
		length++
	}
	return length
}

// spend counts work for the test that proves it linear.
func (r *Reader) spend(n int) {
	if r.work != nil {
		*r.work += n
	}
}
