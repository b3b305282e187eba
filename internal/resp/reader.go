// Package resp reads calls and writes replies in RESP, the Redis protocol, versions 2 and 3. It
// knows bytes and grammar; what a call means, and which connection it came from, is for others.
//
// The reader is its own because redcon's server and readers panic on
// `*1\r\n$9223372036854775807\r\n` before a client has logged in, allocate twice a command, and
// have no bounds. Replies are encoded by redcon's append-style functions.
package resp

import (
	"bytes"
	"encoding/binary"
	"math"
)

// Limits bound what one connection may make its reader hold. A call is judged by where its bytes
// stand in the stream, never by how the network cut them: the same bytes give the same calls and
// the same error however they arrive.
type Limits struct {
	Bulk   int // bytes in a word (proto-max-bulk-len)
	Words  int // words in a call
	Inline int // bytes before the end of an inline line, and of a length line
	Query  int // bytes of one call, from its first to its last (client-query-buffer-limit)
}

// DefaultLimits allow words of 1 MiB, calls of 1048576 words and 16 MiB, and lines of 64 KiB. Redis
// allows more of the first three; its keys hold documents, ours hold counters, and to move what is
// held of a call must not take long.
func DefaultLimits() Limits {
	return Limits{Bulk: 1 << 20, Words: 1 << 20, Inline: 64 << 10, Query: 16 << 20}
}

// Before AUTH a client may send a HELLO and an AUTH, not a megabyte. The numbers are Redis's.
const (
	restrictedWords = 10
	restrictedBulk  = 16384 // bytes

	// restrictedCall is ours, in bytes: room for a password as long as one may be, and a name that
	// is nearly so. Redis keeps ten words.
	restrictedCall = 32 << 10

	longestBulk = 512 << 20 // bytes of a word that Redis would read of somebody who has logged in
)

// Reader turns the bytes of one connection into calls. For each batch of bytes: Feed them, take
// calls with Next until there is none, then Keep. It reads what it is lent in place; only a call
// that has not arrived whole is copied.
//
// Time is linear in bytes even if they come one at a time, because everything read is remembered:
// start <= pos <= scan. Memory is at most twice what is unread and one Feed, and a slice for each
// word that has arrived: nothing is reserved for what was only announced. What is unread is less
// than Query once Next has said nil. A Reader is not safe for concurrent use.
type Reader struct {
	limits     Limits
	restricted bool
	lent       bool  // buf is the caller's memory, not own
	held       bool  // the call that Next returned last stands in own
	noted      bool  // since Keep there may be words or memory for it to let go of
	query      int32 // bytes of one call: Limits' Query, or less while restricted
	err        error

	buf   []byte // the bytes to read
	start int    // in buf: the first byte of the first call that Next has not returned
	pos   int    // in buf: where reading that call goes on: a length line or a word's body
	scan  int    // in buf: up to where the line at pos is known not to end
	total int    // words of that call, as announced
	left  int    // words of that call still to come; 0 before its count is known
	body  int    // bytes of the word at pos with the two that follow it; 0 before its length is known

	before  shape    // of the call before this one
	words   [][]byte // of the call being read, or last returned; the first LongCall of them
	record  int      // how many words of a call are noted: LongCall
	long    [][]byte // the call last returned, if it has more words than that
	own     []byte   // the reader's own memory; spare while buf is lent
	part    int      // bytes that make one of the parts: partBytes
	parts   [][]byte // of the call at start: words that buf has no more
	parted  int      // bytes of these
	placed  int      // words that stand in them
	retired [][]byte // memory in which words may stand until Keep
	input   []byte   // lent, to be read after buf, which holds an unfinished call; else nil
	taken   int      // bytes at the beginning of input that are in buf too
	scratch []byte   // holds unescaped words of inline calls, until Keep
	work    *int     // counts bytes searched and moved, words placed; for the test that it is linear, else nil
}

// NewReader returns a reader that holds no memory beyond itself until it is fed. Limits below zero
// count as zero; a Query of zero as one byte, which no call fits in.
func NewReader(l Limits) *Reader {
	r := &Reader{record: LongCall, part: partBytes, limits: Limits{
		Bulk:   min(max(l.Bulk, 0), math.MaxInt-2), // a word's body is counted with the two bytes behind it
		Words:  max(l.Words, 0),
		Inline: max(l.Inline, 0),
		Query:  max(l.Query, 1),
	}}
	r.Restrict(false)
	return r
}

// Restrict narrows a call to 10 words of at most 16384 bytes, and 32 KiB in all, or lifts that. A
// session restricts its reader until AUTH succeeds. It applies from the next length line on; inline
// lines are narrow enough.
func (r *Reader) Restrict(on bool) {
	r.restricted, r.before, r.query = on, shape{}, int32(min(r.limits.Query, math.MaxInt32))
	if on {
		r.query = min(r.query, restrictedCall)
	}
}

