package differential

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// recorded is a call and redis-cell's recorded reply.
type recorded struct {
	line  int
	words []string // after CL.THROTTLE
	reply string   // five integers, as transcript writes an array
}

// loadSample returns the recorded calls, grouped by key, in the order of the file.
func loadSample(text string) (byKey [][]recorded, err error) {
	place := map[string]int{}
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		call, reply, found := strings.Cut(line, " = ")
		words := strings.Fields(call)
		if !found || len(words) != 5 {
			return nil, fmt.Errorf("line %d: %q", number, line)
		}
		at, known := place[words[0]]
		if !known {
			at = len(byKey)
			place[words[0]] = at
			byKey = append(byKey, nil)
		}
		reply = "[" + strings.Join(strings.Fields(reply), ", ") + "]"
		byKey[at] = append(byKey[at], recorded{number, words, reply})
	}
	return byKey, nil
}

// replay makes the recorded calls again, and returns the differences. It sends the calls of a key
// in one write, so that the server answers them at nearly the same instant.
func replay(conn net.Conn, byKey [][]recorded) (differences []string, err error) {
	r := bufio.NewReader(conn)
	for _, calls := range byKey {
		var out []byte
		for _, c := range calls {
			out = append(out, command(append([]string{"CL.THROTTLE"}, c.words...)...)...)
		}
		if _, err := conn.Write(out); err != nil {
			return differences, err
		}
		got, err := replies(r, len(calls))
		if err != nil {
			return differences, err
		}
		for i, c := range calls {
			if got[i] != c.reply {
				differences = append(differences, fmt.Sprintf("line %d: %s: recorded %s, got %s", c.line, c.words, c.reply, got[i]))
			}
		}
	}
	return differences, nil
}

func TestRecordedReplies(t *testing.T) {
	text, err := os.ReadFile("testdata/throttle-sample.txt")
	require.NoError(t, err)
	byKey, err := loadSample(string(text))
	require.NoError(t, err)
	calls := 0
	for _, of := range byKey {
		calls += len(of)
	}
	require.Equal(t, 1052, calls)
	server := peer.Start(t)
	differences, err := replay(dial(t, server.Addr), byKey)
	require.NoError(t, err)
	assert.Empty(t, strings.Join(differences, "\n"))
}

// A recorded reply that is wrong by one in any of its five integers is found, and nothing else is
// reported.
func TestRecordedRepliesFindsAChangedOne(t *testing.T) {
	const sample = "a 15 30 60 1 = 0 16 15 -1 2\na 15 30 60 1 = 0 16 14 -1 4\nb 0 1 60 1 = 0 1 0 -1 60\n"
	server := peer.Start(t)
	conn := dial(t, server.Addr)
	for i, wrong := range []string{"1 16 14 -1 4", "0 17 14 -1 4", "0 16 15 -1 4", "0 16 14 0 4", "0 16 14 -1 5"} {
		byKey, err := loadSample(strings.Replace(sample, "0 16 14 -1 4", wrong, 1))
		require.NoError(t, err)
		for _, calls := range byKey {
			for _, c := range calls {
				c.words[0] += fmt.Sprint(i) // new keys for each run
			}
		}
		differences, err := replay(conn, byKey)
		require.NoError(t, err)
		require.Len(t, differences, 1, wrong)
		assert.Contains(t, differences[0], "line 2: ")
		assert.Contains(t, differences[0], "got [0, 16, 14, -1, 4]")
	}
}
