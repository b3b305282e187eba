package resp

import (
	"encoding/binary"
	"math"
)

// This file is about reading several calls before the first is answered, as a pipeline asks for:
// what Next does for one call, with less ado for what pipelines are made of. Short words that stand
// whole in lent memory need none of Next's care; and most often a call says the same as the one
// before it, about another key, so that to compare the two is to have read it.

// shape is where the parts of a call stand in buf; the zero shape is no call's.
type shape struct {
	start, end int
	head, tail int // where its second word's length line begins, and where that word ends
	next       int // where the calls that repeat it end
}

// Append is Next for whoever gathers several calls: it appends the call's words to words, none if
// none has arrived whole.
func (r *Reader) Append(words [][]byte) ([][]byte, error) {
	if all, whole := r.appendShort(words); whole {
		return all, nil
	}
	call, err := r.Next()
	return append(words, call...), err
}

// appendShort is the fast way to a call of short words that stands whole in lent memory. Otherwise
// it leaves all to Next.
func (r *Reader) appendShort(words [][]byte) (all [][]byte, whole bool) {
	arrived, pos := r.buf, r.start
	if !r.lent || r.left > 0 || len(arrived)-pos <= 4 || len(arrived)-pos >= int(r.query) {
		return nil, false
	}
	n, width := shortLength(binary.LittleEndian.Uint32(arrived[pos:]), '*')
	if width == 0 || n == 0 || n > r.maxWords() {
		return nil, false
	}
	all, end, left := shortWords(words, math.MaxInt, arrived, pos+width, n, r.maxBulk())
	if left > 0 {
		return nil, false
	}
	r.before = shape{}
	if n > 1 && end < len(arrived) {
		first, second := len(all[len(words)]), len(all[len(words)+1])
		head := pos + width + lineLength(first) + first + 2
		r.before = shape{start: pos, end: end, head: head, tail: head + lineLength(second) + second, next: end}
	}
	r.skip(end, n)
	return all, true
}

// Repeat reads the next call if it is, to the byte, the one that Append read last but for the
// second word, which it returns. It may be called again for the call after it. Otherwise it does
// nothing.
func (r *Reader) Repeat() (second []byte, ok bool) {
	before := &r.before
	arrived := r.buf[r.start:]
	head := before.head - before.start
	if !r.lent || before.end == 0 || before.next != r.start || len(arrived) <= head+4 || len(arrived) >= int(r.query) ||
		string(arrived[:head]) != string(r.buf[before.start:before.head]) {
		return nil, false
	}
	n, width := shortLength(binary.LittleEndian.Uint32(arrived[head:]), '$')
	body := head + width
	tail := body + n
	end := tail + before.end - before.tail
	if width == 0 || n > r.maxBulk() || end > len(arrived) ||
		string(arrived[tail:end]) != string(r.buf[before.tail:before.end]) {
		return nil, false
	}
	before.next = r.start + end
	r.skip(before.next, 1)
	return arrived[body:tail:tail], true
}

// skip goes on behind a call that was read in lent memory.
func (r *Reader) skip(end, words int) {
	r.start, r.pos, r.scan = end, end, end
	r.held, r.long = false, nil
	r.spend(words)
}
