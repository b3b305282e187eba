package report

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	generated = regexp.MustCompile(`(?s)<!-- [a-z]+(:| calls).*?<!-- (bench:)?end[^>]*-->`)
	fenced    = regexp.MustCompile("(?ms)^```.*?^```$")
	records   = regexp.MustCompile(`(?s)\n## Measured by hand\n.*?\n## `)

	// performance matches figures that need a measurement: microseconds, bytes per key,
	// comparisons.
	performance = regexp.MustCompile(`\d[\d.,]* ?(us|ns|µs|microseconds?|nanoseconds?)\b` +
		`|\d[\d.,]* ?(bytes|B|MiB)( of memory)? (per|a|for each) key\b` +
		`|\d[\d.,]* ?(%|times)( as)? (\w+ )?(less|more|fast|faster|slow|slower|cheaper|better|much|many|expensive)( \w+)? (than|as)\b` +
		`|\d[\d.,]*k? (calls|decisions|requests) (per|a) second\b`)
)

// Every figure of performance in the documents is generated from results.json, or stands in the
// section of dated measurements.
func TestFiguresInProseAreGenerated(t *testing.T) {
	names, err := filepath.Glob(filepath.Join(root, "docs/*.md"))
	require.NoError(t, err)
	require.NotEmpty(t, names)
	names = append(names, filepath.Join(root, "README.md"), filepath.Join(root, "ARCHITECTURE.md"))
	for _, name := range names {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		assert.Empty(t, figuresByHand(string(text)), "%s: put the figure between comments, as in documents.go", name)
	}
}

func figuresByHand(text string) (found []string) {
	for _, aside := range []*regexp.Regexp{fenced, generated, records} {
		text = aside.ReplaceAllString(text, "")
	}
	return performance.FindAllString(text, -1)
}

func TestFiguresByHandAreFound(t *testing.T) {
	for text, want := range map[string][]string{
		"A call takes 5.6 us.": {"5.6 us"},
		"A call takes <!-- bench:few -->5.6 us<!-- bench:end --> or so.": nil,
		"A key takes 43 bytes per key.":                                  {"43 bytes per key"},
		"It is 20 % faster than Redis, 3 times as fast as nginx.":        {"20 % faster than", "3 times as fast as"},
		"It makes 100k calls per second.":                                {"100k calls per second"},
		"A key has at most 65536 bytes, and waits 100 ms.":               nil,
		"<!-- bench:few -->\n5 us\n<!-- bench:end -->\nand 6 us":         {"6 us"},
		"```sh\n5 us\n```\n":                                             nil,
		"a\n## Measured by hand\n5 us\n## Next\n6 us":                    {"6 us"},
	} {
		assert.Equal(t, want, figuresByHand(text), text)
	}
}
