package backend

import (
	"bytes"
	"errors"
	"slices"

	"cellserver/internal/resp"
)

// incoming collects the replies of an exchange, in RESP2.
type incoming struct {
	buffer []byte
	length int   // of what has arrived, in bytes
	at     []int // where each reply begins that has arrived completely

	// The first reply that has not arrived completely: where it begins, up to where it was looked at, and up to where
	// it reaches at least.
	begin, next, least int
	missing            [maxDepth]int // elements of each array that it is within
	depth              int           // of these arrays
}

const (
	minRoom      = 16 << 10 // for what is read at once, in bytes
	longestReply = 1 << 30  // in bytes, and the most elements: Redis has half of it
	maxKeptRoom  = 64 << 10 // the largest buffer that is kept between two exchanges, in bytes
	maxAhead     = 1 << 20  // for what was announced, besides twice what has arrived, in bytes
	maxDepth     = 8        // of arrays in arrays: valueOf recurses
)

// errReply says that what the server has sent is not RESP2.
var errReply = errors.New("what the server has sent is not a reply")

// reset forgets all replies.
func (in *incoming) reset() {
	if len(in.buffer) > maxKeptRoom {
		in.buffer = nil
	}
	*in = incoming{buffer: in.buffer, at: in.at[:0]}
}

// room returns memory for what arrives next. It grows with what has arrived, whatever length a reply announces.
func (in *incoming) room() []byte {
	want := max(in.length+minRoom/2, min(in.least, 2*in.length+maxAhead))
	if want > len(in.buffer) {
		in.buffer = slices.Grow(in.buffer[:in.length], max(want-in.length, min(in.length, 1<<20), minRoom))
		in.buffer = in.buffer[:cap(in.buffer)]
	}
	return in.buffer[in.length:]
}

// add takes in what has arrived in room, n bytes.
func (in *incoming) add(n int) error {
	in.length += n
	for in.next < in.length {
		whole, err := in.element()
		if err != nil {
			return err
		}
		if !whole {
			return nil
		}
		if in.depth == 0 {
			in.at = append(in.at, in.begin)
			in.begin = in.next
		}
	}
	return nil
}

// element passes over the next element of a reply, or the head of an array.
func (in *incoming) element() (whole bool, err error) {
	elements := 0
	arrived := in.buffer[in.next:in.length]
	line, _, ended := bytes.Cut(arrived, crlf)
	if !ended {
		return false, nil
	}
	if len(line) == 0 || bytes.IndexByte(line, '\r') >= 0 { // resp.Replies ends a line at the first \r
		return false, errReply
	}
	end := len(line) + len(crlf)
	switch line[0] {
	case '+', '-', ':':
	case '$', '*':
		n, ok := resp.ParseInt(line[1:])
		switch {
		case !ok || n < -1 || n > longestReply:
			return false, errReply
		case line[0] == '*':
			elements = max(int(n), 0)
		case n >= 0:
			end += int(n) + len(crlf)
		}
	default:
		return false, errReply
	}
	if in.least = in.next + end; in.least > in.length {
		return false, nil
	}
	if string(in.buffer[in.least-len(crlf):in.least]) != string(crlf) {
		return false, errReply
	}
	in.next = in.least
	return true, in.count(elements)
}

// count takes an element of a reply as arrived. It is an array of elements that follow if there are some.
func (in *incoming) count(elements int) error {
	if elements > 0 {
		if in.depth == maxDepth {
			return errReply
		}
		in.missing[in.depth] = elements
		in.depth++
		return nil
	}
	for in.depth > 0 {
		if in.missing[in.depth-1]--; in.missing[in.depth-1] > 0 {
			break
		}
		in.depth-- // the array has arrived, which is an element of the one around it
	}
	return nil
}

var crlf = []byte("\r\n")

// reply returns a reply, and its first token. If the reply is an error, so is err.
func (in *incoming) reply(index int) (first resp.Token, rest resp.Replies, err error) {
	rest = resp.RepliesIn(in.buffer[in.at[index]:in.length])
	if first = rest.Next(); first.Kind == '-' {
		err = replyError(first.Text)
	}
	return first, rest, err
}

// replyError is an error that the server has replied.
type replyError string

func (e replyError) Error() string { return string(e) }

// RedisError makes it an error of the kind that go-redis returns for such a reply.
func (replyError) RedisError() {}

// valueOf returns a reply as go-redis does: a string, an integer, an array, an error within an array, or nil.
func valueOf(t resp.Token, rest *resp.Replies) any {
	switch t.Kind {
	case ':':
		n, _ := resp.ParseInt(t.Text)
		return n
	case '*':
		values := make([]any, t.N)
		for i := range values {
			values[i] = valueOf(rest.Next(), rest)
		}
		return values
	case '-':
		return replyError(t.Text)
	case '_':
		return nil
	}
	return string(t.Text)
}
