package transcript

import (
	"errors"
	"strconv"
	"strings"
)

var errQuotes = errors.New("unbalanced quotes")

// splitWords splits a line as Redis splits an inline command. Words are separated by blanks; a
// quote may open anywhere, and must be closed before a blank. In double quotes, the escapes are
// \xHH \n \r \t \b \a, and a backslash before any other byte stands for that byte; in single quotes
// the only escape is \'.
func splitWords(line string) ([]string, error) {
	var words []string
	for {
		line = strings.TrimLeft(line, " \t")
		if line == "" {
			return words, nil
		}
		word, rest, err := nextWord(line)
		if err != nil {
			return nil, err
		}
		words, line = append(words, word), rest
	}
}

func nextWord(line string) (word, rest string, err error) {
	var b strings.Builder
	for line != "" && line[0] != ' ' && line[0] != '\t' {
		if quote := line[0]; quote == '"' || quote == '\'' {
			line, err = unquote(&b, quote, line[1:])
			if err != nil {
				return "", "", err
			}
			if line != "" && line[0] != ' ' && line[0] != '\t' {
				return "", "", errors.New("a closing quote must be followed by a blank")
			}
			break
		}
		b.WriteByte(line[0])
		line = line[1:]
	}
	return b.String(), line, nil
}

// unquote writes the text before the closing quote to b, and returns the rest of the line after it.
func unquote(b *strings.Builder, quote byte, line string) (rest string, err error) {
	for line != "" {
		switch {
		case line[0] == quote:
			return line[1:], nil
		case line[0] == '\\' && len(line) > 1 && (quote == '"' || line[1] == '\''):
			c, length := unescape(line)
			b.WriteByte(c)
			line = line[length:]
		default:
			b.WriteByte(line[0])
			line = line[1:]
		}
	}
	return "", errQuotes
}

// unescape reads the escape at the beginning of s, and returns its length.
func unescape(s string) (c byte, length int) {
	if s[1] == 'x' && len(s) >= 4 {
		if n, err := strconv.ParseUint(s[2:4], 16, 8); err == nil {
			return byte(n), 4
		}
	}
	if i := strings.IndexByte("nrtba", s[1]); i >= 0 {
		return "\n\r\t\b\a"[i], 2
	}
	return s[1], 2
}

// appendCommand appends a command as clients send it: an array of bulk strings.
func appendCommand(b []byte, words []string) []byte {
	b = append(b, '*')
	b = strconv.AppendInt(b, int64(len(words)), 10)
	b = append(b, "\r\n"...)
	for _, word := range words {
		b = append(b, '$')
		b = strconv.AppendInt(b, int64(len(word)), 10)
		b = append(b, "\r\n"...)
		b = append(b, word...)
		b = append(b, "\r\n"...)
	}
	return b
}
