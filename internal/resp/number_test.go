package resp

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		word         string
		n            int64
		redis, loose bool // whether ParseInt and ParseDecimal accept the word
	}{
		{"0", 0, true, true}, {"7", 7, true, true}, {"-7", -7, true, true}, {"1234567890", 1234567890, true, true},
		{"9223372036854775807", 1<<63 - 1, true, true}, {"-9223372036854775808", -1 << 63, true, true},
		{"+7", 7, false, true}, {"007", 7, false, true}, {"-0", 0, false, true}, {"-07", -7, false, true},
		{"00", 0, false, true},
		{"+0", 0, false, true}, {"+00000000000000000000000000009", 9, false, true},
		{"9223372036854775808", 0, false, false}, {"-9223372036854775809", 0, false, false},
		{"+9223372036854775808", 0, false, false}, {"18446744073709551616", 0, false, false},
		{"18446744073709551617", 0, false, false}, {"99999999999999999999", 0, false, false},
		{"", 0, false, false}, {"-", 0, false, false}, {"+", 0, false, false}, {"--1", 0, false, false},
		{"+-1", 0, false, false},
		{" 1", 0, false, false}, {"1 ", 0, false, false}, {"1.0", 0, false, false}, {"1e3", 0, false, false},
		{"0x1", 0, false, false}, {"1_0", 0, false, false}, {"1\x00", 0, false, false}, {"/", 0, false, false},
		{":", 0, false, false},
	} {
		check := func(parse func([]byte) (int64, bool), accepts bool) {
			n, ok := parse([]byte(c.word))
			assert.Equal(t, accepts, ok, "%q", c.word)
			if accepts {
				assert.Equal(t, c.n, n, "%q", c.word)
			} else {
				assert.Zero(t, n, "%q", c.word)
			}
		}
		check(ParseInt, c.redis)
		check(ParseDecimal, c.loose)
	}
}

// TestParseModel checks that ParseDecimal accepts the numbers that strconv parses, ParseInt the numbers that strconv
// formats, and ParseDigits the short ones of these without a sign.
func TestParseModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.OneOf(
			rapid.StringMatching(`[-+]?[0-9]{0,21}`),
			rapid.StringMatching(`-?922337203685477[0-9]{4}`),
			rapid.Map(rapid.Int64(), func(n int64) string { return strconv.FormatInt(n, 10) }),
		).Draw(t, "word")
		want, err := strconv.ParseInt(word, 10, 64)
		got, ok := ParseDecimal([]byte(word))
		if ok != (err == nil) || ok && got != want {
			t.Fatalf("ParseDecimal(%q) = %d, %v", word, got, ok)
		}
		got, ok = ParseInt([]byte(word))
		if canonical := err == nil && strconv.FormatInt(want, 10) == word; ok != canonical || ok && got != want {
			t.Fatalf("ParseInt(%q) = %d, %v", word, got, ok)
		}
		digits, most := ParseDigits([]byte(word))
		if most != (ok && word[0] != '-' && len(word) <= 18) || most && digits != got {
			t.Fatalf("ParseDigits(%q) = %d, %v", word, digits, most)
		}
	})
}
