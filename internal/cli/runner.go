package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// runner executes commands and prints their replies.
type runner struct {
	conn        *connection
	out         io.Writer
	format      format
	interval    time.Duration            // between two repetitions
	wait        func(time.Duration)      // until it is over
	docs        func(name string) []byte // of ServerEnvironment
	interactive bool                     // a person enters commands
}

// errReply means that the reply, which has been printed, is an error.
var errReply = errors.New("the reply is an error")

// errorReply is errReply with the text of the reply.
type errorReply struct{ text string }

func (e *errorReply) Error() string        { return e.text }
func (e *errorReply) Is(target error) bool { return target == errReply }

// execute executes a command and prints the reply.
func (d *runner) execute(call []string) error {
	if startsWithAny(call, streams) {
		return d.stream(call)
	}
	r, err := d.conn.call(call)
	if errors.Is(err, errShutDown) {
		return nil
	}
	if err != nil {
		return err
	}
	return d.print(call, r)
}

// print prints a reply to a call.
func (d *runner) print(call []string, r reply) error {
	var b []byte
	switch {
	case startsWithAny(call, textReplies):
		b = appendRaw(b, r)
	case d.format == formatRaw:
		b = append(appendRaw(b, r), '\n')
	case d.format == formatJSON:
		b = append(appendJSON(b, r), '\n')
	default:
		b = appendHuman(b, r, "")
	}
	if _, err := d.out.Write(b); err != nil {
		return err
	}
	if r.kind != kindError {
		return nil
	}
	if d.interactive {
		if usage := d.conn.hint(r); usage != "" {
			fmt.Fprintln(d.out, "usage:", usage)
		}
	}
	return &errorReply{string(r.text)}
}

// repeat executes a command several times; for ever if times is negative. As in redis-cli, it continues after an
// error reply.
func (d *runner) repeat(call []string, times int) (result error) {
	for done := 0; times < 0 || done < times; done++ {
		if done > 0 && d.interval > 0 {
			d.wait(d.interval)
		}
		if err := d.execute(call); errors.Is(err, errReply) {
			result = err
		} else if err != nil {
			return err
		}
	}
	return result
}

var errTimes = errors.New("a number before a command says how often it is sent: it must be between 1 and 2147483647")

// repeatedCall splits the number off a call that begins with one, such as 5 PING.
func repeatedCall(call []string) (rest []string, times int, err error) {
	if len(call) < 2 {
		return call, 1, nil
	}
	n, err := strconv.ParseInt(call[0], 10, 32)
	switch {
	case errors.Is(err, strconv.ErrSyntax):
		return call, 1, nil
	case err != nil, n < 1:
		return nil, 0, errTimes
	}
	return call[1:], int(n), nil
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
		call, times, err := splitLine(line)
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
			if err := d.repeat(call, times); errors.Is(err, errReply) {
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
