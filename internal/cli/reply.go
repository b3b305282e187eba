package cli

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// The kinds of replies are their first bytes in RESP2 and RESP3.
const (
	kindStatus   = '+'
	kindError    = '-'
	kindInteger  = ':'
	kindString   = '$'
	kindArray    = '*'
	kindNil      = '_'
	kindBoolean  = '#'
	kindDouble   = ','
	kindNumber   = '('
	kindVerbatim = '='
	kindMap      = '%'
	kindSet      = '~'
	kindPush     = '>'

	kindLongError = '!' // read as kindError
	kindAttribute = '|' // dropped: it describes the next reply
)

// reply is a parsed reply. Unlike a Go value, it keeps the order of a map and the kinds of strings.
type reply struct {
	kind  byte
	text  []byte  // of a reply without parts
	parts []reply // the elements; of a map, keys and values alternate
}

var errNoReply = errors.New("invalid RESP")

// parseReply parses the reply at the beginning of b, and returns the bytes after it.
func parseReply(b []byte) (r reply, rest []byte, err error) {
	line, rest, found := bytes.Cut(b, []byte("\r\n"))
	if !found || len(line) == 0 {
		return reply{}, nil, errNoReply
	}
	r = reply{kind: line[0], text: line[1:]}
	switch r.kind {
	case kindStatus, kindError, kindInteger, kindNil, kindBoolean, kindDouble, kindNumber:
		return r, rest, nil
	}
	n, err := strconv.Atoi(string(r.text))
	switch {
	case err != nil || n < -1:
		return reply{}, nil, fmt.Errorf("%w: %.40q", errNoReply, line)
	case n == -1: // a null of RESP2
		return reply{kind: kindNil}, rest, nil
	}
	switch r.kind {
	case kindString, kindVerbatim, kindLongError:
		return r.takeText(rest, n)
	case kindArray, kindSet, kindPush:
		return r.takeParts(rest, n)
	case kindMap:
		return r.takeParts(rest, 2*n)
	case kindAttribute:
		if _, rest, err = r.takeParts(rest, 2*n); err != nil {
			return reply{}, nil, err
		}
		return parseReply(rest)
	}
	return reply{}, nil, fmt.Errorf("%w: %.40q", errNoReply, line)
}

func (r reply) takeText(b []byte, length int) (_ reply, rest []byte, err error) {
	if len(b)-2 < length {
		return reply{}, nil, errNoReply
	}
	r.text = b[:length]
	switch r.kind {
	case kindLongError:
		r.kind = kindError
	case kindVerbatim:
		if length < 4 {
			return reply{}, nil, errNoReply
		}
		r.text = r.text[4:] // the first four bytes are the format, such as "txt:"
	}
	return r, b[length+2:], nil
}

func (r reply) takeParts(b []byte, count int) (_ reply, rest []byte, err error) {
	r.text = nil
	for range count {
		var part reply
		if part, b, err = parseReply(b); err != nil {
			return reply{}, nil, err
		}
		r.parts = append(r.parts, part)
	}
	return r, b, nil
}
