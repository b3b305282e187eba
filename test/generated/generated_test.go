package generated

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Of a long text, only the lines that differ are shown.
func TestDifference(t *testing.T) {
	long := strings.Repeat("a line of the page\n", 1000)
	have, want := long+"old\n"+long, long+"new\nand another\n"+long
	assert.Equal(t, "line 1001:\n- old\n+ new\n+ and another\n", Difference(have, want))
	assert.Equal(t, "line 1001:\n+ a line of the page\n+ \n", Difference(strings.TrimSuffix(long, "\n"), long+"a line of the page\n"))
	assert.Empty(t, Difference(have, have))
	most := Difference("", long)
	assert.Contains(t, most, "+ and 980 more lines\n")
	assert.Less(t, len(most), 1000)
}

func TestCheck(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	Check(t, path, "new\n", true)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "new\n", string(text))
	Check(t, path, "new\n", false)
}
