// Package resp reads calls and writes replies in RESP, versions 2 and 3, the protocol of Redis. It
// knows neither the commands nor the connection.
//
// The reader is not redcon's: redcon's readers panic on `*1\r\n$9223372036854775807\r\n` before a
// client has authenticated, allocate twice per command, and have no limits. Replies are encoded by
// redcon's append functions.
package resp

import (
	"bytes"
	"encoding/binary"
	"math"
)

// Limits bound the memory that one connection can make its reader use. Whether a call exceeds them
// depends on the position of its bytes in the stream alone: the same bytes give the same calls and
// the same error however the network splits them.
type Limits struct {
	Bulk   int // bytes in a word (proto-max-bulk-len)
	Words  int // words in a call
	Inline int // bytes of an inline line, and of a line with a count or a length, before its end
	Query  int // bytes of one call in the protocol (client-query-buffer-limit)
}

// DefaultLimits allow words of 1 MiB, calls of 1048576 words and 16 MiB, and lines of 64 KiB. Redis
// allows longer words and calls: its values are documents, while those here are counters, and it
// must not take long to move an unfinished call.
func DefaultLimits() Limits {
	return Limits{Bulk: 1 << 20, Words: 1 << 20, Inline: 64 << 10, Query: 16 << 20}
}

// The limits before a client has authenticated. The numbers are Redis's, unless noted.
const (
	restrictedWords = 10
	restrictedBulk  = 16384 // bytes

	// restrictedCall is not Redis's, which allows ten words of the length above. It leaves room for
	// the longest password and a user name of nearly the same length.
	restrictedCall = 32 << 10 // bytes

	redisMaxBulk = 512 << 20 // bytes: the default proto-max-bulk-len of Redis
)

// Reader turns the bytes of one connection into calls. For each batch of bytes, the caller calls
// Feed, then Next until there is no further call, then Keep. The reader reads the caller's memory
// in place; it copies only the bytes of a call that has not arrived completely.
//
// The work is linear in the number of bytes even if they arrive one at a time, because the reader
// remembers how far it has read: start <= pos <= scanned. Its memory is at most twice the unread
// bytes and one Feed, and a slice for each word that has arrived: a count or a length that was only
// announced reserves nothing. There are less than Query unread bytes once Next has returned nil. A
// Reader is not safe for concurrent use.
type Reader struct {
	limits     Limits
	maxNoted   int // words of a call that are put into words: LongCall, except in SplitCall
	restricted bool
	borrowed   bool  // buf is the caller's memory, not own
	owned      bool  // the words of the call that Next returned last are in own
	dirty      bool  // since the last Keep, words or memory may have come that Keep has to release
	maxCall    int32 // bytes of one call: Limits.Query, or less while restricted
	err        error

	buf []byte // the bytes being read
	position
	previous callShape // the call that Append read last, for Repeat

	words    [][]byte // of the call being read, or returned last; of a long one the first LongCall
	longCall [][]byte // the call returned last, if it is a long one
	scratch  []byte   // unescaped words of inline calls, until Keep

	own     []byte   // the reader's own memory; it is empty while buf is borrowed
	parts   parts    // of an unfinished call that is long
	retired [][]byte // memory to release in Keep, because words may be in it
	input   []byte   // borrowed, to be read after buf, which ends in an unfinished call; else nil
	copied  int      // bytes at the beginning of input that have been copied to buf

	work *int // if not nil, counts the bytes searched and moved and the words placed; for tests
}

// position is where the reader is in the call that it reads: the first that Next has not returned.
// The indexes are in buf.
type position struct {
	start      int // the call's first byte
	pos        int // the length line or the body to be read next
	scanned    int // the line at pos is known not to end before this index
	wordCount  int // words of the call, as announced
	wordsLeft  int // words of the call still to be read; 0 before the count is known
	bodyLength int // bytes of the word at pos, with the two after it; 0 before its length is known
}

// parts are pieces of an unfinished call, each of whole words, that are not in buf any more.
type parts struct {
	size  int // bytes of whole words that make a part: partBytes, except in tests
	list  [][]byte
	bytes int // in list
	words int // in list
}

// NewReader returns a reader that allocates nothing until it is fed. Limits below zero count as
// zero, and a Query below one as one byte, in which no call fits.
func NewReader(l Limits) *Reader {
	r := &Reader{maxNoted: LongCall, parts: parts{size: partBytes}, limits: Limits{
		Bulk:   min(max(l.Bulk, 0), math.MaxInt-2), // bodyLength includes the two bytes after a word
		Words:  max(l.Words, 0),
		Inline: max(l.Inline, 0),
		Query:  max(l.Query, 1),
	}}
	r.Restrict(false)
	return r
}

