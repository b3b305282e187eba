package resp

import "strings"

// splitLine splits an inline line into words, as Redis's sdssplitargs does, and appends them to
// words. A word may end in a quoted part. In "...", the escapes \n \r \t \b \a and \xHH stand for
// one byte, and a backslash before any other byte stands for that byte; in '...' the only escape is
// \'. A closing quote must be followed by a blank or the end of the line, else ok is false. A NUL
// is an ordinary byte; Redis, which reads a C string, takes it for the end of the line.
//
// Words without quotes are slices of line. Words with quotes are appended to scratch without their
// escapes, and scratch is returned: the line may be borrowed, and must not be changed. A word is
// never longer than its quoted form, so scratch is reallocated at most once, before the first such
// word, and words that it held before stay valid.
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

// unquote appends to out the text of the quoted part that begins with the quote at line[i], and
// returns the index after the closing quote. ok is false if there is no closing quote, or if it is
// followed by anything but a blank.
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

// escape reads the escape at the beginning of s, which starts with a backslash, in a part quoted by
// quote. It returns the byte that the escape stands for, and the length of the escape. A backslash
// that does not begin an escape stands for itself.
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

// skipBlanks returns the index of the first byte from i on that is not a blank.
func skipBlanks(line []byte, i int) int {
	for i < len(line) && isBlank(line[i]) {
		i++
	}
	return i
}

// plainEnd returns the index of the first byte from i on that ends a word or opens a quote.
func plainEnd(line []byte, i int) int {
	for i < len(line) && !endsWord(line[i]) && line[i] != '"' && line[i] != '\'' {
		i++
	}
	return i
}

// endsWord reports whether c ends a word. That is true of fewer bytes than isBlank: Redis skips \v
// and \f between words, but keeps them within a word.
func endsWord(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// isBlank reports whether c is a blank, as C's isspace does.
func isBlank(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' }

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f'
}

// hexDigit returns the value of a byte for which isHex is true.
func hexDigit(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return (c | 0x20) - 'a' + 10
}
