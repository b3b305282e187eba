package snippets

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.+)$`)
	unlinked = regexp.MustCompile("[^a-z0-9 _-]")
)

// Every link from a document to another file, and to a heading in it, has its target.
func TestLinksHaveTargets(t *testing.T) {
	checked := 0
	for _, document := range append(documents(t), "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md") {
		n, broken := brokenLinks(t, document, read(t, document))
		checked += n
		assert.Empty(t, broken, document)
	}
	assert.GreaterOrEqual(t, checked, 50)
	_, broken := brokenLinks(t, "docs/acl.md", "[a](nosuch.md) [b](security.md#tls) [c](security.md#nosuch) [d](../README.md)")
	assert.Equal(t, []string{"nosuch.md", "security.md#nosuch"}, broken)
}

func brokenLinks(t *testing.T, document, text string) (checked int, broken []string) {
	for _, m := range link.FindAllStringSubmatch(text, -1) {
		if strings.Contains(m[1], "://") {
			continue
		}
		checked++
		file, anchor, _ := strings.Cut(m[1], "#")
		target := document
		if file != "" {
			target = filepath.Join(filepath.Dir(document), file)
		}
		_, err := os.Stat(filepath.Join(root, target))
		if err != nil || anchor != "" && !slices.Contains(anchors(t, target), anchor) {
			broken = append(broken, m[1])
		}
	}
	return checked, broken
}

// anchors are the names by which GitHub links to the headings of a document.
func anchors(t *testing.T, document string) (all []string) {
	for _, m := range heading.FindAllStringSubmatch(read(t, document), -1) {
		all = append(all, strings.ReplaceAll(unlinked.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return all
}

// The README is short, and links to the index, which links to every page.
func TestReadmeIsShortAndIndexLinksEveryPage(t *testing.T) {
	readme, index := read(t, "README.md"), read(t, "docs/README.md")
	assert.Less(t, len(readme), 9000, "bytes of README.md")
	assert.Contains(t, readme, "(docs/README.md)")
	pages, err := filepath.Glob(root + "/docs/*.md")
	require.NoError(t, err)
	for _, page := range pages {
		if name := filepath.Base(page); name != "README.md" && !strings.Contains(index, "("+name+")") {
			t.Errorf("docs/README.md does not link to %s", name)
		}
	}
}
