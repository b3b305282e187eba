package cli

import (
	"bufio"
	"errors"
	"io"
	"strings"
)

// dialogue makes calls and prints replies.
type dialogue struct {
	link *link
	out  io.Writer
	raw  bool
}

// errAnswered says that the server's reply, which has been printed, is an error.
var errAnswered = errors.New("answered with an error")

// ask makes a call and prints the reply.
func (d *dialogue) ask(call []string) error {
	r, err := d.link.do(call)
	if err != nil {
		return err
	}
	var b []byte
	switch {
	case startsWithAny(call, prose):
		b = appendRaw(b, r)
	case d.raw:
		b = append(appendRaw(b, r), '\n')
	default:
		b = appendHuman(b, r, "")
	}
	if _, err := d.out.Write(b); err != nil {
		return err
	}
	if r.kind == kindError {
		return errAnswered
	}
	return nil
}

// prose lists the commands whose reply is text for people, with lines of its own. As in redis-cli
// it is printed as it is.
var prose = []string{
	"INFO", "CLIENT INFO", "CLIENT LIST", "CLUSTER INFO", "CLUSTER NODES", "LATENCY DOCTOR", "LATENCY GRAPH", "LOLWUT",
	"MEMORY DOCTOR", "MEMORY MALLOC-STATS",
}

// startsWithAny says whether a call's first words are one of these names, in any case.
func startsWithAny(call, names []string) bool {
	for _, name := range names {
		n := strings.Count(name, " ") + 1
		if len(call) >= n && strings.EqualFold(strings.Join(call[:n], " "), name) {
			return true
		}
	}
	return false
}

// script makes the calls of a stream, one a line. An error reply does not end it, as little as in
// redis-cli; but a lost connection does, because nobody knows whether the call that was under way
// has been carried out.
func (d *dialogue) script(lines io.Reader) (result error) {
	for r := bufio.NewReader(lines); ; {
		line, last := r.ReadString('\n')
		call, err := splitCall(line)
		switch {
		case err != nil:
			complain(err)
			result = errAnswered
		case isGoodbye(call):
			return result
		case len(call) > 0:
			if err := d.ask(call); errors.Is(err, errAnswered) {
				result = err
			} else if err != nil {
				return err
			}
		}
		if errors.Is(last, io.EOF) {
			return result
		} else if last != nil {
			return last
		}
	}
}

// isGoodbye knows the words that end a conversation. They are the client's own and are not sent.
func isGoodbye(call []string) bool {
	return len(call) == 1 && startsWithAny(call, []string{"QUIT", "EXIT"})
}
