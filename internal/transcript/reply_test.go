package transcript

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReplies(t *testing.T) {
	cases := []struct{ bytes, want string }{
		{"+OK\r\n", `+OK`},
		{"+\r\n", `+""`},
		{"-ERR no, not: that\r\n", `-ERR no, not: that`},
		{"-ERR begins with: \r\n", `-"ERR begins with: "`},
		{"-1\r\n", `-"1"`},
		{":-1\r\n", `-1`},
		{"+\"a\"\r\n", `+"\"a\""`},
		{"$8\r\na\r\n\t\x00\"\\\xff\r\n", `"a\r\n\t\x00\"\\\xff"`},
		{"$-1\r\n", `nil`},
		{"*-1\r\n", `nil-array`},
		{"_\r\n", `_`},
		{"*0\r\n", `[]`},
		{"*3\r\n:1\r\n+a, +b\r\n*1\r\n+QUEUED\r\n", `[1, +"a, +b", [+QUEUED]]`},
		{"%2\r\n+a\r\n:1\r\n$1\r\nb\r\n#t\r\n", `{+a: 1, "b": #t}`},
		{"~1\r\n#f\r\n", `set[#f]`},
		{">2\r\n+a\r\n+b\r\n", `push[+a, +b]`},
		{",3.14\r\n", `,3.14`},
		{",-inf\r\n", `,-inf`},
		{"(-3492890328409238509324850943850943825024385\r\n", `(-3492890328409238509324850943850943825024385`},
		{"=8\r\ntxt:a\nb!\r\n", `=txt:"a\nb!"`},
		{"!3\r\nERR\r\n", `!"ERR"`},
		{"|1\r\n+ttl\r\n:3\r\n*1\r\n:5\r\n", `|{+ttl: 3} [5]`},
	}
	for _, c := range cases {
		line, rest, err := NextReply([]byte(c.bytes + "rest"))
		require.NoError(t, err, c.bytes)
		assert.Equal(t, c.want, line)
		assert.Equal(t, "rest", string(rest))
		assert.Regexp(t, replyLine, line, "Parse does not accept the line as a reply")
	}
}

func TestBadReplies(t *testing.T) {
	for _, text := range []string{
		"\r\n", "?1\r\n", "+OK\n", ":\r\n", ":+5\r\n", ":05\r\n", ":-0\r\n", ":9223372036854775808\r\n",
		"$01\r\na\r\n", "$-2\r\n", "$1\r\nabc", "$99999999999\r\n", "*-2\r\n", "*x\r\n", "*99999999999\r\n", "%-1\r\n",
		",x\r\n", "(\r\n", "(1x\r\n", "#x\r\n", "_x\r\n", "=3\r\ntxt\r\n", "=4\r\ntxt-\r\n", "!-1\r\n",
		"+" + strings.Repeat("a", maxLine) + "\r\n", strings.Repeat("*1\r\n", maxDepth+1) + ":1\r\n",
	} {
		_, _, err := NextReply([]byte(text))
		require.Error(t, err, text)
		assert.NotErrorIs(t, err, io.ErrUnexpectedEOF, text)
	}
}

func TestUnfinishedReplies(t *testing.T) {
	_, _, err := NextReply(nil)
	assert.Equal(t, io.EOF, err)
	whole := "*2\r\n$3\r\nabc\r\n%1\r\n+a\r\n:1\r\n"
	for i := 1; i < len(whole); i++ {
		_, rest, err := NextReply([]byte(whole[:i]))
		assert.Equal(t, io.ErrUnexpectedEOF, err, whole[:i])
		assert.Len(t, rest, i, "input was consumed")
	}
}

func TestReplyTooLong(t *testing.T) {
	// Each of the two is short enough. The second exceeds the limit of the reply with its announced
	// length, before it arrives.
	text := fmt.Sprintf("*2\r\n$3\r\nabc\r\n$%d\r\n", maxReply-10)
	_, err := ReadReply(bufio.NewReader(strings.NewReader(text)))
	assert.ErrorContains(t, err, "a reply of more than")
}

// TestLinesAreInjective checks that two different replies never have the same line. The replies are
// short and have few different bytes, so that similar ones are likely.
func TestLinesAreInjective(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	seen := map[string][]byte{}
	for range 100_000 {
		reply := randomReply(random, nil, 3)
		line, rest, err := NextReply(reply)
		require.NoError(t, err, "%q", reply)
		require.Empty(t, rest)
		if before, known := seen[line]; known && !bytes.Equal(before, reply) {
			t.Fatalf("%q and %q are both written %s", before, reply, line)
		}
		seen[line] = reply
	}
	assert.Greater(t, len(seen), 20_000)
}

func randomReply(random *rand.Rand, b []byte, depth int) []byte {
	text := func(alphabet string) string {
		var s []byte
		for range random.IntN(5) {
			s = append(s, alphabet[random.IntN(len(alphabet))])
		}
		return string(s)
	}
	const inLine = `"+-~,: []{}|1ab\` + "\x80\t"
	kinds := "+-:,(#_$!=N0"
	if depth > 0 {
		kinds += "*~>%|"
	}
	switch kind := kinds[random.IntN(len(kinds))]; kind {
	case '+', '-':
		return fmt.Appendf(b, "%c%s\r\n", kind, text(inLine))
	case ':', ',', '(':
		return fmt.Appendf(b, "%c%d\r\n", kind, random.IntN(5)-2)
	case '#':
		return fmt.Appendf(b, "#%c\r\n", "tf"[random.IntN(2)])
	case '_':
		return append(b, "_\r\n"...)
	case 'N':
		return append(b, "$-1\r\n"...)
	case '0':
		return append(b, "*-1\r\n"...)
	case '$', '!':
		s := text(inLine + "\r\n")
		return fmt.Appendf(b, "%c%d\r\n%s\r\n", kind, len(s), s)
	case '=':
		s := "txt:" + text(inLine+"\r\n")
		return fmt.Appendf(b, "=%d\r\n%s\r\n", len(s), s)
	default:
		n := random.IntN(3)
		b = fmt.Appendf(b, "%c%d\r\n", kind, n)
		if kind == '%' || kind == '|' {
			n *= 2
		}
		if kind == '|' {
			n++
		}
		for range n {
			b = randomReply(random, b, depth-1)
		}
		return b
	}
}
