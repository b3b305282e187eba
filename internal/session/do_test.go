package session_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/client"
	"cellserver/internal/policy"
	"cellserver/internal/resp"
	"cellserver/internal/session"
	"cellserver/internal/session/sessiontest"
)

// newCaller returns a caller, which is closed at the end of the test.
func newCaller(t *testing.T, s *sessiontest.Server) *session.Caller {
	c := s.Instance.OpenCaller(client.Peer{Remote: "127.0.0.1:1", Local: "127.0.0.1:2", FD: -1})
	t.Cleanup(c.Close)
	return c
}

// do makes calls, each with its words in one line, and returns the first byte and the text of each reply.
func do(c *session.Caller, onWait func(), lines ...string) (replies []string, err error) {
	var calls session.Calls
	for _, line := range lines {
		calls.Add(strings.Fields(line)...)
	}
	read, err := c.Do(context.Background(), &calls, onWait)
	for read.Len() > 0 {
		token := read.Next()
		replies = append(replies, string(token.Kind)+string(token.Text))
	}
	return replies, err
}

// Calls are made in order, also calls that are made outside the event loop. More calls than a window holds
// are made in several turns.
func TestDo(t *testing.T) {
	c := newCaller(t, newServer(t))
	var lines, want []string
	for i := range 2000 {
		lines, want = append(lines, fmt.Sprintf("INCRBY k%d %d", i, i)), append(want, fmt.Sprintf(":%d", i))
	}
	parked := 0
	many := strings.Repeat(" k1", resp.LongCall)
	replies, err := do(c, func() { parked++ }, append(lines, "EXISTS"+many, "CL.THROTTLE"+many, "NOSUCH", "DBSIZE")...)
	require.NoError(t, err)
	require.Equal(t, append(want, fmt.Sprintf(":%d", resp.LongCall), "-ERR syntax error",
		"-ERR unknown command 'NOSUCH', with args beginning with: ", ":2000"), replies)
	assert.Equal(t, 1, parked)
	assert.True(t, c.IsIdle())
}

// The limits of the protocol apply to Do too.
func TestDoIsBounded(t *testing.T) {
	for _, c := range []struct {
		line string
		want []string
	}{
		{"ECHO " + strings.Repeat("x", 1<<20), []string{"$" + strings.Repeat("x", 1<<20)}},
		{"ECHO " + strings.Repeat("x", 1<<20+1), []string{"-ERR Protocol error: invalid bulk length"}},
		{"DEL" + strings.Repeat(" "+strings.Repeat("x", 1<<20), 16), nil},
	} {
		caller := newCaller(t, newServer(t))
		replies, err := do(caller, nil, c.line, "PING")
		if len(c.want) > 0 && c.want[0][0] == '$' {
			c.want = append(c.want, "+PONG")
			require.NoError(t, err)
		} else {
			require.Equal(t, session.ErrEnded, err)
		}
		assert.Equal(t, c.want, replies)
	}
}

// A caller that cannot go on returns an error: its client is disconnected, its request has ended, or there is
// no memory for the replies.
func TestDoEnds(t *testing.T) {
	s := newServer(t)
	s.Connect().Do(t, "CL.FIXED k 1 3600")
	const wait = "CL.FIXED k 1 3600 1 WAIT 3600000"
	killed := newCaller(t, s)
	_, err := do(killed, func() { s.Connect().Do(t, fmt.Sprintf("CLIENT KILL ID %d", killed.ID)) }, wait)
	assert.Equal(t, session.ErrEnded, err)
	<-killed.Disconnected()

	ctx, cancel := context.WithCancel(t.Context())
	var calls session.Calls
	calls.Add(strings.Fields(wait)...)
	left := newCaller(t, s)
	_, err = left.Do(ctx, &calls, cancel)
	assert.Equal(t, context.Canceled, err)
	assert.False(t, left.IsIdle())

	full, errFull := newCaller(t, s), errors.New("full")
	full.Reserve = func(bytes int) error { return errFull }
	_, err = do(full, nil, "PING")
	assert.Equal(t, errFull, err)
}

// The outcome of a CL.TAKE is a value, whether it is decided in a turn, outside a turn, or after the call has
// waited. After a wait, the outcome belongs to the client that gets the reply, even if another client began to
// wait.
func TestOutcomes(t *testing.T) {
	s := newServer(t)
	take := func(c *session.Caller, onWait func(), line string) []policy.Outcome {
		outcomes := new(policy.Outcomes)
		c.Outcome = outcomes
		_, err := do(c, onWait, line)
		require.NoError(t, err)
		return c.Outcome.(*policy.Outcomes).All()
	}
	first := newCaller(t, s)
	got := take(first, nil, "CL.TAKE u login VERBOSE")
	require.Len(t, got, 1)
	assert.Equal(t, "login", got[0].Policy)
	assert.True(t, got[0].Allowed)
	got = take(first, nil, "CL.ALL 2 TAKE v login 1 TAKE w login 1 VERBOSE")
	assert.Len(t, got, 2)
	for take(first, nil, "CL.TAKE u login VERBOSE")[0].Allowed {
		continue
	}
	replaced, second := make(chan []string, 1), newCaller(t, s)
	go func() {
		replies, _ := do(first, nil, "CL.TAKE u login VERBOSE WAIT 3600000 ID x")
		replaced <- replies
	}()
	blocked := func() bool { return first.State() == client.Blocked }
	require.Eventually(t, blocked, time.Minute, time.Millisecond)
	got = take(second, func() {
		assert.Equal(t, []string{"-UNBLOCKED the call was repeated with the same ID"}, <-replaced)
		require.NoError(t, s.Advance(time.Hour))
	}, "CL.TAKE u login VERBOSE WAIT 3600000 ID x")
	require.Len(t, got, 1)
	assert.True(t, got[0].Allowed)
}
