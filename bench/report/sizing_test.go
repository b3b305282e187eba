package report

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const sizing = "docs/sizing.md"

// quoted are sentences of docs/sizing.md, with % for each number, and where the numbers come from.
var quoted = []struct{ sentence, file, source string }{
	{"open hold takes at most % bytes where each key has one, and at most % where a key has 1000",
		"internal/store/memory/holds_memory_test.go", `"SLIDINGLOG": \{(\d+), (\d+)\}`},
	{"at most % are remembered at once", "internal/store/memory/once.go", `DefaultMaxIDs = ([\d_]+)`},
	{"each for % seconds (`--id-ttl`)", "internal/commands/limiter/settings.go", `IDSeconds: ([\d_]+)`},
	{"An entry of a sliding log takes % bytes.", "internal/store/memory/entrylog.go", `log, (\d+) bytes each`},
	{"grows beyond % MiB is replaced by a snapshot", "internal/persist/passes.go", `maxJournal: (\d+) << 20`},
	{"A server accepts % connections", "internal/server/settings.go", `MaxClients: ([\d_]+)`},
	{"and % more are kept for other purposes", "cmd/cellserver/config.go", `const reserved = (\d+)`},
	{"at most %% of `maxmemory`", "docs/configuration.md", "MAXMEMORY_CLIENTS` \\| a size, 0% to 100% \\| `(\\d+%)`"},
	{"add the bytes by which your names are longer than %", "bench/report/figures.go", `const nameLength = (\d+)`},
}

// wrongFigures returns the quoted sentences that are not in a text with the numbers of their
// sources.
func wrongFigures(t *testing.T, text string) (wrong []string) {
	text = strings.Join(strings.Fields(text), " ")
	for _, q := range quoted {
		source, err := os.ReadFile(filepath.Join(root, q.file))
		require.NoError(t, err)
		found := regexp.MustCompile(q.source).FindSubmatch(source)
		require.NotNil(t, found, "%s: nothing matches %s", q.file, q.source)
		sentence := strings.Replace(q.sentence, "%%", "%", 1)
		for _, number := range found[1:] {
			sentence = strings.Replace(sentence, "%", strings.ReplaceAll(string(number), "_", ""), 1)
		}
		if !strings.Contains(text, sentence) {
			wrong = append(wrong, sentence)
		}
	}
	return wrong
}

// The bounds that docs/sizing.md quotes are the bounds in the code and its tests.
func TestSizesAreThoseOfTheCode(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, sizing))
	require.NoError(t, err)
	assert.Empty(t, wrongFigures(t, string(text)))

	for _, right := range []string{"most 170 bytes", "most 110 where", "most 1000000 are", "for 10 seconds",
		"takes 16 bytes", "beyond 256 MiB", "accepts 10000", "and 64 more", "most 25% of", "than 17."} {
		require.Equal(t, 1, strings.Count(string(text), right), right)
		planted := strings.Replace(string(text), right, regexp.MustCompile(`\d+`).ReplaceAllString(right, "7"), 1)
		assert.Len(t, wrongFigures(t, planted), 1, "a wrong figure is not noticed: %s", right)
	}
}

// A wrong figure in a table is noticed, and the computed figures come from results.json.
func TestWrongSizesAreFound(t *testing.T) {
	r, err := Load(root)
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(root, sizing))
	require.NoError(t, err)
	for _, name := range []string{"sizing-memory", "sizing-connections", "sizing-cpu", "sizing-store", "sizing-disk",
		"sizing-examples"} {
		table := parts[name](r)
		require.Contains(t, string(text), table, name)
		planted := strings.Replace(string(text), table, strings.Replace(table, "1", "7", 1), 1)
		require.NotEqual(t, string(text), planted)
		mended, err := r.fill([]byte(planted))
		require.NoError(t, err)
		assert.Equal(t, string(text), string(mended), name)
		assert.Empty(t, parts[name](&Results{}), name)
	}
}

// The memory of an example is the server's memory at the start, and the memory of its keys.
func TestSizesOfAnExample(t *testing.T) {
	perCall := func(us float64) []CPU { return []CPU{{Server: Throttle, Micros: Spread{Middle: us}}} }
	r := &Results{Scenarios: []Scenario{
		{Name: "memory-limiters", Memory: []Memory{
			{Server: "CL.THROTTLE", Keys: 1 << 20, Start: 10 << 20, Settled: 58 << 20}}},
		{Name: "cpu-p1", CPU: perCall(5)}, {Name: "cpu-p1-c1", CPU: perCall(20)},
		{Name: "dir-files", Figures: []Figure{{What: snapshotSize, Value: 250}, {What: journalRate, Value: 2}}},
	}}
	assert.Regexp(t, `CL.THROTTLE: 1M users, 5,000 calls/s +\| +56 MiB \| +2.5 % \| +10.0 % \| +25 MiB \| +102 KiB/s \|`,
		r.sizingExamples())
}
