package server

import (
	"context"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A beat needs a turn of every loop: it fails while a loop is stuck in a wait or in a call. It does not wait for
// a loop that has ended.
func TestBeatNeedsEveryLoop(t *testing.T) {
	s := newServer(t)
	require.NoError(t, s.Beat(context.Background()))

	release := make(chan struct{})
	stuck, ls := newLoop(t, s, func(int, []unix.EpollEvent, int) (int, error) {
		<-release
		return -1, unix.EPERM // the second time, the loop ends
	})
	go stuck.run()
	ctx, cancel := context.WithCancel(context.Background())
	failed := make(chan error)
	go func() { failed <- ls.beat(ctx) }()
	cancel()
	require.ErrorIs(t, <-failed, context.Canceled)

	go func() { failed <- ls.beat(context.Background()) }()
	close(release)
	require.NoError(t, <-failed)
	for !stuck.hasEnded() {
		runtime.Gosched()
	}
	require.NoError(t, ls.beat(context.Background()))
}
