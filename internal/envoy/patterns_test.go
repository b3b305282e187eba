package envoy

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/stretchr/testify/require"
)

// first returns the index of the first pattern that matches a text, or -1, by the definition.
func first(list []string, text string) int {
	for i, p := range list {
		if matchesAll(p, text) {
			return i
		}
	}
	return -1
}

func matchesAll(pattern, text string) bool {
	if pattern == "" {
		return text == ""
	}
	if pattern[0] == '*' {
		return matchesAll(pattern[1:], text) || text != "" && matchesAll(pattern, text[1:])
	}
	return text != "" && text[0] == pattern[0] && matchesAll(pattern[1:], text[1:])
}

// finder returns a function that finds the same with the package's index.
func finder(list []string) func(text string) int {
	var p patterns
	of := map[*level]int{}
	for i, text := range list {
		l := new(level)
		of[l] = i
		p.add(text, l)
	}
	return func(text string) int {
		if l := p.find([]byte(text)); l != nil {
			return of[l]
		}
		return -1
	}
}

// The index finds the same pattern as a look at each pattern in order.
func TestIndex(t *testing.T) {
	word := rapid.StringOfN(rapid.SampledFrom([]rune("ab*")), 0, 8, -1)
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfNDistinct(word.Filter(func(s string) bool { return strings.Contains(s, "*") }), 0, 12,
			rapid.ID).Draw(t, "patterns")
		find := finder(list)
		for range 20 {
			text := strings.ReplaceAll(word.Draw(t, "text"), "*", "c")
			require.Equal(t, first(list, text), find(text), "%q in %q", text, list)
		}
	})
}

// The test finds an index that prefers longer matches, as the order of a tree would.
func TestIndexCatches(t *testing.T) {
	require.Equal(t, 0, first([]string{"a*", "ab*"}, "ab"))
	require.Equal(t, 1, first([]string{"*c", "*b", "ab*"}, "ab"))
	require.Equal(t, -1, first([]string{"a*b"}, "a"))
}

// manyPatterns are ten thousand patterns of one level, of which the last one matches the text.
func manyPatterns(format string) (list []string, text string) {
	for i := range 10_000 {
		list = append(list, fmt.Sprintf(format, i))
	}
	return list, strings.ReplaceAll(list[len(list)-1], "*", "")
}

func BenchmarkTenThousandPatterns(b *testing.B) {
	for _, format := range []string{"path_/users/%d/*", "host_*.%d.example.com", "path_*/%d/*", "path_*-%d-*/*"} {
		b.Run(format, func(b *testing.B) {
			list, text := manyPatterns(format)
			find := finder(list)
			for b.Loop() {
				if find(text) < 0 {
					b.Fatal("not found")
				}
			}
		})
	}
}

// A client that writes all parts of ten thousand patterns into a long text, in the wrong order, does not make them
// slow.
func BenchmarkLongText(b *testing.B) {
	for _, size := range []int{256, 4096, 60_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			list, _ := manyPatterns("path_*-%d-*/*")
			find := finder(list)
			var text strings.Builder
			text.WriteString("path_/")
			for i := 0; text.Len() < size; i++ {
				fmt.Fprintf(&text, "-%d-", i)
			}
			for b.Loop() {
				if find(text.String()) >= 0 {
					b.Fatal("found")
				}
			}
		})
	}
}
