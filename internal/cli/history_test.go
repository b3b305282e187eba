package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// enter is what a session does with a line.
func enter(h *history, line string, result error) {
	h.Add(line)
	h.keep(line, result)
}

// secretLines are lines that are never kept.
var secretLines = []string{
	"AUTH s3cret", "auth me s3cret", "3 AUTH s3cret", `AUTH "s3cret`, "HELLO 3 AUTH me s3cret", "HELLO 3 AUHT me s3cret",
	"ACL SETUSER me on >s3cret", "acl setuser me #s3cret", "ACL DRYRUN me AUTH s3cret", "CONFIG SET requirepass s3cret",
	"config set maxclients 5 requirepas s3cret", "CONFIG SET tls-key-file-pass s3cret", "CONFIG SET masterauth s3cret",
	"CONFIG SET store redis://:s3cret@host", "CONFIG SET webhook-secret s3cret", "CONFIG SET user 'me on >s3cret'",
	"MIGRATE host 1 k 0 1 AUTH s3cret", "MIGRATE host 1 k 0 1 auth2 me s3cret",
}

// Lines are kept across sessions, without passwords.
func TestHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history")
	first := openHistory(path)
	assert.Zero(t, first.Len())
	kept := []string{"GET a", "3 PING", "HELLO 3", "ACL LIST", "CONFIG GET requirepass", "CONFIG SET maxclients 5"}
	for _, line := range kept {
		enter(first, line, nil)
	}
	enter(first, kept[len(kept)-1], nil) // once more
	for _, line := range append(secretLines, "", "  ", "GET \x1b[2J", strings.Repeat("a", historyLineBytes+1)) {
		enter(first, line, nil)
	}
	enter(first, "ATUH s3cret", &errorReply{"ERR unknown command 'ATUH'"})
	enter(first, "GET", &errorReply{"ERR wrong number of arguments for 'get' command"})
	enter(first, "GET b", errors.New("the connection was closed"))
	kept = append(kept, "GET", "GET b")

	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, strings.Join(kept, "\n")+"\n", string(text))
	about, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), about.Mode())

	second := openHistory(path)
	require.Equal(t, len(kept), second.Len())
	for i, line := range kept {
		assert.Equal(t, line, second.At(len(kept)-1-i))
	}
	assert.Contains(t, strings.Join(first.lines, "\n"), "ATUH s3cret", "it can be corrected in this session")
}

// The history is bounded in memory and in the file.
func TestHistoryIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history")
	var long strings.Builder
	for i := 0; long.Len() < 3*historyBytes; i++ {
		long.WriteString("ECHO " + strings.Repeat("x", 500) + strconv.Itoa(i) + "\n")
	}
	require.NoError(t, os.WriteFile(path, []byte(long.String()+"AUTH s3cret\n"), 0o600))
	h := openHistory(path)
	require.Equal(t, historyLines, h.Len())
	lines := strings.Split(strings.TrimSpace(long.String()), "\n")
	assert.Equal(t, lines[len(lines)-1], h.At(0))
	about, err := os.Stat(path)
	require.NoError(t, err)
	assert.Less(t, about.Size(), int64(historyBytes))
	again := openHistory(path)
	assert.Equal(t, h.lines, again.lines)
	again.Add("PING")
	assert.Equal(t, historyLines, again.Len())
	assert.Equal(t, "PING", again.At(0))
}

// A session works without a file.
func TestNoHistoryFile(t *testing.T) {
	folder := t.TempDir()
	for _, path := range []string{"", os.DevNull, folder, filepath.Join(folder, "nosuch", "history")} {
		h := openHistory(path)
		enter(h, "PING", nil)
		assert.Equal(t, "PING", h.At(0), path)
		assert.Zero(t, openHistory(path).Len(), path)
	}
	t.Setenv("CELLSERVERCLI_HISTFILE", "elsewhere")
	assert.Equal(t, "elsewhere", historyFile())
	t.Setenv("CELLSERVERCLI_HISTFILE", "")
	t.Setenv("HOME", folder)
	assert.Equal(t, filepath.Join(folder, ".cellserver_history"), historyFile())
}