// LongCall is the number of words beyond which a call is long. To note a million words would keep
// an event loop for milliseconds, so of a long call Next returns the first LongCall words, and the
// rest is for whoever has the time: see Long.
const LongCall = 1024

// Next returns the words of the next call, at least one, or nil if it has not arrived whole. The
// slice is borrowed until the next Next, the words' bytes until Keep or Feed: so a caller may read
// several calls before it answers the first. An error, a ProtocolError or ErrQueryTooLong, is
// final: Next repeats it and Feed is ignored.
func (r *Reader) Next() ([][]byte, error) {
	r.noted = true
	for r.err == nil && r.start < len(r.buf) {
		arrived := r.buf
		most := int(r.query) - r.parted
		full := len(arrived)-r.start >= most
		if full { // what lies beyond the limit must not matter, or the outcome would depend on when it arrives
			arrived = arrived[:r.start+most]
		}
		whole, err := r.read(arrived)
		switch {
		case err != nil:
			r.fail(err)
		case !whole && full:
			r.fail(ErrQueryTooLong)
		case !whole && !r.takeMore():
			return nil, nil
		case whole:
			r.finish()
			if r.held {
				r.overtake()
			}
			if len(r.words) > 0 {
				return r.words, nil
			}
		}
	}
	return nil, r.err
}

// finish goes behind the call that has been read.
func (r *Reader) finish() {
	if r.long = nil; r.total > r.record {
		r.long = append(r.parts, r.buf[r.start:r.pos])
	} else {
		r.retired = append(r.retired, r.parts...)
	}
	r.parts, r.parted, r.placed = nil, 0, 0
	r.start, r.held = r.pos, !r.lent
}

// fail makes err final and lets go of everything: the connection is to be closed, though perhaps
// not at once.
func (r *Reader) fail(err error) {
	*r = Reader{record: r.record, part: r.part, limits: r.limits, query: r.query, restricted: r.restricted, work: r.work,
		err: err}
}

// read goes on with the call at start, as far as its bytes have arrived. When it is whole, pos is
// behind it; what Redis ignores, a blank line or a count below one, is a whole call without words.
func (r *Reader) read(arrived []byte) (whole bool, err error) {
	if r.left > 0 {
		return r.readWords(arrived)
	}
	r.words, r.total = r.words[:0], 0
	if arrived[r.start] != '*' {
		return r.readInline(arrived)
	}
	var n, width int
	if r.pos+4 < len(arrived) {
		n, width = shortLength(binary.LittleEndian.Uint32(arrived[r.pos:]), '*')
	}
	next := r.pos + width
	if width == 0 || n > r.maxWords() {
		if n, next, err = r.readCount(arrived); next == 0 {
			return false, err
		}
	}
	r.pos, r.scan = next, next
	r.total, r.left = n, n
	return r.readWords(arrived)
}

// readWords reads the words that are left, each a length line, a body, and two bytes that Redis
// skips unread.
func (r *Reader) readWords(arrived []byte) (whole bool, err error) {
	known := len(r.words)
	for {
		if r.body == 0 {
			r.words, r.pos, r.left = shortWords(r.words, r.record, arrived, r.pos, r.left, r.maxBulk())
		}
		if r.left == 0 || !r.readWord(arrived, &err) {
			break
		}
	}
	r.scan = max(r.scan, r.pos)
	r.spend(len(r.words) - known)
	return r.left == 0, err
}

// shortWords is the fast way through words of up to 99 bytes that have wholly arrived. It is most
// of what reading costs, so it keeps what it needs in registers and looks at each byte of a length
// line once. Of the words it notes the first up to most. It returns where it stopped, and how many
// words are left.
func shortWords(words [][]byte, most int, arrived []byte, pos, left, longest int) (_ [][]byte, next, _ int) {
	for ; left > 0 && pos+4 < len(arrived); left-- {
		n, width := shortLength(binary.LittleEndian.Uint32(arrived[pos:pos+4]), '$')
		body := pos + width
		end := body + n
		if width == 0 || n > longest || end+2 > len(arrived) {
			break
		}
		if len(words) < most {
			words = append(words, arrived[body:end:end])
		}
		pos = end + 2
	}
	return words, pos, left
}

// readWord reads any word, or as much of it as has arrived; then, and if it is wrong, it returns
// false.
func (r *Reader) readWord(arrived []byte, wrong *error) bool {
	if r.body == 0 {
		n, next, err := r.readLength(arrived)
		if next == 0 {
			*wrong = err
			return false
		}
		r.pos, r.body = next, n+2
	}
	if r.body > len(arrived)-r.pos {
		return false
	}
	end := r.pos + r.body
	if len(r.words) < r.record {
		r.words = append(r.words, arrived[r.pos:end-2])
	}
	r.pos, r.body = end, 0
	r.left--
	return true
}

