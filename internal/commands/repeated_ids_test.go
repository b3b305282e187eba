package commands_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"cellserver/internal/commands/commandstest"
	"cellserver/internal/session/sessiontest"
)

// callsWithIDs are calls that end with an ID, or seem to: %k is a key, and %t a token.
var callsWithIDs = []string{
	"CL.THROTTLE %k 2 1 60 1 ID %t", "CL.THROTTLE %k 2 1 60 1 ID %t", "CL.THROTTLE %k 2 1 60 ID %t",
	"CL.THROTTLE %k 2 1 60 -1 MS ID %t", "CL.THROTTLE %k 2 1 60 2 UPTO ID %t", "CL.THROTTLE %k 2 1 60 4 FORCE ID %t",
	"CL.THROTTLE %k 2 1 60 1 PEEK ID %t", "CL.THROTTLE %k 2 1 60 0 ID %t", "CL.THROTTLE %k 2 1 60 1 ID ID %t",
	"CL.THROTTLE %k 2 1 60 1 ID ID MS", "CL.THROTTLE %k 2 1 60 1 HOLD ID %t", "CL.THROTTLE %k 2 1 60 1 LEAVE 1 ID %t",
	"CL.FIXED %k 3 60 1 ID %t", "CL.SLIDINGLOG %k 3 60 1 ID %t", "CL.QUOTA %k 3 DAY 1 ID %t",
	"CL.ACQUIRE %k 3 30 ID %t", "CL.ACQUIRE %k 3 30 holder 1 ID %t", "CL.TAKE %k login 1 ID %t", "CL.TAKE %k ID %t",
	"CL.ALL 1 FIXED %k 3 60 1 ID %t", "CL.THROTTLE %k 2 1 60 1", "SET %k ID %t", "DEL %k",
}

var someTokens = []string{
	"1", "2", "3", "MS", "UPTO", "ID", "4711", "0123456789abcdef01234567", strings.Repeat("t", 65), "",
}

// Two shortcuts have no visible effect. A call of a pipeline that differs from the previous call only in its key and
// its ID is neither read nor bound again, and calls whose only option is ID take a short way to the store.
func TestRepeatedIDs(t *testing.T) {
	c := commandstest.New(t).Connect()
	rapid.Check(t, func(t *rapid.T) {
		var calls [][]string
		for range rapid.IntRange(1, 8).Draw(t, "runs") {
			call := rapid.SampledFrom(callsWithIDs).Draw(t, "call")
			for range rapid.IntRange(1, 5).Draw(t, "calls") {
				words := strings.Fields(call)
				for i, word := range words {
					switch word {
					case "%k":
						words[i] = rapid.SampledFrom([]string{"a", "b", "key", "ID"}).Draw(t, "key")
					case "%t":
						words[i] = rapid.SampledFrom(someTokens).Draw(t, "token")
					}
				}
				calls = append(calls, words)
			}
		}
		pipelined := answersTo(c, calls, true, false)
		require.Equal(t, answersTo(c, calls, false, false), pipelined)
		require.Equal(t, answersTo(c, calls, false, true), pipelined)
	})
}

// answersTo makes calls, in one pipeline or one after the other. With slow, calls that end with an ID go the other
// way.
func answersTo(c *sessiontest.Client, calls [][]string, pipelined, slow bool) string {
	c.Session.Feed(commandstest.Encode([]string{"FLUSHALL"}))
	var input []byte
	for _, words := range calls {
		if slow {
			words = theOtherWay(words)
		}
		input = append(input, commandstest.Encode(words)...)
		if !pipelined {
			c.Session.Feed(input)
			input = nil
		}
	}
	c.Session.Feed(input)
	for c.Session.HasUnanswered() {
		c.Session.Resume()
	}
	return c.Output()
}

// theOtherWay changes a call that ends with an ID so that it does not take the short way, without changing the
// decision: it moves the ID, or adds a WAIT for no time.
func theOtherWay(words []string) []string {
	last := len(words) - 1
	if last < 4 || words[0] == "CL.ACQUIRE" || words[last-1] != "ID" {
		return words
	}
	before, id := words[:last-1:last-1], words[last-1:]
	switch mode := words[last-2]; mode {
	case "ID", "HOLD":
		return words
	case "PEEK", "FORCE":
		return append(append(before[:last-2:last-2], id...), mode)
	}
	return append(append(before, "WAIT", "0"), id...)
}

// A call with other options beside its ID takes the long way to the store, which knows them.
func TestOptionsBesideAnID(t *testing.T) {
	c := commandstest.New(t).Connect()
	require.Equal(t, integers(0, 3, 2, -1, 60), c.Do(t, "CL.THROTTLE k 2 1 60 1 ID a"))
	require.Equal(t, integers(1, 3, 2, 60, 60), c.Do(t, "CL.THROTTLE k 2 1 60 1 LEAVE 2 ID b"))
}
