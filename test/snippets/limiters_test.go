package snippets

import (
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	errorLine = regexp.MustCompile(`limit +(\d+), load (\d\.\d): +([\d.]+ %) of its admissions beyond the limit, (\d+) at most in a period; admits ([-+][\d.]+ %)`)
	errorRow  = regexp.MustCompile(`(?m)^\| \d+ \| \d\.\d \| [\d.]+ % \|.*$`)
)

// The table about CL.SLIDING on random traffic in docs/limiters.md has exactly the rows that the
// test prints.
func TestQuotedErrorOnRandomTraffic(t *testing.T) {
	command := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-v", "-run", "RandomTraffic",
		"./internal/window")
	command.Dir = root
	printed, err := command.CombinedOutput()
	require.NoError(t, err, string(printed))
	var rows []string
	for _, m := range errorLine.FindAllStringSubmatch(string(printed), -1) {
		rows = append(rows, fmt.Sprintf("| %s |", strings.Join(m[1:], " | ")))
	}
	require.Len(t, rows, 12)
	assert.Equal(t, rows, errorRow.FindAllString(read(t, "docs/limiters.md"), -1))
}
