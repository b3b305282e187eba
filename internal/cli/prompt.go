package cli

import (
	"errors"
	"io"
	"os"

	"golang.org/x/term"

	"cellserver/internal/resp"
)

// errQuotes is about a line that splitCall cannot split.
var errQuotes = errors.New(`a quote is not closed, or something stands right behind it: write "a key", 'a key' or "a \"key\""`)

// splitCall splits a typed line into words, quoted as in redis-cli. The reader of inline commands
// knows those rules; the blank before the line keeps a first * from being taken for the protocol's.
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

// prompt asks for calls on a terminal until it is told goodbye. The terminal is the line editor's
// only while a line is typed: meanwhile Ctrl-C ends the program, as it should if a reply does not
// come.
func (d *dialogue) prompt(in, out *os.File) error {
	if err := d.link.connect(); err != nil {
		return err
	}
	editor := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{in, out}, "")
	for {
		editor.SetPrompt(d.link.String())
		line, err := typed(editor, in, out)
		if errors.Is(err, io.EOF) { // Ctrl-D or Ctrl-C
			_, err = io.WriteString(out, "\n")
			return err
		} else if err != nil {
			return err
		}
		call, err := splitCall(line)
		if isGoodbye(call) {
			return nil
		}
		if err == nil && len(call) > 0 {
			err = d.ask(call)
		}
		if err != nil && !errors.Is(err, errAnswered) {
			complain(err)
		}
	}
}

// typed is the next line that is typed.
func typed(editor *term.Terminal, in, out *os.File) (string, error) {
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return "", err
	}
	defer term.Restore(int(in.Fd()), before) //nolint:errcheck // there is no other way to get it back
	if width, height, err := term.GetSize(int(out.Fd())); err == nil && width > 0 {
		_ = editor.SetSize(width, height) // else lines are wrapped at 80 columns
	}
	return editor.ReadLine()
}
