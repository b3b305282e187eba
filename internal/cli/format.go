package cli

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// appendRaw writes a reply as redis-cli --raw does: one element a line, however deep; a map's keys
// and values with a space between; nil as nothing. An error ends its line itself, so that the
// caller's end of line makes an empty one.
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

// appendHuman writes a reply as redis-cli does on a terminal: each with its type, elements
// numbered. It ends with an end of line. prefix is what lines but the first begin with.
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
		b = appendQuoted(b, r.text)
	default: // statuses, texts for people, and numbers too big for an integer
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
			b = append(b, prefix...) // the first stands behind what the caller has written
		}
		b = fmt.Appendf(b, "%*d%c ", width, i+1, mark)
		b = appendHuman(b, r.parts[step*i], inner)
		if r.kind == kindMap {
			b = append(bytes.TrimSuffix(b, []byte("\n")), " => "...)
			value := r.parts[step*i+1]
			if takesLines(value) {
				b = append(append(b, '\n'), inner...)
			}
			b = appendHuman(b, value, inner)
		}
	}
	return b
}

// takesLines says whether a value has several elements, at whatever depth: as a map's value it
// begins on a line of its own, so that they stand below each other.
func takesLines(r reply) bool {
	switch {
	case len(r.parts) == 0:
		return false
	case len(r.parts) == 1, len(r.parts) == 2 && r.kind == kindMap:
		return takesLines(r.parts[len(r.parts)-1])
	}
	return true
}

func boolean(r reply) string {
	if string(r.text) == "t" {
		return "(true)"
	}
	return "(false)"
}

// appendQuoted writes bytes in quotes, and in ASCII, so that splitCall reads them back.
func appendQuoted(b, text []byte) []byte {
	b = append(b, '"')
	for _, c := range text {
		switch i := strings.IndexByte("\n\r\t\b\a\"\\", c); {
		case i >= 0:
			b = append(b, '\\', `nrtba"\`[i])
		case c < ' ' || c > '~':
			b = fmt.Appendf(b, `\x%02x`, c)
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}
