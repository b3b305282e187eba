package resp

import (
	"bytes"
	"strconv"
)

// Replies reads replies one after the other. They are the server's own, so they are valid. The zero
// value has none.
type Replies struct{ rest []byte }

// RepliesIn returns the replies in b, which it borrows.
func RepliesIn(b []byte) Replies { return Replies{b} }

// Token is the beginning of a reply, or all of one that has no elements.
type Token struct {
	Kind byte   // the first byte; '_' for any null
	Text []byte // of a string, a number, a boolean or an error; borrowed
	N    int    // number of elements of an array, a set or a push, and of keys and values of a map
}

// Len returns the number of bytes of the replies that are left.
func (r *Replies) Len() int { return len(r.rest) }

// Next returns the next token.
func (r *Replies) Next() (t Token) {
	end := bytes.IndexByte(r.rest, '\r')
	if end < 1 {
		r.rest = nil
		return Token{Kind: '_'}
	}
	t.Kind, t.Text = r.rest[0], r.rest[1:end]
	r.rest = r.rest[end+2:]
	switch t.Kind {
	case '$', '=', '!':
		length, _ := strconv.Atoi(string(t.Text))
		if length < 0 {
			return Token{Kind: '_'}
		}
		t.Text, r.rest = r.rest[:length], r.rest[length+2:]
		if t.Kind == '=' {
			t.Text = t.Text[len("txt:"):]
		}
	case '*', '~', '>', '%':
		t.N, _ = strconv.Atoi(string(t.Text))
		if t.N < 0 {
			return Token{Kind: '_'}
		}
		if t.Kind == '%' {
			t.N *= 2
		}
	}
	return t
}

// Int returns the next reply, an integer.
func (r *Replies) Int() int64 {
	n, _ := strconv.ParseInt(string(r.Next().Text), 10, 64)
	return n
}

// PeekError returns the text of the next reply if it is an error.
func (r *Replies) PeekError() (text string, is bool) {
	if len(r.rest) == 0 || r.rest[0] != '-' && r.rest[0] != '!' {
		return "", false
	}
	ahead := *r
	return string(ahead.Next().Text), true
}