// Restrict limits calls to 10 words of at most 16384 bytes each and to 32 KiB in total, or lifts
// these limits. A session restricts its reader until the client has authenticated. The change
// applies from the next line with a count or a length on. Inline calls are limited by Limits.Inline
// and the 32 KiB alone.
func (r *Reader) Restrict(on bool) {
	r.restricted, r.previous, r.maxCall = on, callShape{}, int32(min(r.limits.Query, math.MaxInt32))
	if on {
		r.maxCall = min(r.maxCall, restrictedCall)
	}
}

// LongCall is the number of words beyond which a call is long. Finding the words of a call of a
// million would occupy an event loop for milliseconds, so Next returns the first LongCall words of
// a long call. Long and SplitCall give the others, and may be used on another goroutine.
const LongCall = 1024

// Next returns the words of the next call, at least one, or nil if it has not arrived completely.
// The slice is valid until the next call of Next, the bytes of the words until Keep or Feed, so
// that a caller can read several calls before it answers the first. An error is a ProtocolError,
// ErrWordTooLong or ErrQueryTooLong. It is final: Next returns it again, and Feed is ignored.
func (r *Reader) Next() ([][]byte, error) {
	r.dirty = true
	for r.err == nil && r.start < len(r.buf) {
		arrived := r.buf
		limit := int(r.maxCall) - r.parts.bytes
		full := len(arrived)-r.start >= limit
		if full { // do not read beyond the limit: the outcome would depend on what has arrived by now
			arrived = arrived[:r.start+limit]
		}
		whole, err := r.read(arrived)
		switch {
		case err != nil:
			r.fail(err)
		case !whole && full:
			r.fail(ErrQueryTooLong)
		case !whole && !r.copyMore():
			return nil, nil
		case whole:
			r.endCall()
			if r.owned {
				r.readInPlace()
			}
			if len(r.words) > 0 {
				return r.words, nil
			}
		}
	}
	return nil, r.err
}

// endCall moves the position to the end of the call that has been read.
func (r *Reader) endCall() {
	if r.longCall = nil; r.wordCount > r.maxNoted {
		r.longCall = append(r.parts.list, r.buf[r.start:r.pos])
	} else {
		r.retired = append(r.retired, r.parts.list...)
	}
	r.parts.list, r.parts.bytes, r.parts.words = nil, 0, 0
	r.start, r.owned = r.pos, !r.borrowed
}

// fail makes err final and releases all memory: the connection is to be closed, but may stay open
// until its client has read the replies.
func (r *Reader) fail(err error) {
	*r = Reader{maxNoted: r.maxNoted, parts: parts{size: r.parts.size}, limits: r.limits, maxCall: r.maxCall,
		restricted: r.restricted, work: r.work, err: err}
}

// read reads the call at start as far as its bytes have arrived. It returns true if the call is
// complete; then pos is its end. A blank line and a count below one, which Redis ignores, are
// complete calls without words.
func (r *Reader) read(arrived []byte) (whole bool, err error) {
	if r.wordsLeft > 0 {
		return r.readWords(arrived)
	}
	r.words, r.wordCount = r.words[:0], 0
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
	r.pos, r.scanned = next, next
	r.wordCount, r.wordsLeft = n, n
	return r.readWords(arrived)
}

// readWords reads the remaining words. Each is a line with its length, a body, and two bytes that
// are skipped whatever they are, as in Redis.
func (r *Reader) readWords(arrived []byte) (whole bool, err error) {
	known := len(r.words)
	for {
		if r.bodyLength == 0 {
			r.words, r.pos, r.wordsLeft = shortWords(r.words, r.maxNoted, arrived, r.pos, r.wordsLeft, r.maxBulk())
		}
		if r.wordsLeft == 0 || !r.readWord(arrived, &err) {
			break
		}
	}
	r.scanned = max(r.scanned, r.pos)
	r.countWork(len(r.words) - known)
	return r.wordsLeft == 0, err
}

// shortWords is the fast path for words of up to 99 bytes that have arrived completely. Most of the
// time of reading is spent here, so it keeps its state in registers and examines each byte of a
// length line once. It appends words until there are most, and skips further ones. It returns the
// position at which it stopped and the number of words left.
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

