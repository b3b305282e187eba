package commands

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/transcript"
)

const limitersPage = "../../docs/limiters.md"

// playable matches the blocks of a page that are conversations. In a timeline, @advance moves the
// clock.
var playable = regexp.MustCompile("(?ms)^```(?:timeline|transcript)\n(.*?)^```$")

// The replies in the pages are those of the server. Each block begins without keys.
func TestConversationsInPages(t *testing.T) {
	for _, page := range []struct {
		file   string
		blocks *regexp.Regexp
		least  int
	}{{limitersPage, playable, 12}, {"../../docs/migrate.md", playable, 11}} {
		text, err := os.ReadFile(page.file)
		require.NoError(t, err)
		played, current := 0, string(text)
		for _, block := range blocksOf(t, strings.TrimPrefix(page.file, "../../"), string(text), page.blocks) {
			played++
			if *rewrite {
				answered, err := block.file.Rewrite(newServer(t))
				require.NoError(t, err)
				current = strings.Replace(current, block.text, strings.TrimLeft(string(answered), "\n"), 1)
				continue
			}
			for _, d := range block.file.Play(newServer(t)) {
				t.Error(d)
			}
		}
		require.GreaterOrEqual(t, played, page.least, page.file)
		if *rewrite {
			require.NoError(t, os.WriteFile(page.file, []byte(current), 0o644))
		}
	}
}

func TestWrongReplyInPageIsFound(t *testing.T) {
	page := "# Page\n\n```timeline\n> CL.FIXED k 1 60\n[0, 1, 0, -1, 60]\n@advance 59s\n> CL.FIXED k 1 60\n[1, 1, 0, 2, 2]\n```\n"
	blocks := blocksOf(t, "page.md", page, playable)
	require.Len(t, blocks, 1)
	differences := blocks[0].file.Play(newServer(t))
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
