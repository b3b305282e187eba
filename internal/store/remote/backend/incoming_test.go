package backend

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// take passes bytes to an incoming, at most so many at a time.
func take(in *incoming, bytes string, most int) error {
	for len(bytes) > 0 {
		room := in.room()
		n := copy(room[:min(most, len(room))], bytes)
		if err := in.add(n); err != nil {
			return err
		}
		bytes = bytes[n:]
	}
	return nil
}

// Replies are the same, however they arrive.
func TestRepliesInPieces(t *testing.T) {
	long := strings.Repeat("v", 100_000)
	wire := "+OK\r\n$5\r\na\r\nb\r\r\n:-7\r\n$-1\r\n*-1\r\n*0\r\n$0\r\n\r\n+\r\n-ERR no\r\n" +
		"*3\r\n$1\r\nx\r\n*2\r\n:1\r\n-WRONGTYPE w\r\n$-1\r\n" +
		strings.Repeat("*1\r\n", maxDepth) + ":1\r\n" + bulk(long) + ":9\r\n"
	deepest := any(int64(1))
	for range maxDepth {
		deepest = []any{deepest}
	}
	want := []any{"OK", "a\r\nb\r", int64(-7), nil, nil, []any{}, "", "", replyError("ERR no"),
		[]any{"x", []any{int64(1), replyError("WRONGTYPE w")}, nil}, deepest, long, int64(9)}
	var in incoming
	for _, most := range []int{1, 2, 7, 1000, len(wire)} {
		in.reset()
		require.NoError(t, take(&in, wire, most))
		assert.Equal(t, in.length, in.next, "nothing is left")
		require.Len(t, in.at, len(want))
		for i := range want {
			first, rest, err := in.reply(i)
			if err == nil {
				assert.Equal(t, want[i], valueOf(first, &rest))
			} else {
				assert.Equal(t, want[i], err)
				assert.True(t, isReply(err))
			}
		}
	}
	assert.Greater(t, len(in.buffer), maxKeptRoom)
	in.reset()
	assert.Empty(t, in.buffer, "so much memory is not kept")
}

func TestIncompleteReplies(t *testing.T) {
	for _, wire := range []string{
		"+OK\r", "$3\r\nabc", "$3\r\nabc\r", "*2\r\n:1\r\n", "*2\r\n*0\r\n:1\r", "$3", "*1\r\n*1\r\n",
	} {
		var in incoming
		in.reset()
		assert.NoError(t, take(&in, wire, 1), wire)
		assert.Empty(t, in.at, wire)
	}
}

// A length that a server announces takes no memory before the bytes arrive.
func TestAnnouncedReplies(t *testing.T) {
	var in incoming
	in.reset()
	require.NoError(t, take(&in, "$1073741824\r\n", 1))
	assert.LessOrEqual(t, len(in.room()), 2*maxAhead)
	require.NoError(t, take(&in, strings.Repeat("v", 3*maxAhead), 1000))
	assert.LessOrEqual(t, len(in.buffer), 8*maxAhead)
}

func TestInvalidReplies(t *testing.T) {
	for _, wire := range []string{
		"\r\n", "OK\r\n", "$x\r\n", "$-2\r\n", "$1073741825\r\n", "*1073741825\r\n", "*\r\n", "%1\r\n",
		"*2\r\n:1\r\nx\r\n", "$1\r\nab\r\n", "+a\rb\r\n", "*2\r\n+a\rx$100000\r\n:1\r\n",
		strings.Repeat("*1\r\n", maxDepth) + "*1\r\n:1\r\n", strings.Repeat("*2\r\n:1\r\n", maxDepth+1),
	} {
		var in incoming
		in.reset()
		assert.ErrorIs(t, take(&in, wire+"+OK\r\n", 1), errReply, wire)
	}
}
