package cli

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"cellserver/internal/resp"
)

// format is a format of replies.
type format int

const (
	formatRaw   format = iota // text alone
	formatHuman               // with types, and numbers of elements
	formatJSON
)

// appendRaw appends a reply in the format of redis-cli --raw: each element is a line, at any depth,
// and so is each key of a map with its value after a space. Nil is empty. An error includes a line
// break, as in redis-cli, so that an empty line follows it.
func appendRaw(b []byte, r reply) []byte {
	switch r.kind {
	case kindNil:
	case kindError:
		b = append(append(b, r.text...), '\n')
	case kindBoolean:
		b = append(b, boolean(r)...)
	case kindArray, kindSet, kindPush, kindMap:
		for i, part := range r.parts {
			switch {
			case i == 0:
			case r.kind == kindMap && i%2 == 1:
				b = append(b, ' ')
			default:
				b = append(b, '\n')
			}
			b = appendRaw(b, part)
		}
	default:
		b = append(b, r.text...)
	}
	return b
}

// appendHuman appends a reply in the format of redis-cli on a terminal, with types and numbered
// elements, and a line break at the end. All lines but the first begin with prefix.
func appendHuman(b []byte, r reply, prefix string) []byte {
	switch r.kind {
	case kindArray:
		return appendParts(b, r, prefix, "(empty array)", ')')
	case kindPush:
		return appendParts(b, r, prefix, "(empty push)", ')')
	case kindSet:
		return appendParts(b, r, prefix, "(empty set)", '~')
	case kindMap:
		return appendParts(b, r, prefix, "(empty hash)", '#')
	case kindNil:
		b = append(b, "(nil)"...)
	case kindError:
		b = append(append(b, "(error) "...), r.text...)
	case kindInteger:
		b = append(append(b, "(integer) "...), r.text...)
	case kindDouble:
		b = append(append(b, "(double) "...), r.text...)
	case kindBoolean:
		b = append(b, boolean(r)...)
	case kindString:
		b = resp.AppendQuoted(b, r.text)
	default: // statuses, verbatim strings and big numbers
		b = append(b, r.text...)
	}
	return append(b, '\n')
}

func appendParts(b []byte, r reply, prefix, empty string, mark byte) []byte {
	step := 1
	if r.kind == kindMap {
		step = 2
	}
	count := len(r.parts) / step
	if count == 0 {
		return append(append(b, empty...), '\n')
	}
	width := len(strconv.Itoa(count))
	inner := prefix + strings.Repeat(" ", width+2)
	for i := range count {
		if i > 0 {
			b = append(b, prefix...) // the first element continues the line of the caller
		}
		b = fmt.Appendf(b, "%*d%c ", width, i+1, mark)
		b = appendHuman(b, r.parts[step*i], inner)
		if r.kind == kindMap {
			b = append(bytes.TrimSuffix(b, []byte("\n")), " => "...)
			value := r.parts[step*i+1]
			if isMultiline(value) {
				b = append(append(b, '\n'), inner...)
			}
			b = appendHuman(b, value, inner)
		}
	}
	return b
}

// isMultiline reports whether a value has several elements, at any depth. In a map, such a value
// begins on a line of its own, so that its elements are aligned.
func isMultiline(r reply) bool {
	switch {
	case len(r.parts) == 0:
		return false
	case len(r.parts) == 1, len(r.parts) == 2 && r.kind == kindMap:
		return isMultiline(r.parts[len(r.parts)-1])
	}
	return true
}

func boolean(r reply) string {
	if string(r.text) == "t" {
		return "(true)"
	}
	return "(false)"
}
