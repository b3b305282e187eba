package load

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// replies counts the RESP2 replies in a stream that arrives in pieces. It parses only as much as it
// must. Unless acceptErrors is set, an error reply is an error, because a benchmark of refused
// calls measures nothing.
type replies struct {
	acceptErrors bool
	refusal      string // the last error reply

	part   []byte // a line without its end
	skip   int    // bytes of a bulk string that are still to come
	nested int    // values that the current reply still lacks after the next value
}

// count returns how many replies end in the piece.
func (r *replies) count(piece []byte) (complete int, err error) {
	for len(piece) > 0 {
		if r.skip > 0 {
			n := min(r.skip, len(piece))
			r.skip -= n
			piece = piece[n:]
			if r.skip == 0 {
				complete += r.valueEnds()
			}
			continue
		}
		line, rest, ended := bytes.Cut(piece, []byte("\n"))
		if !ended {
			r.part = append(r.part, line...)
			return complete, nil
		}
		if len(r.part) > 0 {
			line = append(r.part, line...)
			r.part = r.part[:0]
		}
		piece = rest
		n, err := r.line(line)
		if err != nil {
			return complete, err
		}
		complete += n
	}
	return complete, nil
}

// valueEnds returns 1 if the reply ends with the value.
func (r *replies) valueEnds() int {
	if r.nested == 0 {
		return 1
	}
	r.nested--
	return 0
}

// line parses a line without its newline, and returns 1 if a reply ends with it.
func (r *replies) line(line []byte) (int, error) {
	line = bytes.TrimSuffix(line, []byte("\r"))
	if len(line) == 0 {
		return 0, errors.New("an empty line where a reply should begin")
	}
	switch line[0] {
	case ':', '+':
		return r.valueEnds(), nil
	case '$', '*':
		return r.length(line)
	case '-':
		if r.acceptErrors {
			r.refusal = string(line[1:])
			return r.valueEnds(), nil
		}
		return 0, fmt.Errorf("the server refused: %s", line[1:])
	}
	return 0, fmt.Errorf("not a RESP2 reply: %q", line)
}

func (r *replies) length(line []byte) (int, error) {
	n, err := strconv.Atoi(string(line[1:]))
	switch {
	case err != nil:
		return 0, fmt.Errorf("not a length: %q", line)
	case line[0] == '$' && n >= 0:
		r.skip = n + len("\r\n")
		return 0, nil
	case line[0] == '*' && n > 0:
		r.nested += n - 1
		return 0, nil
	}
	return r.valueEnds(), nil // nil, or an empty array
}
