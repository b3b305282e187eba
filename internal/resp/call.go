package resp

import (
	"strconv"
	"strings"
)

// AppendCall appends a call as clients send it: an array of its words.
func AppendCall(dst []byte, words []string) []byte {
	dst = append(strconv.AppendInt(append(dst, '*'), int64(len(words)), 10), "\r\n"...)
	for _, word := range words {
		dst = append(strconv.AppendInt(append(dst, '$'), int64(len(word)), 10), "\r\n"...)
		dst = append(append(dst, word...), "\r\n"...)
	}
	return dst
}

// AppendQuoted appends a text in quotes, in ASCII and with escapes, as Redis shows strings. The
// reader of inline calls reads it back, whatever bytes the text consists of.
func AppendQuoted(dst, text []byte) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	for _, c := range text {
		switch i := strings.IndexByte("\n\r\t\b\a\"\\", c); {
		case i >= 0:
			dst = append(dst, '\\', `nrtba"\`[i])
		case c < ' ' || c > '~':
			dst = append(dst, '\\', 'x', digits[c>>4], digits[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}
