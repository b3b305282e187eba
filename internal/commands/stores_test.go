package commands

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/store"
	memstore "cellserver/internal/store/memory"
)

// mute is a store that carries out the steps of a transaction, and then does not answer.
type mute struct {
	store.Store
	answers *bool
}

func (s mute) View() store.View { return muteView{s.Store.View(), s.answers} }

type muteView struct {
	store.View
	answers *bool
}

func (v muteView) Atomically(ctx context.Context, places []store.Place, all bool, steps func() error) error {
	err := v.View.Atomically(ctx, places, all, steps)
	if !*v.answers {
		err = store.ErrUnavailable
	}
	return err
}

// A client gets one error in place of what a step of several keys had written, and its conversation goes on.
func TestAStoreThatDoesNotAnswer(t *testing.T) {
	answers := true
	s, err := newStillOver(t, mute{memstore.New(memstore.Options{SweepEvery: -1}), &answers}, func(*Settings) {})
	require.NoError(t, err)
	c := s.dial()
	const unavailable = "-UNAVAILABLE the store does not answer; whether the command was carried out is not known\r\n"
	c.say(t, "MSET a 1 b 2")
	for _, call := range []string{"MSET a 3 c 4", "MSETNX d 1 e 2", "MGET a b", "RENAME a f", "SWAPDB 0 1"} {
		answers = false
		require.Equal(t, unavailable, c.say(t, call), call)
		answers = true
		require.Equal(t, "+PONG\r\n", c.say(t, "PING"))
	}
	for _, slow := range []string{"", "KEYS *"} { // on the loop, and beside it
		c.say(t, "WATCH w")
		c.say(t, "MULTI")
		for _, call := range []string{"INCR n", "PUBLISH ch m", slow} {
			if call != "" {
				require.Equal(t, "+QUEUED\r\n", c.say(t, call))
			}
		}
		answers = false
		require.Equal(t, unavailable, c.say(t, "EXEC"))
		answers = true
		require.Equal(t, "-ERR EXEC without MULTI\r\n", c.say(t, "EXEC"))
		require.Nil(t, c.session.watching)
	}
}
