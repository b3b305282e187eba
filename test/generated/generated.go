// Package generated checks that the generated parts of files are up to date.
package generated

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Check checks that a file's text is want, and shows only the lines that differ. With rewrite, it writes the file
// instead.
func Check(t testing.TB, path, want string, rewrite bool) {
	t.Helper()
	if rewrite {
		require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
		return
	}
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	if difference := Difference(string(text), want); difference != "" {
		t.Fatalf("%s is not up to date: run make rewrite\n%s", path, difference)
	}
}

// mostLines bounds the lines that Difference shows of each text.
const mostLines = 20

// Difference returns both texts' lines from the first to the last difference, and "" if the texts are equal.
func Difference(have, want string) string {
	if have == want {
		return ""
	}
	a, b := strings.Split(have, "\n"), strings.Split(want, "\n")
	first := 0
	for first < min(len(a), len(b)) && a[first] == b[first] {
		first++
	}
	a, b = a[first:], b[first:]
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return fmt.Sprintf("line %d:\n", first+1) + marked("-", a) + marked("+", b)
}

func marked(mark string, lines []string) string {
	shown := slices.Clone(lines[:min(len(lines), mostLines)])
	for i := range shown {
		shown[i] = mark + " " + shown[i] + "\n"
	}
	if more := len(lines) - len(shown); more > 0 {
		shown = append(shown, fmt.Sprintf("%s and %d more lines\n", mark, more))
	}
	return strings.Join(shown, "")
}
