package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// runner executes commands and prints their replies.
type runner struct {
	conn  *connection
	out   io.Writer
	raw   bool
	hints bool // print the usage after a call with the wrong number of arguments
}

// errReply means that the reply, which has been printed, is an error.
var errReply = errors.New("the reply is an error")

// execute executes a command and prints the reply.
func (d *runner) execute(call []string) error {
	r, err := d.conn.call(call)
	if err != nil {
		return err
	}
	var b []byte
	switch {
	case startsWithAny(call, textReplies):
		b = appendRaw(b, r)
	case d.raw:
		b = append(appendRaw(b, r), '\n')
	default:
		b = appendHuman(b, r, "")
	}
	if _, err := d.out.Write(b); err != nil {
		return err
	}
	if r.kind != kindError {
		return nil
	}
	if d.hints {
		if usage := d.conn.hint(r); usage != "" {
			fmt.Fprintln(d.out, "usage:", usage)
		}
	}
	return errReply
}

// textReplies are the commands whose replies are texts of several lines. As in redis-cli, they are
// printed without quotes.
var textReplies = []string{
	"INFO", "CLIENT INFO", "CLIENT LIST", "CLUSTER INFO", "CLUSTER NODES", "LATENCY DOCTOR", "LATENCY GRAPH", "LOLWUT",
	"MEMORY DOCTOR", "MEMORY MALLOC-STATS",
}

// startsWithAny reports whether the first words of a call are one of the names, in upper or lower
// case.
func startsWithAny(call, names []string) bool {
	for _, name := range names {
		n := strings.Count(name, " ") + 1
		if len(call) >= n && strings.EqualFold(strings.Join(call[:n], " "), name) {
			return true
		}
	}
	return false
}

// script executes the commands of a stream, one per line. As in redis-cli, it continues after an
// error reply. It ends when the connection is lost, because it is unknown whether the last command
// was executed.
func (d *runner) script(lines io.Reader) (result error) {
	for r := bufio.NewReader(lines); ; {
		line, last := r.ReadString('\n')
		call, err := splitCall(line)
		switch {
		case err != nil:
			printError(err)
			result = errReply
		case isQuit(call):
			return result
		case isHelp(call):
			if err := d.help(call[1:]); err != nil {
				return err
			}
		case len(call) > 0:
			if err := d.execute(call); errors.Is(err, errReply) {
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

// isQuit reports whether a call is QUIT or EXIT, which end the program and are not sent.
func isQuit(call []string) bool {
	return len(call) == 1 && startsWithAny(call, []string{"QUIT", "EXIT"})
}
