package httpapi

import (
	"bytes"
	"strconv"
	"unicode/utf8"
)

// cursor reads replies in RESP3 one after the other. They are the server's own, so they are valid.
type cursor struct{ rest []byte }

// token is the beginning of a reply, or all of one that has no elements.
type token struct {
	kind byte   // the first byte
	text []byte // of a string, a number, a boolean or an error
	n    int    // number of elements of an array, a set or a push, and of keys and values of a map
}

// next returns the next token.
func (c *cursor) next() (t token) {
	end := bytes.IndexByte(c.rest, '\r')
	if end < 1 {
		c.rest = nil
		return token{kind: '_'}
	}
	t.kind, t.text = c.rest[0], c.rest[1:end]
	c.rest = c.rest[end+2:]
	switch t.kind {
	case '$', '=', '!':
		length, _ := strconv.Atoi(string(t.text))
		if length < 0 {
			return token{kind: '_'}
		}
		t.text, c.rest = c.rest[:length], c.rest[length+2:]
		if t.kind == '=' {
			t.text = t.text[len("txt:"):]
		}
	case '*', '~', '>', '%':
		t.n, _ = strconv.Atoi(string(t.text))
		if t.n < 0 {
			return token{kind: '_'}
		}
		if t.kind == '%' {
			t.n *= 2
		}
	}
	return t
}

// skip skips a reply.
func (c *cursor) skip() {
	for left := 1; left > 0; left-- {
		left += c.next().n
	}
}

// integer returns the next reply, an integer.
func (c *cursor) integer() int64 {
	n, _ := strconv.ParseInt(string(c.next().text), 10, 64)
	return n
}

// peekError returns the text of the next reply if it is an error.
func (c *cursor) peekError() (text string, is bool) {
	if len(c.rest) == 0 || c.rest[0] != '-' && c.rest[0] != '!' {
		return "", false
	}
	ahead := *c
	return string(ahead.next().text), true
}

// appendJSON appends the next reply as JSON: an integer or a double as a number, a map as an object, an error
// as an object with the member error. Numbers that JSON does not have are strings.
func (c *cursor) appendJSON(dst []byte) []byte {
	t := c.next()
	switch t.kind {
	case ':':
		return append(dst, t.text...)
	case ',':
		if t.text[len(t.text)-1] >= '0' && t.text[len(t.text)-1] <= '9' {
			return append(dst, t.text...)
		}
		return appendString(dst, t.text)
	case '#':
		return strconv.AppendBool(dst, t.text[0] == 't')
	case '_':
		return append(dst, "null"...)
	case '-', '!':
		return appendError(dst, string(t.text))
	case '*', '~', '>':
		dst = append(dst, '[')
		for i := range t.n {
			dst = c.appendJSON(appendComma(dst, i))
		}
		return append(dst, ']')
	case '%':
		return c.appendObject(dst, t.n)
	default:
		return appendString(dst, t.text)
	}
}

// appendObject appends a map of n keys and values. Keys are strings in JSON.
func (c *cursor) appendObject(dst []byte, n int) []byte {
	dst = append(dst, '{')
	for i := range n / 2 {
		key := c.next()
		dst = append(appendString(appendComma(dst, i), key.text), ':')
		dst = c.appendJSON(dst)
	}
	return append(dst, '}')
}

func appendComma(dst []byte, before int) []byte {
	if before > 0 {
		return append(dst, ',')
	}
	return dst
}

func appendError(dst []byte, text string) []byte {
	return append(appendString(append(dst, `{"error":`...), []byte(text)), '}')
}

// appendString appends a string of JSON. Bytes that are not UTF-8 become U+FFFD.
func appendString(dst, text []byte) []byte {
	dst = append(dst, '"')
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r < ' ' || r == 0x7f:
			const digits = "0123456789abcdef"
			dst = append(dst, '\\', 'u', '0', '0', digits[r>>4], digits[r&15])
		default:
			dst = utf8.AppendRune(dst, r)
		}
		text = text[size:]
	}
	return append(dst, '"')
}
