package resp

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// everyByte returns all bytes, in order.
func everyByte() (all []byte) {
	for c := range 256 {
		all = append(all, byte(c))
	}
	return all
}

func TestAppendQuoted(t *testing.T) {
	for text, quoted := range map[string]string{
		"": `""`, "a b": `"a b"`, "\n\r\t\b\a\"\\": `"\n\r\t\b\a\"\\"`, "\x00\x0f\x7f\xff": `"\x00\x0f\x7f\xff"`,
		"é": `"\xc3\xa9"`,
	} {
		assert.Equal(t, quoted, string(AppendQuoted(nil, []byte(text))))
	}
	quoted := AppendQuoted([]byte("GET "), everyByte())
	assert.NotContains(t, string(quoted), "\n")
	words, _, ok := splitLine(quoted, nil, nil)
	require.True(t, ok)
	assert.Equal(t, [][]byte{[]byte("GET"), everyByte()}, words)
}
