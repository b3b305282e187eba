package session_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/command"
	"cellserver/internal/commands/commandstest"
	"cellserver/internal/racetest"
	"cellserver/internal/session"
)

// similarCalls returns random calls. Many differ from the previous call in only one word.
func similarCalls(random *rand.Rand, words []string) (calls [][]byte) {
	keys := []string{"a", "b", "c", "", strings.Repeat("k", 98), strings.Repeat("k", 300), strings.Repeat("k", 1<<16+1),
		"id", "5"}
	names := []string{"CL.THROTTLE", "cl.throttle", "GET", "DEL", "SELECT", "CLIENT", "KEYS", "SET", "TTL", "CL.INSPECT",
		"INCR", "WATCH", "MULTI", "SSUBSCRIBE", "CL.ALL", "CL.ALL", "CL.ALL"}
	for len(calls) < 200 {
		call, keysAt := []string{names[random.IntN(len(names))], keys[random.IntN(len(keys))]}, []int{1}
		if call[0] == "CL.ALL" {
			call, keysAt = similarAll(random)
		}
		if strings.EqualFold(call[0], "CL.THROTTLE") {
			call = append(call, "15", "30", "60")
		}
		for random.IntN(2) == 0 && len(call) < 9+len(keysAt) {
			call = append(call, words[random.IntN(len(words))])
		}
		for range 1 + random.IntN(12) {
			calls = append(calls, commandstest.Encode(call))
			if call[0] == "KEYS" && len(call) == 2 {
				call[1] = "none" // the order of several keys differs between stores
			}
			if at := random.IntN(4 * len(call)); at < len(call) && at > 0 {
				call[at] = words[random.IntN(len(words))]
			}
			for _, at := range keysAt {
				call[at] = keys[random.IntN(len(keys))]
			}
		}
	}
	return calls
}

// similarAll returns a call of CL.ALL of one or two limiters, and the indexes of its keys.
func similarAll(random *rand.Rand) (call []string, keysAt []int) {
	members := []string{"THROTTLE a 15 30 60 1", "FIXED b 100 60 1", "FIXED b 100 60 1 FORCE", "THROTTLE c 1 1 1h 1",
		"QUOTA d 100 DAY 1", "ACQUIRE e 5 60 me 1", "FIXED f wrong 60 1"}
	call = []string{"CL.ALL", fmt.Sprint(1 + random.IntN(2))}
	for range call[1][0] - '0' {
		keysAt = append(keysAt, len(call)+1)
		call = append(call, strings.Fields(members[random.IntN(len(members))])...)
	}
	for _, option := range []string{"PEEK", "MS"} {
		if random.IntN(4) == 0 {
			call = append(call, option)
		}
	}
	return call, keysAt
}

// A pipeline gets the replies that its calls get one by one, although calls that repeat the one
// before take a shorter path.
func TestPipelineRepliesEqualSingleCallReplies(t *testing.T) {
	racetest.HasOneGoroutine(t)
	words := commandstest.Vocabulary()
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 2))
		calls := similarCalls(random, words)
		single, pipelined := commandstest.New(t).Connect(), commandstest.New(t).Connect()
		var want strings.Builder
		var input []byte
		for _, call := range calls {
			require.NoError(t, single.Send(call))
			want.WriteString(single.Output())
			if input = append(input, call...); random.IntN(20) == 0 { // of long input, calls are read one by one
				require.NoError(t, pipelined.Send(input))
				input = nil
			}
		}
		require.NoError(t, pipelined.Send(input))
		got := pipelined.Output()
		same := 0
		for same < min(len(got), want.Len()) && got[same] == want.String()[same] {
			same++
		}
		require.True(t, got == want.String(), "seed %d: %.60q, not %.60q", seed, got[same:], want.String()[same:])
	}
}

// The checks that a call has passed are skipped for its repeats only until the end of the turn: a
// MONITOR that begins between two turns sees the calls of the second turn.
func TestRepeatsAreCheckedAgainEachTurn(t *testing.T) {
	s := commandstest.New(t)
	c, monitor := s.Connect(), s.Connect()
	two := commandstest.Encode(
		strings.Fields("EXISTS a b c d e f g"),
	) // it costs two units, so the turn ends within a window
	input := append(two, slices.Repeat(commandstest.Encode([]string{"INCR", "n"}), command.TurnCalls+session.Lookahead)...)
	c.Session.Feed(input)
	clear(input) // as a transport's next bytes do
	require.True(t, c.Session.More())
	require.Equal(t, "+OK\r\n", monitor.Do(t, "MONITOR"))
	c.Settle()
	require.True(t, strings.HasSuffix(c.Output(), fmt.Sprintf(":%d\r\n", command.TurnCalls+session.Lookahead)))
	monitor.Settle()
	require.Equal(t, 2+session.Lookahead, strings.Count(monitor.Output(), `"INCR" "n"`))
}

// The rights to the key of a repeat are checked.
func TestEachKeyOfRepeatsIsAuthorized(t *testing.T) {
	user := commandstest.New(t).ConnectAs(t, "+@all ~a*")
	require.Equal(t, ":1\r\n", user.Do(t, "INCR a")) // the first call of a row is timed
	require.NoError(
		t,
		user.Send(slices.Concat(commandstest.Encode([]string{"INCR", "a"}), commandstest.Encode([]string{"INCR", "b"}))),
	)
	require.Contains(t, user.Output(), "-NOPERM")
}
