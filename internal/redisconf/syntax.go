// Package redisconf reads and rewrites configuration files in the syntax of redis.conf: a directive
// on each line, with arguments that may be quoted, and comments.
//
// A directive that names an option sets it. Other directives of Redis are skipped if ignoring them
// breaks no promise to the users of the file, and refused with advice if it does.
package redisconf

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// line is a line of a file.
type line struct {
	number int    // from 1
	text   string // as it is in the file, without the newline
	name   string // the directive's name in lower case; empty for a comment and for an empty line
	args   []string
}

// parse splits a file into lines. path is for errors.
func parse(path, text string) ([]line, error) {
	var lines []line
	for raw := range strings.Lines(text) {
		l := line{number: len(lines) + 1, text: strings.TrimRight(raw, "\r\n")}
		if trimmed := strings.TrimSpace(l.text); trimmed != "" && trimmed[0] != '#' {
			words, err := splitWords(trimmed)
			if err != nil {
				return nil, fmt.Errorf("%s:%d: %w", path, l.number, err)
			}
			l.name, l.args = strings.ToLower(words[0]), words[1:]
		}
		lines = append(lines, l)
	}
	return lines, nil
}

var errQuotes = errors.New("the quotes are not balanced, or text follows a closing quote")

// splitWords splits a line as Redis does. In double quotes, \n, \r, \t, \a, \b and \xHH are control
// characters and bytes, and a backslash before another character stands for that character. In single
// quotes, \' is a quote.
func splitWords(text string) (words []string, err error) {
	for text = trimSpace(text); text != ""; text = trimSpace(text) {
		var word string
		if word, text, err = cutWord(text); err != nil {
			return nil, err
		}
		words = append(words, word)
	}
	return words, nil
}

// trimSpace removes spaces at the beginning.
func trimSpace(text string) string { return strings.TrimLeft(text, " \t\n\v\f\r") }

func isSpace(b byte) bool { return b == ' ' || '\t' <= b && b <= '\r' }

// cutWord returns the first word of a text that begins with one, and the rest. As in Redis, a word
// ends with a closing quote, after which a space or the end must follow.
func cutWord(text string) (word, rest string, err error) {
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		switch b := text[i]; {
		case isSpace(b):
			return out.String(), text[i:], nil
		case b == '"' || b == '\'':
			length, err := unquote(&out, text[i:])
			if err != nil {
				return "", "", err
			}
			return out.String(), text[i+length:], nil
		default:
			out.WriteByte(b)
		}
	}
	return out.String(), "", nil
}

// unquote writes the content of the quotes at the beginning of text, and returns the length of the
// quoted part, with its quotes.
func unquote(out *strings.Builder, text string) (length int, err error) {
	quote := text[0]
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == quote:
			if i++; i < len(text) && !isSpace(text[i]) {
				return 0, errQuotes
			}
			return i, nil
		case text[i] == '\\' && quote == '"' && i+1 < len(text):
			i += unescape(out, text[i+1:])
		case text[i] == '\\' && i+1 < len(text) && text[i+1] == quote:
			out.WriteByte(quote)
			i++
		default:
			out.WriteByte(text[i])
		}
	}
	return 0, errQuotes
}

// unescape writes the byte for an escape sequence, without its backslash, and returns the length of
// the sequence.
func unescape(out *strings.Builder, text string) (length int) {
	if text[0] == 'x' && len(text) >= 3 {
		if n, err := strconv.ParseUint(text[1:3], 16, 8); err == nil {
			out.WriteByte(byte(n))
			return 3
		}
	}
	if i := strings.IndexByte("nrtab", text[0]); i >= 0 {
		out.WriteByte("\n\r\t\a\b"[i])
	} else {
		out.WriteByte(text[0])
	}
	return 1
}

// quote returns a word as it is written in a file, in quotes if it needs them.
func quote(word string) string {
	plain := word != ""
	for i := range len(word) {
		plain = plain && '!' <= word[i] && word[i] <= '~' && word[i] != '"' && word[i] != '\'' && word[i] != '\\'
	}
	if plain {
		return word
	}
	var out strings.Builder
	out.WriteByte('"')
	for i := range len(word) {
		switch b := word[i]; {
		case b == '"' || b == '\\':
			out.WriteByte('\\')
			out.WriteByte(b)
		case b < ' ' || b == 0x7f:
			fmt.Fprintf(&out, `\x%02x`, b)
		default:
			out.WriteByte(b)
		}
	}
	out.WriteByte('"')
	return out.String()
}
