package decide

import (
	"bytes"
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/command"
	"cellserver/internal/store"
)

// A call whose client was disconnected gets no decision, and says nothing about the store.
func TestDisconnectedClientIsNoFailureOfTheStore(t *testing.T) {
	var log bytes.Buffer
	f := &Fallback{Log: slog.New(slog.NewTextHandler(&log, nil))}
	f.SetPolicy("allow")
	ended, end := context.WithCancel(context.Background())
	end()
	for _, err := range []error{store.ErrDown, store.ErrUnavailable} {
		require.Equal(t, replyError, f.policyFor(&command.Call{Context: ended}, err))
	}
	require.Empty(t, log.String())
	require.False(t, f.failing.Load())
	require.Zero(t, f.answers[replyAllowed].Load())
}
