package cli

import "fmt"

// appendJSON appends a reply in the format of redis-cli --json. As there, an error is error: and a string, numbers are
// as the server writes them, and bytes that are not UTF-8 stay as they are.
func appendJSON(b []byte, r reply) []byte {
	switch r.kind {
	case kindNil:
		return append(b, "null"...)
	case kindInteger, kindDouble, kindNumber:
		return append(b, r.text...)
	case kindBoolean:
		if string(r.text) == "t" {
			return append(b, "true"...)
		}
		return append(b, "false"...)
	case kindError:
		return appendJSONString(append(b, "error:"...), r.text)
	case kindArray, kindSet, kindPush:
		b = append(b, '[')
		for i, part := range r.parts {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendJSON(b, part)
		}
		return append(b, ']')
	case kindMap:
		return appendJSONMap(b, r)
	}
	return appendJSONString(b, r.text)
}

// appendJSONMap appends a map. A key that is not a string is written as one.
func appendJSONMap(b []byte, r reply) []byte {
	b = append(b, '{')
	for i := 0; i+1 < len(r.parts); i += 2 {
		if i > 0 {
			b = append(b, ',')
		}
		switch key := r.parts[i]; key.kind {
		case kindString, kindStatus, kindVerbatim, kindError:
			b = appendJSON(b, key)
		default:
			b = append(appendJSON(append(b, '"'), key), '"')
		}
		b = appendJSON(append(b, ':'), r.parts[i+1])
	}
	return append(b, '}')
}

// shortEscapes are the bytes that have an escape of their own, and their letters.
var shortEscapes = map[byte]byte{'\\': '\\', '"': '"', '\n': 'n', '\f': 'f', '\r': 'r', '\t': 't', '\b': 'b'}

func appendJSONString(b, text []byte) []byte {
	b = append(b, '"')
	for _, c := range text {
		letter, short := shortEscapes[c]
		switch {
		case short:
			b = append(b, '\\', letter)
		case c < 0x20:
			b = fmt.Appendf(b, `\u%04x`, c)
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}
