package transcript

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseErrors(t *testing.T) {
	cases := []struct{ text, want string }{
		{"+OK", "talk.txt:1: a reply without a step: no client sends or receives before it"},
		{"> A\n@advance 1s\n+OK", "talk.txt:3: a reply without a step: no client sends or receives before it"},
		{"# a\n\nPING", "talk.txt:3: neither a step nor a reply: PING"},
		{"> A\n#comment", "talk.txt:2: neither a step nor a reply: #comment"},
		{"> A \"b", "talk.txt:1: unbalanced quotes"},
		{"> A 'b'c", "talk.txt:1: a closing quote must be followed by a blank"},
		{`raw "\q"`, "talk.txt:1: raw bytes are quoted as in Go: invalid syntax"},
		{"@advance soon", `talk.txt:1: time: invalid duration "soon"`},
		{"@later", "talk.txt:1: unknown directive @later"},
		{"> A\n@redis", "talk.txt:2: @redis applies to the whole file: put it before the first step"},
		{"> A\n~ (", "talk.txt:2: error parsing regexp: missing closing ): `^(?:()$`"},
		{"> A\n~ [1]", `talk.txt:2: a pattern for an array begins with \[ (an unescaped [ begins a character class)`},
		{"> A\n+OK\nredis: +NO", "talk.txt:3: a redis: line in a file that does not begin with @redis or @redis8"},
		{"> A\n@redis8", "talk.txt:2: @redis8 applies to the whole file: put it before the first step"},
		{"@memory", "talk.txt:1: @memory needs a reason"},
		{"> A\n@memory why", "talk.txt:2: @memory applies to the whole file: put it before the first step"},
		{"@redis\nredis: +NO", "talk.txt:2: a redis: line must directly follow a reply"},
		{"@redis\n> A\nredis: +NO", "talk.txt:3: a redis: line must directly follow a reply"},
		{"@redis\n> A\n+OK\n\nredis: +NO", "talk.txt:5: a redis: line must directly follow a reply"},
		{"@redis\n> A\n+OK\nredis: +NO\nredis: +NO", "talk.txt:5: a redis: line must directly follow a reply"},
		{"@redis\n> A\n+OK\nredis: what", "talk.txt:4: neither a step nor a reply: what"},
	}
	for _, c := range cases {
		_, err := Parse("talk.txt", []byte(c.text))
		assert.EqualError(t, err, c.want, c.text)
	}
}

func TestParseSteps(t *testing.T) {
	f := parse(t, "> GET 'a b'\r\nnil\n\n#\nB> PING  \n#t\nC raw \"\\x00\"\nD>\n")
	var clients []string
	var sent []string
	for _, s := range f.steps {
		clients = append(clients, s.client)
		sent = append(sent, string(s.send))
	}
	assert.Equal(t, []string{"A", "B", "C", "D"}, clients)
	assert.Equal(t, []string{"*2\r\n$3\r\nGET\r\n$3\r\na b\r\n", "*1\r\n$4\r\nPING\r\n", "\x00", ""}, sent)
	assert.Equal(t, "nil", f.steps[0].replies[0].ours.text)
	assert.Equal(t, "#t", f.steps[1].replies[0].ours.text)
}

func TestSplitWords(t *testing.T) {
	cases := []struct {
		line string
		want []string
	}{
		{"", nil},
		{"  a\t b ", []string{"a", "b"}},
		{`"" ''`, []string{"", ""}},
		{`"\x41\n\r\t\b\a\\\"\q" x`, []string{"A\n\r\t\b\a\\\"q", "x"}},
		{`"\xZZ\x4"`, []string{"xZZx4"}},
		{`'it\'s\n'`, []string{`it's\n`}},
		{`mid"dle of"`, []string{"middle of"}},
	}
	for _, c := range cases {
		got, err := splitWords(c.line)
		require.NoError(t, err, c.line)
		assert.Equal(t, c.want, got, c.line)
	}
	for _, line := range []string{`"`, `"a`, `'a`, `"a\"`, `"a"b`, `"a""b"`} {
		_, err := splitWords(line)
		assert.Error(t, err, line)
	}
}
