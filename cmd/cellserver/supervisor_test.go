package main

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/systemd"
)

// supervised returns a supervisor, and a function that returns its messages.
func supervised(t *testing.T) (*supervisor, func() string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	connection, err := systemd.Open(func(string) string { return path }, 1)
	require.NoError(t, err)
	return &supervisor{systemd: connection, ready: make(chan struct{})}, func() string {
		message := make([]byte, 256)
		n, err := conn.Read(message)
		require.NoError(t, err)
		return string(message[:n])
	}
}

// A start gets more time while keys are being loaded, and gets no more time when nothing has been loaded
// for a while.
func TestTimeIsExtendedWithProgress(t *testing.T) {
	s, next := supervised(t)
	ticks := make(chan time.Time)
	var loaded int64
	read := make(chan int64)
	progress := func() int64 { return <-read }
	s.loaded.Store(&progress)
	ended := make(chan struct{})
	go func() {
		s.extend(context.Background(), ticks, 2*extendEvery)
		close(ended)
	}()
	step := func() {
		read <- loaded
	}
	loaded = 3 << 20
	for range 10 { // progress all the time
		step()
		require.Equal(t, "EXTEND_TIMEOUT_USEC=30000000\nSTATUS=loading keys: "+string('0'+rune(loaded>>20%10))+" MiB so far", next())
		loaded = (loaded + 1<<20) % (10 << 20)
		ticks <- time.Time{}
	}
	step()
	require.NotEmpty(t, next())
	for range 2 { // no progress, but within patience
		ticks <- time.Time{}
		step()
		require.NotEmpty(t, next())
	}
	ticks <- time.Time{}
	step() // too long: nothing is sent
	ticks <- time.Time{}
	loaded = 100 << 20
	step()
	require.Equal(t, "EXTEND_TIMEOUT_USEC=30000000\nSTATUS=loading keys: 100 MiB so far", next())
	close(s.ready)
	<-ended
}

// A loop that takes no turn ends the beats.
func TestBeatsNeedTurns(t *testing.T) {
	s, next := supervised(t)
	ticks := make(chan time.Time)
	asked := make(chan error)
	ended := make(chan struct{})
	go func() {
		s.beat(context.Background(), ticks, func(context.Context) error { return <-asked })
		close(ended)
	}()
	for range 3 {
		asked <- nil
		require.Equal(t, "WATCHDOG=1", next())
		ticks <- time.Time{}
	}
	asked <- errors.New("stuck")
	<-ended
}
