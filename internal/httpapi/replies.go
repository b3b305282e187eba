package httpapi

import (
	"strconv"
	"unicode/utf8"

	"cellserver/internal/resp"
)

// appendJSON appends the next reply as JSON: an integer or a double as a number, a map as an object, an error
// as an object with the member error. Numbers that JSON does not have are strings.
func appendJSON(dst []byte, replies *resp.Replies) []byte {
	t := replies.Next()
	switch t.Kind {
	case ':':
		return append(dst, t.Text...)
	case ',':
		if t.Text[len(t.Text)-1] >= '0' && t.Text[len(t.Text)-1] <= '9' {
			return append(dst, t.Text...)
		}
		return appendString(dst, t.Text)
	case '#':
		return strconv.AppendBool(dst, t.Text[0] == 't')
	case '_':
		return append(dst, "null"...)
	case '-', '!':
		return appendError(dst, string(t.Text))
	case '*', '~', '>':
		dst = append(dst, '[')
		for i := range t.N {
			dst = appendJSON(appendComma(dst, i), replies)
		}
		return append(dst, ']')
	case '%':
		return appendObject(dst, replies, t.N)
	default:
		return appendString(dst, t.Text)
	}
}

// appendObject appends a map of n keys and values. Keys are strings in JSON.
func appendObject(dst []byte, replies *resp.Replies, n int) []byte {
	dst = append(dst, '{')
	for i := range n / 2 {
		key := replies.Next()
		dst = append(appendString(appendComma(dst, i), key.Text), ':')
		dst = appendJSON(dst, replies)
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