// shortLength is the fast way through a length line, given its first four bytes: kind, one or two
// digits, '\r'. It leaves everything else, errors too, to the slow way: then width, with the byte
// after '\r', is 0. Small enough to be inlined; four bytes loaded at once need one bounds check.
func shortLength(line uint32, kind byte) (n, width int) {
	tens, ones := byte(line>>8)-'0', byte(line>>16)-'0' // a byte below '0' wraps to far above 9
	if line&0xff00ff == uint32(kind)|'\r'<<16 && tens <= 9 {
		return int(tens), 4
	}
	if line&0xff0000ff == uint32(kind)|'\r'<<24 && ones <= 9 && tens-1 < 9 {
		return int(tens)*10 + int(ones), 5
	}
	return 0, 0
}

// readCount reads the line at pos, '*' and a count of words. A count below 1 is legal and announces
// nothing. next is 0 if the line has not arrived whole or is wrong.
func (r *Reader) readCount(arrived []byte) (n, next int, err error) {
	line, next, found := r.line(arrived, '\r', 1)
	if !found {
		return 0, 0, r.tooLong(errWordsLine)
	}
	count, ok := ParseInt(line[1:])
	switch {
	case ok && r.restricted && restrictedWords < count && count <= math.MaxInt32:
		return 0, 0, errWordsRestricted
	case !ok || count > int64(r.limits.Words):
		return 0, 0, errWords
	}
	return int(max(count, 0)), next, nil
}

// readLength reads the line at pos, '$' and a length in bytes. next is 0 if the line has not
// arrived whole or is wrong.
func (r *Reader) readLength(arrived []byte) (n, next int, err error) {
	line, next, found := r.line(arrived, '\r', 1)
	if !found {
		return 0, 0, r.tooLong(errBulkLine)
	}
	if len(line) == 0 || line[0] != '$' {
		return 0, 0, expectedDollar(arrived[r.pos])
	}
	length, ok := ParseInt(line[1:])
	switch {
	case ok && r.restricted && restrictedBulk < length && length <= longestBulk:
		return 0, 0, errBulkRestricted
	case ok && int64(r.limits.Bulk) < length && length <= longestBulk:
		return 0, 0, ErrValueTooLong
	case !ok || length < 0 || length > int64(r.limits.Bulk):
		return 0, 0, errBulk
	}
	return int(length), next, nil
}

// readInline reads the line at pos as a call typed by hand: words between blanks, up to LF or CR
// LF.
func (r *Reader) readInline(arrived []byte) (whole bool, err error) {
	line, next, found := r.line(arrived, '\n', 0)
	if !found {
		return false, r.tooLong(errInline)
	}
	var ok bool
	if r.words, r.scratch, ok = splitLine(bytes.TrimSuffix(line, []byte{'\r'}), r.words, r.scratch); !ok {
		return false, errQuotes
	}
	r.pos, r.scan = next, next
	return true, r.checkInline()
}

// checkInline holds an inline call to the bounds of an array, so that whoever takes calls may rely
// on them. It can only fail where Bulk or Words is set below Inline.
func (r *Reader) checkInline() error {
	if len(r.words) > r.limits.Words {
		return errWords
	}
	for _, word := range r.words {
		if len(word) > r.limits.Bulk {
			return errBulk
		}
	}
	return nil
}

// line finds the line at pos that ends in end, and the place behind it and the bytes skipped after
// it. Redis looks for the '\r' of a length line and skips the byte that follows, whatever it is.
// The search goes on where it stopped.
func (r *Reader) line(arrived []byte, end byte, skipped int) (line []byte, next int, found bool) {
	limit := len(arrived)
	if limit-r.pos > r.limits.Inline {
		limit = r.pos + r.limits.Inline + 1 // the end itself may stand right behind the longest line
	}
	from := max(r.scan, r.pos)
	i := bytes.IndexByte(arrived[from:limit], end)
	if i < 0 {
		r.spend(limit - from)
		r.scan = limit
		return nil, 0, false
	}
	r.spend(i + 1)
	r.scan = from + i
	next = r.scan + 1 + skipped
	return arrived[r.pos:r.scan], next, next <= len(arrived)
}

// tooLong is err if the line at pos was searched to its bound without success, nil if more of it
// may come.
func (r *Reader) tooLong(err ProtocolError) error {
	if r.scan-r.pos > r.limits.Inline {
		return err
	}
	return nil
}

// maxWords is the number of words that a call may have now.
func (r *Reader) maxWords() int {
	if r.restricted {
		return min(r.limits.Words, restrictedWords)
	}
	return r.limits.Words
}

// maxBulk is the number of bytes that a word may have now.
func (r *Reader) maxBulk() int {
	if r.restricted {
		return min(r.limits.Bulk, restrictedBulk)
	}
	return r.limits.Bulk
}