// readWord reads a word of any length. It returns false if the word has not arrived completely, or
// is invalid; in the latter case it sets wrong.
func (r *Reader) readWord(arrived []byte, wrong *error) bool {
	if r.bodyLength == 0 {
		n, next, err := r.readLength(arrived)
		if next == 0 {
			*wrong = err
			return false
		}
		r.pos, r.bodyLength = next, n+2
	}
	if r.bodyLength > len(arrived)-r.pos {
		return false
	}
	end := r.pos + r.bodyLength
	if len(r.words) < r.maxNoted {
		r.words = append(r.words, arrived[r.pos:end-2])
	}
	r.pos, r.bodyLength = end, 0
	r.wordsLeft--
	return true
}

// shortLength is the fast path for a line with a count or a length of one or two digits, given its
// first four bytes: kind, digits, '\r'. width is the length of the line with the byte after '\r'.
// It is 0 for all other lines, including invalid ones, which the slow path reads. The function is
// small enough to be inlined, and four bytes that are loaded at once need one bounds check.
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

// readCount reads the line at pos: '*' and the number of words. A number below 1 is valid, and no
// words follow. next is the index after the line; it is 0 if the line has not arrived completely or
// is invalid.
func (r *Reader) readCount(arrived []byte) (n, next int, err error) {
	line, next, found := r.findLine(arrived, '\r', 1)
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

// readLength reads the line at pos: '$' and a length in bytes. next is the index after the line; it
// is 0 if the line has not arrived completely or is invalid.
func (r *Reader) readLength(arrived []byte) (n, next int, err error) {
	line, next, found := r.findLine(arrived, '\r', 1)
	if !found {
		return 0, 0, r.tooLong(errBulkLine)
	}
	if len(line) == 0 || line[0] != '$' {
		return 0, 0, expectedDollar(arrived[r.pos])
	}
	length, ok := ParseInt(line[1:])
	switch {
	case ok && r.restricted && restrictedBulk < length && length <= redisMaxBulk:
		return 0, 0, errBulkRestricted
	case ok && int64(r.limits.Bulk) < length && length <= redisMaxBulk:
		return 0, 0, ErrWordTooLong
	case !ok || length < 0 || length > int64(r.limits.Bulk):
		return 0, 0, errBulk
	}
	return int(length), next, nil
}

// readInline reads the line at pos as an inline call: words separated by blanks, up to LF or CR LF.
func (r *Reader) readInline(arrived []byte) (whole bool, err error) {
	line, next, found := r.findLine(arrived, '\n', 0)
	if !found {
		return false, r.tooLong(errInline)
	}
	var ok bool
	if r.words, r.scratch, ok = splitLine(bytes.TrimSuffix(line, []byte{'\r'}), r.words, r.scratch); !ok {
		return false, errQuotes
	}
	r.pos, r.scanned = next, next
	return true, r.checkInline()
}

// checkInline applies the limits of an array to an inline call, so that every call obeys them. It
// can fail only if Bulk or Words is less than Inline.
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

// findLine finds the line at pos that ends with the byte end, and next, the index after that byte
// and the skipped bytes after it. Redis searches for the '\r' of a length line and skips the next
// byte, whatever it is. The search continues where the last one stopped.
func (r *Reader) findLine(arrived []byte, end byte, skipped int) (line []byte, next int, found bool) {
	limit := len(arrived)
	if limit-r.pos > r.limits.Inline {
		limit = r.pos + r.limits.Inline + 1 // the end may follow directly after the longest line
	}
	from := max(r.scanned, r.pos)
	i := bytes.IndexByte(arrived[from:limit], end)
	if i < 0 {
		r.countWork(limit - from)
		r.scanned = limit
		return nil, 0, false
	}
	r.countWork(i + 1)
	r.scanned = from + i
	next = r.scanned + 1 + skipped
	return arrived[r.pos:r.scanned], next, next <= len(arrived)
}

// tooLong returns err if the line at pos exceeds its limit, and nil if its end may still arrive.
func (r *Reader) tooLong(err ProtocolError) error {
	if r.scanned-r.pos > r.limits.Inline {
		return err
	}
	return nil
}

// maxWords returns the number of words that a call may have now.
func (r *Reader) maxWords() int {
	if r.restricted {
		return min(r.limits.Words, restrictedWords)
	}
	return r.limits.Words
}

// maxBulk returns the number of bytes that a word may have now.
func (r *Reader) maxBulk() int {
	if r.restricted {
		return min(r.limits.Bulk, restrictedBulk)
	}
	return r.limits.Bulk
}
