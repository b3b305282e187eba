package cli

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestJSON checks kinds that few replies have. For others, test/cli compares the output with that of redis-cli.
func TestJSON(t *testing.T) {
	for wire, want := range map[string]string{
		"*0\r\n":                              "[]",
		"%0\r\n":                              "{}",
		"~2\r\n#t\r\n#f\r\n":                  "[true,false]",
		"*3\r\n:-1\r\n_\r\n,1.5\r\n":          "[-1,null,1.5]",
		"(12345678901234567890123\r\n":        "12345678901234567890123",
		"%2\r\n:1\r\n+a\r\n*1\r\n:2\r\n_\r\n": `{"1":"a","[2]":null}`,
		"-ERR \"no\"\r\n":                     `error:"ERR \"no\""`,
		"$7\r\n\\\"\x01\n\t\b\xff\r\n":        "\"\\\\\\\"\\u0001\\n\\t\\b\xff\"",
		"=8\r\ntxt:a\r\nb\r\n":                `"a\r\nb"`,
	} {
		r, rest, err := parseReply([]byte(wire))
		require.NoError(t, err, "%q", wire)
		assert.Empty(t, rest)
		assert.Equal(t, want, string(appendJSON(nil, r)), "%q", wire)
	}
}
