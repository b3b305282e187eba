package resp

import (
	"encoding/binary"
	"math"
)

// This file reads several calls before the first is answered, as suits a pipeline. It has three fast
// paths. Append reads a call of short words that is complete in borrowed memory with fewer checks
// than Next. Repeat handles the most frequent case in a pipeline: a call that differs from the one
// before it in the key alone. There, comparing the two calls replaces parsing. RepeatVaried does so for
// calls of several keys.

// callShape holds indexes in buf of a call. The zero callShape is no call.
type callShape struct {
	start, end       int
	keyStart, keyEnd int // of the second word, which is a key: the start of its length line, and its end
	repeatsEnd       int // end of the latest call that Repeat or its variants have read
}

// Varied are the words in which a call of several keys may differ from the call that it repeats.
type Varied struct {
	At    []int  // indexes, in ascending order
	spans []span // of the words in the call that Append has read last
}

// span is the place in buf of a word with its length line.
type span struct{ start, end int }

// Append is like Next, but appends the words of the call to words, so that a caller can read
// several calls. It appends none if no call has arrived completely.
func (r *Reader) Append(words [][]byte) ([][]byte, error) {
	if all, whole := r.appendShort(words); whole {
		return all, nil
	}
	call, err := r.Next()
	return append(words, call...), err
}

// appendShort is the fast path for a call of short words that is complete in borrowed memory. For
// any other call it does nothing and returns false.
func (r *Reader) appendShort(words [][]byte) (all [][]byte, whole bool) {
	arrived, pos := r.buf, r.start
	if !r.borrowed || r.wordsLeft > 0 || len(arrived)-pos <= 4 || len(arrived)-pos >= int(r.maxCall) {
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
	r.previous = callShape{}
	if n > 1 && end < len(arrived) {
		first, second := len(all[len(words)]), len(all[len(words)+1])
		head := pos + width + lineLength(first) + first + 2
		r.previous = callShape{start: pos, end: end, keyStart: head, keyEnd: head + lineLength(second) + second,
			repeatsEnd: end}
	}
	r.skipCall(end, n)
	return all, true
}

// Repeat reads the next call if each byte of it, except for the second word, equals the byte of
// the call that Append read last. It returns the second word. Repeat can be called again for the calls
// after that. If the call differs, Repeat does nothing and returns false.
func (r *Reader) Repeat() (second []byte, ok bool) {
	last := &r.previous
	arrived := r.buf[r.start:]
	head := last.keyStart - last.start
	if !r.borrowed || last.end == 0 || last.repeatsEnd != r.start || len(arrived) <= head+4 ||
		len(arrived) >= int(r.maxCall) ||
		string(arrived[:head]) != string(r.buf[last.start:last.keyStart]) {
		return nil, false
	}
	n, width := shortLength(binary.LittleEndian.Uint32(arrived[head:]), '$')
	body := head + width
	tail := body + n
	end := tail + last.end - last.keyEnd
	if width == 0 || n > r.maxBulk() || end > len(arrived) ||
		string(arrived[tail:end]) != string(r.buf[last.keyEnd:last.end]) {
		return nil, false
	}
	last.repeatsEnd = r.start + end
	r.skipCall(last.repeatsEnd, 1)
	return arrived[body:tail:tail], true
}

// RepeatWithLast is Repeat for a call whose last word, which it returns, may differ too. length is the length of the
// last word of the call that Append read last, which has more than two.
func (r *Reader) RepeatWithLast(length int) (second, last []byte, ok bool) {
	p := &r.previous
	arrived := r.buf[r.start:]
	head, lastStart := p.keyStart-p.start, p.end-2-length-lineLength(length)
	if !r.borrowed || p.end == 0 || p.repeatsEnd != r.start || len(arrived) <= head+4 ||
		len(arrived) >= int(r.maxCall) ||
		string(arrived[:head]) != string(r.buf[p.start:p.keyStart]) {
		return nil, nil, false
	}
	n, width := shortLength(binary.LittleEndian.Uint32(arrived[head:]), '$')
	body := head + width
	tail := body + n
	line := tail + lastStart - p.keyEnd
	if width == 0 || n > r.maxBulk() || len(arrived) <= line+4 ||
		string(arrived[tail:line]) != string(r.buf[p.keyEnd:lastStart]) {
		return nil, nil, false
	}
	n, width = shortLength(binary.LittleEndian.Uint32(arrived[line:]), '$')
	from, end := line+width, line+width+n
	if width == 0 || n > r.maxBulk() || end+2 > len(arrived) || arrived[end] != '\r' || arrived[end+1] != '\n' {
		return nil, nil, false
	}
	p.repeatsEnd = r.start + end + 2
	r.skipCall(p.repeatsEnd, 2)
	return arrived[body:tail:tail], arrived[from:end:end], true
}

// Vary says in which words, v.At, calls that repeat the one that Append has read last may differ from it. words are
// the words of this call.
func (r *Reader) Vary(v *Varied, words [][]byte) {
	v.spans = v.spans[:0]
	pos, next := r.previous.start+lineLength(len(words)), 0
	for _, at := range v.At {
		for ; next < at; next++ {
			pos += lineLength(len(words[next])) + len(words[next]) + 2
		}
		v.spans = append(v.spans, span{pos, pos + lineLength(len(words[at])) + len(words[at])})
	}
}

// RepeatVaried is Repeat for a call that may differ from the one before in the words v.At. It puts these into words,
// which are a copy of the words of the call before.
func (r *Reader) RepeatVaried(v *Varied, words [][]byte) bool {
	last := &r.previous
	if !r.borrowed || last.end == 0 || last.repeatsEnd != r.start || len(r.buf)-r.start >= int(r.maxCall) {
		return false
	}
	arrived, pos, from := r.buf, r.start, last.start
	for i, s := range v.spans {
		head := pos + s.start - from
		if head+4 >= len(arrived) || string(arrived[pos:head]) != string(arrived[from:s.start]) {
			return false
		}
		n, width := shortLength(binary.LittleEndian.Uint32(arrived[head:]), '$')
		pos, from = head+width+n, s.end
		if width == 0 || n > r.maxBulk() || pos > len(arrived) {
			return false
		}
		words[v.At[i]] = arrived[pos-n : pos : pos]
	}
	end := pos + last.end - from
	if end > len(arrived) || string(arrived[pos:end]) != string(arrived[from:last.end]) {
		return false
	}
	last.repeatsEnd = end
	r.skipCall(end, len(v.At))
	return true
}

// skipCall moves the position to the end of a call that was read in borrowed memory.
func (r *Reader) skipCall(end, words int) {
	r.start, r.pos, r.scanned = end, end, end
	r.owned, r.longCall = false, nil
	r.countWork(words)
}
