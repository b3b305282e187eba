package cli

import (
	"errors"
	"io"
	"os"

	"golang.org/x/term"

	"cellserver/internal/resp"
)

// errQuotes is the error for a line with unbalanced quotes.
var errQuotes = errors.New(`unbalanced quotes: write "a key", 'a key' or "a \"key\""`)

// splitCall splits a line into words, which may be quoted as in redis-cli. It uses the protocol's
// reader of inline commands, which has the same rules of quoting. The blank before the line keeps
// the reader from taking a line that begins with * for an array of the protocol.
func splitCall(line string) (call []string, err error) {
	long := len(line) + len(" \n") + 1
	r := resp.NewReader(resp.Limits{Bulk: long, Words: long, Inline: long, Query: long})
	r.Feed([]byte(" " + line + "\n"))
	words, err := r.Next()
	if err != nil {
		return nil, errQuotes
	}
	for _, word := range words {
		call = append(call, string(word))
	}
	return call, nil
}

// splitLine splits a line into a call, and how often it is sent.
func splitLine(line string) (call []string, times int, err error) {
	if call, err = splitCall(line); err != nil {
		return nil, 0, err
	}
	return repeatedCall(call)
}

// prompt reads commands from a terminal until the user quits. The terminal is in raw mode only
// while a line is edited. During a command, Ctrl-C ends the program, for instance if no reply
// comes; during MONITOR and SUBSCRIBE, it ends the command.
func (d *runner) prompt(in, out *os.File, past *history) error {
	if err := d.conn.connect(); err != nil {
		return err
	}
	editor := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{in, out}, "")
	editor.AutoCompleteCallback = (&completer{conn: d.conn}).complete
	editor.History = past
	d.interactive = true
	for {
		editor.SetPrompt(d.conn.String())
		line, err := readLine(editor, in, out)
		if errors.Is(err, io.EOF) { // Ctrl-D or Ctrl-C
			_, err = io.WriteString(out, "\n")
			return err
		} else if err != nil {
			return err
		}
		call, times, err := splitLine(line)
		if isQuit(call) {
			return nil
		}
		switch {
		case err != nil || len(call) == 0:
		case isHelp(call):
			err = d.help(call[1:])
			past.keep(line, nil)
		default:
			err = d.repeat(call, times)
			past.keep(line, err)
		}
		if err != nil && !errors.Is(err, errReply) {
			printError(err)
		}
	}
}

// readLine reads a line with the line editor.
func readLine(editor *term.Terminal, in, out *os.File) (string, error) {
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return "", err
	}
	defer term.Restore(int(in.Fd()), before) //nolint:errcheck // nothing else could restore the terminal
	if width, height, err := term.GetSize(int(out.Fd())); err == nil && width > 0 {
		_ = editor.SetSize(width, height) // without the size, lines are wrapped at 80 columns
	}
	return editor.ReadLine()
}
