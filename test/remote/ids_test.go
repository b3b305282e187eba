package remote

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
	"cellserver/internal/window"
	"cellserver/test/peer"
	"cellserver/test/proxy"
)

// tokenMark is in the requests that set tokens, and in no other requests.
const tokenMark = "cl1id:"

// takeOne returns a call with a token that takes one of 1000.
func takeOne(t *testing.T, key, token string) *store.Once {
	rate, err := window.NewLimit(1000, quota.Seconds(86400))
	require.NoError(t, err)
	rule := limit.Rule{Kind: limit.Fixed, Window: rate}
	return &store.Once{
		Keys: [][]byte{[]byte(key)}, Token: store.Token{ID: []byte(token), TTL: time.Hour},
		Decide: func(v store.View) ([]quota.Decision, bool, error) {
			d, err := v.Take(context.Background(), []byte(key), &rule, 1, quota.Take)
			return []quota.Decision{d}, d.Taken > 0, err
		},
	}
}

// repeat makes a call until the store answers.
func repeat(t *testing.T, v store.View, o *store.Once) (remaining int64, repeated bool) {
	t.Helper()
	peer.Until(t, "a decision", func() bool {
		decisions, again, err := v.Once(t.Context(), o)
		if err == nil {
			remaining, repeated = decisions[0].Remaining, again
		}
		return err == nil
	})
	return remaining, repeated
}

// loseReplies makes calls through a proxy that cuts the connection before the server gets the change, or
// after it has made the change. It repeats each call through another process, with the token that tokenOf
// returns. It returns how many calls it has made, and how many the server has counted.
func loseReplies(t *testing.T, f fronted, key string, tokenOf func(token string) string) (calls, counted int64) {
	first, second := newStore(t, f.url, false).View(), newStore(t, f.url, false).View()
	for round := range 2 {
		for _, fault := range []proxy.Fault{proxy.LoseReply, proxy.TearReply, proxy.LoseRequest} {
			token, made := fmt.Sprint(round, " ", fault), fault != proxy.LoseRequest
			repeat(t, first, takeOne(t, key, token+" before")) // opens the connections
			repeat(t, second, takeOne(t, key, token+" before"))
			struck := f.proxy.Arm(fault, tokenMark, 0)
			_, _, err := first.Once(t.Context(), takeOne(t, key, token))
			require.ErrorIs(t, err, store.ErrUnavailable)
			<-struck
			remaining, repeated := repeat(t, second, takeOne(t, key, tokenOf(token)))
			again, _ := repeat(t, first, takeOne(t, key, tokenOf(token)))
			require.Equal(t, remaining, again)
			require.Equal(t, made && tokenOf(token) == token, repeated)
			calls += 2
			counted = 1000 - remaining
		}
	}
	return calls, counted
}

// A call whose reply is lost is repeated through another process, with the same token, and counts once.
func TestRepeatedCallsCountOnce(t *testing.T) {
	onEach(t, "cl:ids", func(t *testing.T, f fronted) {
		calls, counted := loseReplies(t, f, "ids", func(token string) string { return token })
		require.Equal(t, calls, counted)
	})
}

// A call that is repeated with another token counts twice.
func TestCallsThatCountTwiceAreFound(t *testing.T) {
	s, f := start(t), newFronts(t)
	calls, counted := loseReplies(t, fronted{"redis://" + f.before(s.Addr), s.Addr, f.of[s.Addr]}, "ids",
		func(token string) string { return token + "!" })
	require.Greater(t, counted, calls)
}
