package envoy

import (
	"fmt"
	"strings"
	"syscall"
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

// finder returns a function that finds the same with the package's index, in at most so many steps.
func finder(list []string, steps int) func(text string) int {
	p, of := sealed(list)
	return func(text string) int {
		if l := p.findIn([]byte(text), steps); l != nil {
			return of[l]
		}
		return -1
	}
}

// sealed returns patterns, and which of them has which level.
func sealed(list []string) (p *patterns, of map[*level]int) {
	p, of = new(patterns), map[*level]int{}
	for i, text := range list {
		l := new(level)
		of[l] = i
		p.add(text, l)
	}
	p.seal()
	return p, of
}

// The index finds the same pattern as a look at each pattern in order.
func TestIndex(t *testing.T) {
	word := rapid.StringOfN(rapid.SampledFrom([]rune("ab*")), 0, 8, -1)
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfNDistinct(word.Filter(func(s string) bool { return strings.Contains(s, "*") }), 0, 12,
			rapid.ID).Draw(t, "patterns")
		find := finder(list, maxSteps)
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
			find := finder(list, maxSteps)
			for b.Loop() {
				if find(text) < 0 {
					b.Fatal("not found")
				}
			}
		})
	}
}

// In few steps, the index finds what a look at each pattern in order finds, or a pattern before that which the text
// begins and ends like.
func TestIndexInFewSteps(t *testing.T) {
	word := rapid.StringOfN(rapid.SampledFrom([]rune("ab*")), 0, 8, -1)
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfNDistinct(word.Filter(func(s string) bool { return strings.Contains(s, "*") }), 1, 12,
			rapid.ID).Draw(t, "patterns")
		find := finder(list, rapid.IntRange(0, 30).Draw(t, "steps"))
		for range 20 {
			text := strings.ReplaceAll(word.Draw(t, "text"), "*", "c")
			right, found := first(list, text), find(text)
			if found == right {
				continue
			}
			require.True(t, found >= 0 && (right < 0 || found < right), "%q in %q: %d, not %d", text, list, found, right)
			between := strings.Split(list[found], "*")
			require.Equal(t, 0, first([]string{between[0] + "*" + between[len(between)-1]}, text))
			require.Greater(t, len(between), 2)
		}
	})
}

// A text with parts of thousands of patterns that matches none gets the first pattern that begins and ends alike;
// a text of ordinary size, or a long one with few parts, does not.
func TestHostileTexts(t *testing.T) {
	list, _ := manyPatterns("path_*-%d-*/*")
	find := finder(list, maxSteps)
	require.Equal(t, -1, find(hostileText(3000)))
	require.Equal(t, 0, find(hostileText(60_000)))
	require.Equal(t, -1, find("host"+hostileText(60_000)))
	require.Equal(t, -1, find("path_"+strings.Repeat("/a-1?b=2&c", 1000)))
	require.Equal(t, 7, find("path_"+strings.Repeat("/a=1&bcd=25&efgh", 2000)+"-7-/"))
}

// hostileText returns a text with parts of the patterns path_*-0-*/*, path_*-1-*/*, and so on, in the wrong order.
func hostileText(size int) string {
	var text strings.Builder
	text.WriteString("path_/")
	for i := 0; text.Len() < size; i++ {
		fmt.Fprintf(&text, "-%d-", i)
	}
	return text.String()
}

// processorTime returns the time of the processor that the process has used, in nanoseconds. On a busy machine it says
// more than the time that has passed.
func processorTime(b *testing.B) int64 {
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return usage.Utime.Nano() + usage.Stime.Nano()
}

// What a client writes into a text does not make ten thousand patterns slow: parts of all patterns in the wrong order,
// or only their beginnings.
func BenchmarkLongText(b *testing.B) {
	list, _ := manyPatterns("path_*-%d-*/*")
	p, _ := sealed(list)
	for _, size := range []int{256, 1024, 4000, 60_000} {
		for name, text := range map[string]string{
			"parts": hostileText(size), "parts-at-the-end": "path_" + strings.Repeat("x", size) + hostileText(4000),
			"beginnings": "path_" + strings.Repeat("-", size),
			"ordinary":   "path_" + strings.Repeat("/orders-of/1234?page=2&x", size/24),
		} {
			text := []byte(text)
			b.Run(fmt.Sprint(name, size), func(b *testing.B) {
				begin := processorTime(b)
				for b.Loop() {
					p.find(text)
				}
				b.ReportMetric(float64(processorTime(b)-begin)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}
