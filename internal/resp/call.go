package resp

import "strings"

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

// Check returns the error of a Reader for a call of these words, nil if it is within the limits.
func (l *Limits) Check(words [][]byte) error {
	if len(words) > l.Words {
		return errWords
	}
	length := lineLength(len(words))
	for _, word := range words {
		if length += lineLength(len(word)); length <= l.Query && len(word) > l.Bulk {
			return ErrWordTooLong
		}
		if length += len(word) + 2; length > l.Query {
			return ErrQueryTooLong
		}
	}
	return nil
}
