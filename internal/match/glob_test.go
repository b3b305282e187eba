package match

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGlob compares Glob with naiveGlob, a short recursive definition of the syntax, on random
// patterns and texts.
func TestGlob(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	draw := func(alphabet string) []byte {
		b := make([]byte, random.IntN(7))
		for i := range b {
			b[i] = alphabet[random.IntN(len(alphabet))]
		}
		return b
	}
	matched := 0
	for range 300_000 {
		pattern, text := draw(`abA*?[]^-\*`), draw(`abAB]-\`)
		want := naiveGlob(pattern, text)
		require.Equal(t, want, Glob(pattern, text, false), "%q %q", pattern, text)
		if want {
			matched++
		}
	}
	require.Greater(t, matched, 5000, "too few of the random patterns match for a useful test")
	require.True(t, Glob([]byte("MAX*[K-L]en"), []byte("maxmemory-klEN"), true))
	for pattern, matches := range map[string]bool{
		"[\x80-\xff]": true, "[a-\xff]": false, "[\xff-a]": false, "[\xc3-\x01]": true,
	} {
		require.Equal(t, matches, Glob([]byte(pattern), []byte{0xc3}, false), "%q", pattern)
	}
}

func naiveGlob(pattern, text []byte) bool {
	if len(pattern) == 0 {
		return len(text) == 0
	}
	if pattern[0] == '*' {
		return naiveGlob(pattern[1:], text) || len(text) > 0 && naiveGlob(pattern, text[1:])
	}
	if len(text) == 0 {
		return false
	}
	n, ok := globOne(pattern, text[0], false)
	return ok && naiveGlob(pattern[n:], text[1:])
}

// A pattern for which Redis takes exponential time is matched at once.
func TestGlobIsNotExponential(t *testing.T) {
	pattern := []byte(strings.Repeat("a*", 50) + "b")
	require.False(t, Glob(pattern, bytes.Repeat([]byte("a"), 5000), false))
}

// GlobWithin reports no match when its steps are used up, and otherwise returns the steps left.
func TestGlobWithin(t *testing.T) {
	pattern, text := []byte("*aaaaaaaaab"), bytes.Repeat([]byte("a"), 5000)
	ok, left := GlobWithin(pattern, text, false, 1000)
	require.False(t, ok)
	require.Zero(t, left)
	ok, left = GlobWithin([]byte("tenant:*"), append([]byte("tenant:"), text...), false, 1000)
	require.True(t, ok)
	require.Equal(t, 1000-len("tenant:"), left)
	_, left = GlobWithin([]byte("*["+strings.Repeat("x", 800)+"]b"), text, false, 1_000_000)
	require.Less(t, left, 1_000_000-len(text)*100, "a long class must cost more steps")
}

// Each * costs a step, because a pattern may consist of nothing else.
func TestStarsAreSteps(t *testing.T) {
	ok, left := GlobWithin(bytes.Repeat([]byte("*"), 5000), []byte("a"), false, 1000)
	require.False(t, ok)
	require.Zero(t, left)
}
