package commands_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/commands"
	"cellserver/internal/commands/commandstest"
	policies "cellserver/internal/policy"
	"cellserver/internal/store"
	memstore "cellserver/internal/store/memory"
	"cellserver/internal/transcript"
)

const limitersPage = "../../docs/limiters.md"

// playable matches the blocks of a page that are conversations. The replies in a timeline depend on a clock that
// only @advance moves; test/snippets plays transcripts to the binary, too.
var (
	playable  = regexp.MustCompile("(?ms)^```(?:timeline|transcript)\n(.*?)^```$")
	timelines = regexp.MustCompile("(?ms)^```timeline\n(.*?)^```$")
)

// The replies in the pages are those of the server. Each block begins without keys.
func TestConversationsInPages(t *testing.T) {
	for _, page := range []struct {
		file   string
		blocks *regexp.Regexp
		least  int
	}{
		{limitersPage, playable, 12}, {"../../docs/migrate.md", playable, 11}, {"../../docs/policies.md", timelines, 7},
		{"../../docs/monitoring.md", timelines, 2}, {"../../docs/differences.md", timelines, 2},
	} {
		text, err := os.ReadFile(page.file)
		require.NoError(t, err)
		played, current := 0, string(text)
		for _, block := range blocksOf(t, strings.TrimPrefix(page.file, "../../"), string(text), page.blocks) {
			played++
			if *rewrite {
				answered, err := block.file.Rewrite(newServerOfPage(t, current))
				require.NoError(t, err)
				current = strings.Replace(current, block.text, strings.TrimLeft(string(answered), "\n"), 1)
				continue
			}
			for _, d := range block.file.Play(newServerOfPage(t, current)) {
				t.Error(d)
			}
		}
		require.GreaterOrEqual(t, played, page.least, page.file)
		if *rewrite {
			require.NoError(t, os.WriteFile(page.file, []byte(current), 0o644))
		}
	}
}

var policyFile = regexp.MustCompile("(?ms)^```yaml ([a-z-]+\\.yaml)\n(.*?)^```$")

// newServerOfPage returns a server with the policies of the files that the page shows.
func newServerOfPage(t *testing.T, page string) *commandstest.Server {
	var files []policies.File
	for _, m := range policyFile.FindAllStringSubmatch(page, -1) {
		if m[1] != "changed.yaml" { // what becomes of another file
			files = append(files, policies.File{Name: m[1], Text: []byte(m[2])})
		}
	}
	if files == nil {
		return commandstest.New(t)
	}
	clock := store.NewStillClock(commandstest.Start)
	over := memstore.New(memstore.Options{Clock: clock, SweepEvery: -1})
	s, err := commandstest.NewReading(
		t,
		over,
		func() ([]policies.File, error) { return files, nil },
		func(*commands.Settings) {},
	)
	require.NoError(t, err)
	s.Clock, s.Clock = clock, clock
	return s
}

func TestWrongReplyInPageIsFound(t *testing.T) {
	page := "# Page\n\n```timeline\n> CL.FIXED k 1 60\n[0, 1, 0, -1, 60]\n@advance 59s\n> CL.FIXED k 1 60\n[1, 1, 0, 2, 2]\n```\n"
	blocks := blocksOf(t, "page.md", page, playable)
	require.Len(t, blocks, 1)
	differences := blocks[0].file.Play(commandstest.New(t))
	require.Len(t, differences, 1)
	require.Equal(t, "[1, 1, 0, 1, 1]", differences[0].Got)
	require.Equal(t, 8, differences[0].Line)
}

// The page has a section, a picture and an example for every limiter.
func TestLimitersPageHasEveryLimiter(t *testing.T) {
	text, err := os.ReadFile(limitersPage)
	require.NoError(t, err)
	for name, picture := range map[string]string{
		"CL.THROTTLE": "throttle", "CL.FIXED": "fixed", "CL.SLIDING": "sliding", "CL.SLIDINGLOG": "slidinglog",
		"CL.QUOTA":   "quota",
		"CL.ACQUIRE": "lease",
	} {
		_, section, found := strings.Cut(string(text), "\n### "+name)
		require.True(t, found, name)
		section, _, _ = strings.Cut(section, "\n### ")
		require.Contains(t, section, fmt.Sprintf("(limiters-%s.svg)", picture), name)
		require.Contains(t, section, "\n> "+name+" ")
	}
}

// pageBlock is a conversation in a page, with the line numbers of the page.
type pageBlock struct {
	text string
	file *transcript.File
}

func blocksOf(t *testing.T, name, page string, blocks *regexp.Regexp) (all []pageBlock) {
	for _, at := range blocks.FindAllStringSubmatchIndex(page, -1) {
		text := page[at[2]:at[3]]
		before := strings.Repeat("\n", strings.Count(page[:at[2]], "\n"))
		f, err := transcript.Parse(name, []byte(before+text))
		require.NoError(t, err)
		all = append(all, pageBlock{text, f})
	}
	return all
}
