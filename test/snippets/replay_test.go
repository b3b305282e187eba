package snippets

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

const replayPage = "docs/replay.md"

// The commands in docs/replay.md print the page's output, with the page's files.
func TestReplayTranscript(t *testing.T) {
	dir, ran := t.TempDir(), 0
	server := peer.Command("version").Path
	for _, b := range blocks(t, replayPage) {
		if b.name != "" {
			require.NoError(t, os.WriteFile(filepath.Join(dir, b.name), []byte(b.text), 0o600))
			continue
		}
		if b.language != "console" {
			continue
		}
		for call := range strings.SplitSeq("\n"+b.text, "\n$ ") {
			line, want, _ := strings.Cut(call, "\n")
			if line == "" {
				continue
			}
			ran++
			got := runIn(t, dir, strings.ReplaceAll(line, "cellserver ", server+" "))
			assert.Equal(t, strings.TrimSpace(want), strings.TrimSpace(got), "%s:%d: %s", b.file, b.line, line)
		}
	}
	assert.GreaterOrEqual(t, ran, 5)
}

func runIn(t *testing.T, dir, line string) string {
	cmd := exec.Command("sh", "-c", line)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s: %s", line, out)
	return string(out)
}

// The page names all options of both subcommands.
func TestReplayOptionsAreExplained(t *testing.T) {
	page, options := read(t, replayPage), 0
	for _, name := range []string{"replay", "suggest"} {
		help := runIn(t, ".", peer.Command("version").Path+" policies "+name+" --help")
		for word := range strings.FieldsSeq(help) {
			option, found := strings.CutPrefix(word, "--")
			if found && option != "help" && !strings.ContainsAny(option, ".,;)") {
				options++
				assert.Contains(t, page, "`--"+option, name)
			}
		}
	}
	assert.Greater(t, options, 25)
}
