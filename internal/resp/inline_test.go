package resp

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSplitLine(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{``, `[]`},
		{" \t\n\v\f\r ", `[]`},
		{`a bc  d `, `["a" "bc" "d"]`},
		{"\v\fa\vb\f", `["a\vb\f"]`}, // \v and \f separate words only where there is no word yet
		{"a\rb\nc", `["a" "b" "c"]`},
		{`""`, `[""]`},
		{`'' ""`, `["" ""]`},
		{`"a b" 'c d'`, `["a b" "c d"]`},
		{`a"b c"`, `["ab c"]`},
		{`a'b'`, `["ab"]`},
		{"\"a\"\v\"b\"", `["a" "b"]`},
		{`"\n\r\t\b\a\q\\\""`, `["\n\r\t\b\aq\\\""]`},
		{`"\x41\xfF\x4g\x4"`, `["A\xffx4gx4"]`},
		{`"'"`, `["'"]`},
		{`'"\n\\ '`, `["\"\\n\\\\ "]`},
		{`'\\'`, `unbalanced`}, // the second backslash escapes the quote: it is not escaped itself
		{`'a\'b'`, `["a'b"]`},
		{"a\x00b \"c\x00\"", `["a\x00b" "c\x00"]`},
		{"\"a\nb\"", `["a\nb"]`},
		{`"a`, `unbalanced`},
		{`"`, `unbalanced`},
		{`'`, `unbalanced`},
		{`'a\'`, `unbalanced`},
		{`"a\"`, `unbalanced`},
		{`"a\`, `unbalanced`},
		{`"\x4`, `unbalanced`},
		{`"a"b`, `unbalanced`},
		{`'a'b`, `unbalanced`},
		{`"a""b"`, `unbalanced`},
		{"\"a\"\x00", `unbalanced`},
		{`ok "a`, `unbalanced`},
	} {
		assert.Equal(t, c.want, splitText([]byte(c.line)), "%q", c.line)
		assert.Equal(t, c.want, modelText([]byte(c.line)), "the model, %q", c.line)
	}
}

// FuzzInline checks that splitLine and the model agree, that the line is not changed, and that
// appending to a word does not overwrite another.
func FuzzInline(f *testing.F) {
	for _, seed := range []string{`a b`, `"a" 'b'`, `"\x41\n\q"`, `'\''`, `a"b"c`, "\v\f\r\n\x00", `"a"b`, `"\x4`,
		`SET k "a b" EX 10`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		before := string(line)
		require.Equal(t, modelText(line), splitText(line))
		require.Equal(t, before, string(line))
	})
}

func splitText(line []byte) string {
	words, _, ok := splitLine(line, nil, nil)
	if !ok {
		return "unbalanced"
	}
	before := fmt.Sprintf("%q", words)
	for _, word := range words {
		_ = append(word, "overrun"...)
	}
	if after := fmt.Sprintf("%q", words); after != before {
		return "words overlap: " + after
	}
	return before
}

func modelText(line []byte) string {
	if words, ok := modelSplit(string(line)); ok {
		return fmt.Sprintf("%q", words)
	}
	return "unbalanced"
}

// modelSplit is a simple version of sdssplitargs, which examines one byte at a time. at(i) is -1
// after the end of the line, where a C string has a NUL: here a NUL is an ordinary byte.
func modelSplit(line string) (words []string, ok bool) {
	at := func(i int) int {
		if i < len(line) {
			return int(line[i])
		}
		return -1
	}
	space := func(c int) bool { return c >= 0 && strings.IndexByte(" \t\n\v\f\r", byte(c)) >= 0 }
	words = []string{}
	for i := 0; ; {
		for space(at(i)) {
			i++
		}
		if at(i) < 0 {
			return words, true
		}
		word, quote, done := "", 0, false
		for ; !done; i++ {
			c := at(i)
			switch {
			case c < 0 && quote != 0:
				return nil, false
			case c < 0:
				done = true
			case quote == 0 && strings.IndexByte(" \n\r\t", byte(c)) >= 0:
				done = true
			case quote == 0 && (c == '"' || c == '\''):
				quote = c
			case quote != 0 && c == quote:
				if next := at(i + 1); next >= 0 && !space(next) {
					return nil, false
				}
				done = true
			case quote == '"' && c == '\\' && at(i+1) >= 0:
				out, width := modelEscape(line[i+1:])
				word += out
				i += width
			case quote == '\'' && c == '\\' && at(i+1) == '\'':
				word += "'"
				i++
			default:
				word += line[i : i+1]
			}
		}
		words = append(words, word)
	}
}

// modelEscape reads the rest of an escape in double quotes, after the backslash.
func modelEscape(s string) (out string, width int) {
	var b byte
	if n, err := fmt.Sscanf(s[:min(3, len(s))], "x%02x", &b); n == 1 && err == nil && len(s) > 2 && isHex(s[1]) &&
		isHex(s[2]) {
		return string([]byte{b}), 3
	}
	if plain, ok := map[byte]string{'n': "\n", 'r': "\r", 't': "\t", 'b': "\b", 'a': "\a"}[s[0]]; ok {
		return plain, 1
	}
	return s[:1], 1
}
