// Package snippets tests the documentation: it runs the programs and commands in it, plays its
// transcripts, and checks its links and the names of tests.
package snippets

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

func TestMain(m *testing.M) { peer.Main(m) }

// patience is the timeout of every wait. It is long because a test machine may be busy.
const patience = 60 * time.Second

// root is the project's directory, relative to this package.
const root = "../.."

// block is a fenced block: ```language name, its text, and ```.
type block struct {
	file           string // relative to the root
	line           int    // of the fence, from 1
	language, name string
	text           string
}

// documents returns the names of README.md and of all documents in docs/.
func documents(t *testing.T) []string {
	files, err := filepath.Glob(root + "/docs/*.md")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 4)
	names := []string{"README.md"}
	for _, file := range files {
		names = append(names, "docs/"+filepath.Base(file))
	}
	return names
}

func read(t *testing.T, name string) string {
	text, err := os.ReadFile(filepath.Join(root, name))
	require.NoError(t, err)
	return string(text)
}

// blocks returns the fenced blocks of a document.
func blocks(t *testing.T, name string) []block { return parseBlocks(name, read(t, name)) }

func parseBlocks(name, text string) (all []block) {
	var open *block
	for i, line := range strings.SplitAfter(text, "\n") {
		info, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && open == nil:
			language, title, _ := strings.Cut(strings.TrimSpace(info), " ")
			open = &block{file: name, line: i + 1, language: language, name: title}
		case fence:
			all, open = append(all, *open), nil
		case open != nil:
			open.text += line
		}
	}
	return all
}

// named returns the only block with this name in a document.
func named(t *testing.T, document, name string) block {
	var found []block
	for _, b := range blocks(t, document) {
		if b.name == name {
			found = append(found, b)
		}
	}
	require.Len(t, found, 1, "blocks named %s in %s", name, document)
	return found[0]
}

func TestBlocksAreFound(t *testing.T) {
	text := "a\n```go x.go\nb\n\nc\n```\n```\nd\n```\n    ```\n"
	assert.Equal(t, []block{
		{"f", 2, "go", "x.go", "b\n\nc\n"}, {"f", 7, "", "", "d\n"},
	}, parseBlocks("f", text))
}

// The README's programs are the same as in the documents that it links to, whose programs are run.
func TestReadmeShowsWhatIsRun(t *testing.T) {
	shown := 0
	for _, b := range blocks(t, "README.md") {
		if b.name == "" {
			continue
		}
		shown++
		assert.Equal(t, named(t, "docs/clients.md", b.name).text, b.text, b.name)
	}
	assert.Equal(t, 2, shown)
}

// Every block with a program has a name, and a test or a script runs it. (TestRecipesInGo and run.sh
// run all programs of docs/recipes.md.)
func TestEveryProgramIsRun(t *testing.T) {
	script := read(t, "test/snippets/run.sh")
	for _, document := range []string{"README.md", "docs/clients.md", "docs/http.md"} {
		for _, b := range blocks(t, document) {
			switch b.language {
			case "transcript", "timeline", "sh", "http":
			case "go":
				assert.Contains(t, []string{"limit.go", "middleware.go"}, b.name, "%s:%d", b.file, b.line)
			default:
				assert.NotEmpty(t, b.name, "%s:%d", b.file, b.line)
				assert.Contains(t, script, " "+b.name+" ", "%s:%d", b.file, b.line)
			}
		}
	}
}
