package redisconf

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestSplitWords checks quotes. test/integration compares them with a real redis-server's.
func TestSplitWords(t *testing.T) {
	for text, want := range map[string][]string{
		"port 7000":                {"port", "7000"},
		"  bind\t127.0.0.1   ::1 ": {"bind", "127.0.0.1", "::1"},
		`save ""`:                  {"save", ""},
		`a "b c" 'd e'`:            {"a", "b c", "d e"},
		`a "\x41\n\"\\\q"`:         {"a", "A\n\"\\q"},
		`a '\x41\''`:               {"a", `\x41'`},
		`a b"c d"`:                 {"a", "bc d"},
		`a "\xZZ"`:                 {"a", "xZZ"},
	} {
		words, err := splitWords(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, words, text)
	}
	for _, text := range []string{`a "b`, `a 'b`, `a "b"c`, `a 'b'c`, `"`} {
		_, err := splitWords(text)
		assert.Error(t, err, text)
	}
}

// TestQuotedWordsAreReadBack checks that every word survives being written and read.
func TestQuotedWordsAreReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := string(rapid.SliceOf(rapid.Byte()).Draw(t, "word"))
		words, err := splitWords("name " + quote(word))
		require.NoError(t, err)
		require.Equal(t, []string{"name", word}, words)
	})
}
