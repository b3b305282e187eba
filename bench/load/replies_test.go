package load

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The count does not depend on the pieces in which a stream arrives.
func TestRepliesInPieces(t *testing.T) {
	stream := ":1\r\n+OK\r\n$5\r\na\r\nbc\r\n$-1\r\n$0\r\n\r\n*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n" +
		"*2\r\n*2\r\n:1\r\n$1\r\nx\r\n*0\r\n*-1\r\n*0\r\n:7\r\n"
	const want = 10
	for size := 1; size <= len(stream); size++ {
		var r replies
		got := 0
		for rest := stream; rest != ""; {
			n := min(size, len(rest))
			complete, err := r.count([]byte(rest[:n]))
			require.NoError(t, err)
			got += complete
			rest = rest[n:]
		}
		assert.Equal(t, want, got, "in pieces of %d", size)
	}
}

func TestInvalidReplies(t *testing.T) {
	for stream, want := range map[string]string{
		"-ERR no\r\n":        "the server refused: ERR no",
		"*2\r\n:1\r\n-ERR\n": "the server refused: ERR",
		"HTTP/1.1 400\r\n":   `not a RESP2 reply: "HTTP/1.1 400"`,
		"$x\r\n":             `not a length: "$x"`,
		"\r\n":               "an empty line where a reply should begin",
	} {
		var r replies
		_, err := r.count([]byte(stream))
		assert.EqualError(t, err, want, stream)
	}
}

func TestCalls(t *testing.T) {
	call := NewCall("CL.THROTTLE {key} 15 30 60 1", From(9))
	assert.Equal(t, "*6\r\n$11\r\nCL.THROTTLE\r\n$17\r\nuser:000000000009\r\n$2\r\n15\r\n$2\r\n30\r\n$2\r\n60\r\n$1\r\n1\r\n"+
		"*6\r\n$11\r\nCL.THROTTLE\r\n$17\r\nuser:000000000010\r\n$2\r\n15\r\n$2\r\n30\r\n$2\r\n60\r\n$1\r\n1\r\n",
		string(call(call(nil))))
	assert.Equal(t, "*1\r\n$4\r\nPING\r\n", string(NewCall("PING", From(0))(nil)))
}

func TestMixedSizes(t *testing.T) {
	call := NewMixedCall("INCR {key}", From(0), 8, 200)
	sizes := map[int]bool{}
	keys := map[string]bool{}
	for range 193 * 2 {
		lines := strings.Split(string(call(nil)), "\r\n")
		key := lines[len(lines)-2]
		sizes[len(key)] = true
		keys[key] = true
	}
	assert.Len(t, sizes, 193)
	assert.True(t, sizes[8] && sizes[200])
	assert.Len(t, keys, 193*2, "two calls have the same key")
}

func TestAmong(t *testing.T) {
	a, b := Among(3), Among(3)
	for range 100 {
		n := a()
		assert.Equal(t, n, b(), "the order must be the same for every server")
		assert.True(t, n >= 0 && n < 3)
	}
}
