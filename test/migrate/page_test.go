package migrate

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/generated"
)

var rewrite = flag.Bool("rewrite", false, "write the tables of docs/migrate.md instead of comparing them")

const (
	page    = "../../docs/migrate.md"
	pageEnd = "<!-- end of played -->"
)

// pageStart is where a way's table begins.
func (w way) pageStart() string {
	return "<!-- played: " + w.name + ", written by go test ./test/migrate -rewrite -->\n"
}

// table returns a way's table for the page.
func (w way) table(t *testing.T) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| | %s |\n|---|%s\n", w.head, strings.Repeat("---|", strings.Count(w.head, "|")+1))
	for _, r := range w.rows {
		fmt.Fprintf(&b, "| %s |", r.traffic)
		for _, n := range r.play(newPlace(t)) {
			fmt.Fprintf(&b, " %d |", n)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// played returns a page with its tables as today's code plays them.
func played(t *testing.T, text string) string {
	for _, w := range ways() {
		before, rest, found := strings.Cut(text, w.pageStart())
		_, after, ended := strings.Cut(rest, pageEnd)
		require.True(t, found && ended, "the page has lost the table of %s", w.name)
		text = before + w.pageStart() + w.table(t) + pageEnd + after
	}
	return text
}

func readPage(t *testing.T) string {
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	return string(text)
}

// The tables of the page are the results of today's code.
func TestPageIsCurrent(t *testing.T) {
	text := readPage(t)
	current := played(t, text)
	if generated.Check(t, page, current, *rewrite); *rewrite {
		return
	}
	planted := strings.Replace(text, "| 180 | 60 | 60 |", "| 180 | 61 | 60 |", 1)
	require.NotEqual(t, text, planted)
	assert.NotEqual(t, planted, played(t, planted), "a wrong number has to be seen")
}

// Each section shows the command that its table compares.
func TestPageShowsTheCommands(t *testing.T) {
	sections := strings.Split(readPage(t), "\n## ")
	for _, w := range ways() {
		for _, section := range sections {
			if strings.Contains(section, w.pageStart()) {
				shown := "(?m)^> " + regexp.MustCompile(` N\b`).ReplaceAllString(w.command, ` \d+`) + "$"
				assert.Regexp(t, shown, section, w.name)
			}
		}
	}
}

// fence matches a block of the page that names the file of its code.
var fence = regexp.MustCompile("(?ms)^```(\\w+) (\\S+)\n(.*?)^```$")

// code returns the page's block with this name.
func code(t *testing.T, name string) string {
	for _, m := range fence.FindAllStringSubmatch(readPage(t), -1) {
		if m[2] == name {
			return m[3]
		}
	}
	require.Fail(t, "the page has no code of that name", name)
	return ""
}

// The page shows exactly the code of the old ways that these tests run. (TestScriptsOfThePage runs
// the scripts.)
func TestPageShowsTheCode(t *testing.T) {
	shown := 0
	for _, m := range fence.FindAllStringSubmatch(readPage(t), -1) {
		if m[1] != "go" {
			continue
		}
		shown++
		source, err := os.ReadFile(m[2])
		require.NoError(t, err)
		for _, piece := range strings.Split(m[3], "\n\n") {
			piece = "\n" + strings.TrimRight(piece, "\n") + "\n"
			assert.Contains(t, string(source), piece, m[2])
			assert.NotContains(t, string(source), strings.Replace(piece, "(", "[", 1), "a changed letter has to be seen")
		}
	}
	assert.Equal(t, 9, shown)
}
