package cli

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
)

// The bounds of the history.
const (
	historyLines     = 1000
	historyLineBytes = 4096
	historyBytes     = 1 << 20 // a file that is longer is shortened when a session begins
)

// history has the lines that were entered, oldest first. It implements term.History. Lines with passwords are in
// neither the memory nor the file.
type history struct {
	lines []string
	file  string // "" for none
	last  string // line in the file
}

// historyFile returns the path of the file, "" for none.
func historyFile() string {
	if path := os.Getenv("CELLSERVERCLI_HISTFILE"); path != "" {
		return path
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".cellserver_history")
}

// openHistory reads the file. A file that cannot be read is an empty history: a session does not need one.
func openHistory(path string) *history {
	h := &history{}
	if path == "" {
		return h
	}
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		h.file = path
		return h
	} else if err != nil {
		return h
	}
	defer f.Close()
	about, err := f.Stat()
	if err != nil || !about.Mode().IsRegular() {
		return h
	}
	h.file = path
	begin := max(0, about.Size()-historyBytes)
	text := make([]byte, about.Size()-begin)
	n, err := f.ReadAt(text, begin)
	if err != nil && !errors.Is(err, io.EOF) {
		return h
	}
	if text = text[:n]; begin > 0 {
		_, text, _ = bytes.Cut(text, []byte("\n")) // the first line is cut
	}
	for line := range strings.Lines(string(text)) {
		h.Add(strings.TrimSuffix(line, "\n"))
	}
	if begin > 0 {
		h.shorten()
	}
	if len(h.lines) > 0 {
		h.last = h.At(0)
	}
	return h
}

// Add implements term.History.
func (h *history) Add(line string) {
	isHidden := len(line) > historyLineBytes ||
		strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) })
	words, _, err := splitLine(line)
	if err != nil {
		words = strings.Fields(line)
	}
	if isHidden || len(words) == 0 || hasSecret(words) || len(h.lines) > 0 && h.lines[len(h.lines)-1] == line {
		return
	}
	if len(h.lines) == historyLines {
		h.lines = slices.Delete(h.lines, 0, 1)
	}
	h.lines = append(h.lines, line)
}

// Len implements term.History.
func (h *history) Len() int { return len(h.lines) }

// At implements term.History.
func (h *history) At(i int) string { return h.lines[len(h.lines)-1-i] }

// keep appends a line to the file that was executed with this result. A line with an unknown command is left out: it
// may be AUTH, misspelled. Errors are ignored: a session does not need the file.
func (h *history) keep(line string, result error) {
	refused := (*errorReply)(nil)
	isUnknown := errors.As(result, &refused) && strings.Contains(strings.ToLower(refused.text), "unknown ")
	if h.file == "" || isUnknown || len(h.lines) == 0 || h.At(0) != line || h.last == line {
		return
	}
	f, err := os.OpenFile(h.file, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return
	}
	h.last = line
	_, _ = f.WriteString(line + "\n")
	_ = f.Close()
}

// shorten replaces the file by one with the lines in memory.
func (h *history) shorten() {
	path := h.file + ".new"
	if os.WriteFile(path, []byte(strings.Join(h.lines, "\n")+"\n"), 0o600) == nil {
		_ = os.Rename(path, h.file)
	}
}

// hasSecret reports whether a call may have a password, or something that is derived from one.
func hasSecret(words []string) bool {
	arguments := words[1:]
	switch strings.ToUpper(words[0]) {
	case "AUTH":
		return true
	case "HELLO":
		return len(arguments) > 1
	case "ACL":
		return startsWithAny(arguments, []string{"SETUSER", "DRYRUN"})
	case "CONFIG":
		return startsWithAny(arguments, []string{"SET"}) && slices.ContainsFunc(arguments, mayBeSecret)
	case "MIGRATE":
		return slices.ContainsFunc(arguments, func(word string) bool {
			return startsWithAny([]string{word}, []string{"AUTH", "AUTH2"})
		})
	}
	return false
}

// mayBeSecret reports whether a word of CONFIG SET may name a setting that has a password. The names may be misspelled,
// and addresses may have passwords too.
func mayBeSecret(word string) bool {
	word = strings.ToLower(word)
	return slices.ContainsFunc([]string{"pas", "auth", "secret", "user", "key", "store", "url", "://"},
		func(part string) bool { return strings.Contains(word, part) })
}
