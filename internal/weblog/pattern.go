package weblog

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// maxFields bounds the fields of a format, and maxPattern the length of its description.
const (
	maxFields  = 200
	maxPattern = 4096
)

// pattern describes a line as nginx's log_format does: variables, and texts between them.
type pattern struct {
	before string   // the text before the first variable
	names  []string // of the variables
	after  []string // the text after each; only the last may be empty

	// quotes is the number of quotation marks in a line, if the format does not escape them in values; otherwise 0. A
	// line with more quotation marks is ambiguous: a client could forge the fields behind its header.
	quotes int
}

var errNoVariable = errors.New("it has no $variable")

// parsePattern reads a description such as `$remote_addr [$time_local] "$request"`.
func parsePattern(text string) (*pattern, error) {
	if len(text) > maxPattern {
		return nil, fmt.Errorf("it has %d bytes, and at most %d are allowed", len(text), maxPattern)
	}
	var p pattern
	var found bool
	p.before, text, found = strings.Cut(text, "$")
	for found {
		name, rest, err := cutName(text)
		if err != nil {
			return nil, err
		}
		var after string
		after, text, found = strings.Cut(rest, "$")
		if found && after == "" {
			return nil, fmt.Errorf("there is no text between $%s and the next variable, so they cannot be told apart", name)
		}
		p.names, p.after = append(p.names, name), append(p.after, after)
	}
	switch {
	case len(p.names) == 0:
		return nil, errNoVariable
	case len(p.names) > maxFields:
		return nil, fmt.Errorf("it has %d variables, and at most %d are allowed", len(p.names), maxFields)
	}
	return &p, nil
}

// cutName returns the name of a variable at the beginning of a text, which may be in braces.
func cutName(text string) (name, rest string, err error) {
	if inner, braced := strings.CutPrefix(text, "{"); braced {
		if name, rest, braced = strings.Cut(inner, "}"); !braced {
			return "", "", errors.New("it has ${ without }")
		}
	} else {
		end := strings.IndexFunc(text, func(c rune) bool {
			return c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
		})
		if end < 0 {
			end = len(text)
		}
		name, rest = text[:end], text[end:]
	}
	if name == "" {
		return "", "", errors.New("it has a $ without a name")
	}
	return name, rest, nil
}

// read sets the values of a line's fields. Fields after the last that is needed are not read, so a line may have
// more of them than the format knows.
func (p *pattern) read(line []byte, b *binding) bool {
	if len(line) < len(p.before) || string(line[:len(p.before)]) != p.before {
		return false
	}
	if p.quotes > 0 && bytes.Count(line, []byte(`"`)) != p.quotes {
		return false
	}
	rest := line[len(p.before):]
	after := p.after[:len(b.slots)]
	for i, slot := range b.slots {
		after := after[i]
		end := len(rest)
		if len(after) == 1 && after[0] != '"' {
			end = bytes.IndexByte(rest, after[0])
		} else if after != "" {
			end = find(rest, after, p.quotes == 0)
		}
		if end < 0 {
			return false
		}
		if slot >= 0 {
			b.values[slot] = rest[:end:end]
		}
		rest = rest[end+len(after):]
	}
	return true
}

// find returns the end of a field, which the text after follows. If values have escapes, a quotation mark with a
// backslash before it does not end a field: Apache writes the quotation marks of clients in this way. nginx writes
// \x22.
func find(rest []byte, after string, escapes bool) int {
	for from := 0; ; {
		i := bytes.IndexByte(rest[from:], after[0])
		if i < 0 {
			return -1
		}
		i += from
		if len(rest)-i >= len(after) && string(rest[i:i+len(after)]) == after &&
			(!escapes || after[0] != '"' || !isEscaped(rest[:i])) {
			return i
		}
		from = i + 1
	}
}

// isEscaped reports whether a text ends with an odd number of backslashes.
func isEscaped(before []byte) bool {
	n := len(before)
	for n > 0 && before[n-1] == '\\' {
		n--
	}
	return (len(before)-n)%2 == 1
}
