package weblog

import (
	"bytes"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
)

// binding says which fields of a line are needed, and holds their values until the next line. The value of a field
// that the line does not have is nil.
type binding struct {
	names  []string
	slots  []int // for patterns and CSV: the index of the value, or -1, of each field up to the last needed one
	values [][]byte
	memory []byte
}

// slot returns the index of a field's value.
func (b *binding) slot(name string) int {
	if i := slices.Index(b.names, name); i >= 0 {
		return i
	}
	b.names = append(b.names, name)
	return len(b.names) - 1
}

// bind prepares to read lines whose fields have these names, in order; there are no names for JSON lines.
func (b *binding) bind(fields []string) {
	b.values = make([][]byte, len(b.names))
	for i, name := range fields {
		slot := slices.Index(b.names, name)
		if slices.Index(fields, name) < i { // the first of a name counts
			slot = -1
		}
		b.slots = append(b.slots, slot)
	}
	for len(b.slots) > 0 && b.slots[len(b.slots)-1] < 0 {
		b.slots = b.slots[:len(b.slots)-1]
	}
}

// reader reads the fields of a line.
type reader interface {
	read(line []byte, b *binding) bool
}

// jsonLines are lines with a JSON object each.
type jsonLines struct{}

// maxDepth bounds how deeply JSON is nested.
const maxDepth = 64

func (jsonLines) read(line []byte, b *binding) bool {
	if len(line) == 0 || line[0] != '{' || isDeep(line) || !gjson.ValidBytes(line) {
		return false
	}
	b.memory = b.memory[:0]
	for i, name := range b.names {
		b.values[i] = nil
		if r := lookUp(line, name); r.Exists() {
			from := len(b.memory)
			if b.memory = append(b.memory, r.String()...); r.Type == gjson.Number {
				b.memory = append(b.memory[:from], r.Raw...) // with all of its digits
			}
			b.values[i] = b.memory[from:len(b.memory):len(b.memory)]
		}
	}
	return true
}

// isDeep reports whether a line has more than maxDepth braces and brackets open at once. It also counts those in
// strings.
func isDeep(line []byte) bool {
	depth, deepest := 0, 0
	for _, c := range line {
		switch c {
		case '{', '[':
			depth++
			deepest = max(deepest, depth)
		case '}', ']':
			depth--
		}
	}
	return deepest > maxDepth
}

// lookUp returns a value of an object by its path, such as request.headers.X-Api-Key.0, or by a name that has dots.
func lookUp(line []byte, path string) gjson.Result {
	names := strings.Split(path, ".")
	for i, name := range names {
		names[i] = gjson.Escape(name)
	}
	r := gjson.GetBytes(line, strings.Join(names, "."))
	if !r.Exists() && len(names) > 1 {
		r = gjson.GetBytes(line, gjson.Escape(path))
	}
	return r
}

// csvLines are lines with fields between commas. A field may be in quotation marks, but has no line ends.
type csvLines struct{ header []byte }

func (c *csvLines) read(line []byte, b *binding) bool {
	if bytes.Equal(line, c.header) { // each file has one
		return false
	}
	clear(b.values)
	b.memory = b.memory[:0]
	rest, ok := line, true
	for _, slot := range b.slots {
		if !ok {
			return false
		}
		var value []byte
		if value, rest, ok = b.cutCSV(rest); value == nil {
			return false
		}
		if slot >= 0 {
			b.values[slot] = value
		}
	}
	return true
}

// cutCSV returns the first field, which is nil if its quotation marks are wrong, and the rest of the line. more reports
// whether there is another field.
func (b *binding) cutCSV(line []byte) (value, rest []byte, more bool) {
	if len(line) == 0 || line[0] != '"' {
		value, rest, more = bytes.Cut(line, []byte(","))
		if value == nil {
			value = []byte{}
		}
		return value, rest, more
	}
	from := len(b.memory)
	for i := 1; i < len(line); i++ {
		if line[i] != '"' {
			b.memory = append(b.memory, line[i])
			continue
		}
		if i++; i < len(line) && line[i] == '"' {
			b.memory = append(b.memory, '"')
			continue
		}
		value = b.memory[from:len(b.memory):len(b.memory)]
		switch {
		case i == len(line):
			return value, nil, false
		case line[i] == ',':
			return value, line[i+1:], true
		}
		break
	}
	return nil, nil, false
}

// columns returns the names in the header of CSV.
func columns(header []byte) (names []string) {
	var b binding
	for rest, more := header, true; more && len(names) < maxFields; {
		var value []byte
		if value, rest, more = b.cutCSV(rest); value == nil {
			return nil
		}
		names = append(names, string(bytes.TrimSpace(value)))
	}
	return names
}
