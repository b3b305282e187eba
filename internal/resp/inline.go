package resp

import "strings"

// splitLine splits an inline line into words, as Redis's sdssplitargs does, and appends them to
// words. A word may end in a quoted part: in "..." \n \r \t \b \a and \xHH stand for one byte and a
// backslash before any other byte for that byte; in '...' only \' is special. A closing quote must
// be followed by a blank or the line's end, else ok is false. A NUL is a byte like any other, where
// Redis, reading a C string, would take it for the line's end.
//
// Words without quotes are parts of line. Words with quotes are unescaped behind what scratch
// holds, which is returned with them: not in place, because the line may be lent. Words are never
// longer than what they were written as, so scratch is grown once, before the first; what it held
// stays where it was.
func splitLine(line []byte, words [][]byte, scratch []byte) (_ [][]byte, _ []byte, ok bool) {
	for i := skipBlanks(line, 0); i < len(line); i = skipBlanks(line, i) {
		end := plainEnd(line, i)
		if end == len(line) || endsWord(line[end]) {
			words = append(words, line[i:end:end])
			i = end
			continue
		}
		if cap(scratch)-len(scratch) < len(line)-i {
			scratch = make([]byte, 0, max(len(line)-i, min(2*cap(scratch), idleBytes)))
		}
		from := len(scratch)
		scratch = append(scratch, line[i:end]...)
		if scratch, i, ok = unquote(line, end, scratch); !ok {
			return words, scratch, false
		}
		words = append(words, scratch[from:len(scratch):len(scratch)])
	}
	return words, scratch, true
}

// unquote appends to out what is quoted from line[i] on, where the quote opens, and returns the
// place behind the closing quote. That ends the word as well: only a blank, or nothing, may follow.
func unquote(line []byte, i int, out []byte) (_ []byte, end int, ok bool) {
	quote := line[i]
	for i++; i < len(line) && line[i] != quote; {
		c, width := line[i], 1
		if c == '\\' {
			c, width = escape(line[i:], quote)
		}
		out = append(out, c)
		i += width
	}
	closed := i < len(line) && (i+1 == len(line) || isBlank(line[i+1]))
	return out, i + 1, closed
}

// escape reads the escape at the beginning of s, whose first byte is a backslash, in a part quoted
// by quote: the byte it stands for and the bytes it takes. What is no escape is a backslash that
// stands for itself.
func escape(s []byte, quote byte) (c byte, width int) {
	switch {
	case quote == '\'':
		if len(s) > 1 && s[1] == '\'' {
			return '\'', 2
		}
		return '\\', 1
	case len(s) > 3 && s[1] == 'x' && isHex(s[2]) && isHex(s[3]):
		return hexDigit(s[2])<<4 | hexDigit(s[3]), 4
	case len(s) == 1:
		return '\\', 1
	}
	if i := strings.IndexByte("nrtba", s[1]); i >= 0 {
		return "\n\r\t\b\a"[i], 2
	}
	return s[1], 2
}

// skipBlanks returns the place of the first byte from i on that is no blank.
func skipBlanks(line []byte, i int) int {
	for i < len(line) && isBlank(line[i]) {
		i++
	}
	return i
}

// plainEnd returns the place of the first byte from i on that ends a word or opens a quote.
func plainEnd(line []byte, i int) int {
	for i < len(line) && !endsWord(line[i]) && line[i] != '"' && line[i] != '\'' {
		i++
	}
	return i
}

// endsWord is narrower than isBlank: Redis skips \v and \f between words, yet keeps them within
// one.
func endsWord(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// isBlank is C's isspace.
func isBlank(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' }

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f'
}

// hexDigit is the value of a byte for which isHex holds.
func hexDigit(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return (c | 0x20) - 'a' + 10
}
