package main

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/store"
)

// TestClockChangeIsLogged checks that a change of the wall clock by more than a second is logged
// once, with its size and direction, and that a smaller change is not.
func TestClockChangeIsLogged(t *testing.T) {
	var out bytes.Buffer
	clock, look := store.NewStillClock(1e18), make(chan time.Time)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		watchClock(ctx, look, clock, slog.New(slog.NewTextHandler(&out, nil)))
	}()
	look <- time.Time{} // the first look, with which later looks are compared
	for _, offset := range []time.Duration{time.Second, 3 * time.Second, 3 * time.Second, time.Hour, 0,
		-999 * time.Millisecond} {
		clock.SetOffset(offset)
		look <- time.Time{} // received only when the look before is done
		look <- time.Time{}
	}
	stop()
	<-ended
	var steps []string
	for line := range strings.Lines(out.String()) {
		require.Contains(t, line, `level=WARN msg="the wall clock was set"`)
		_, by, _ := strings.Cut(strings.TrimSpace(line), "by=")
		steps = append(steps, by)
	}
	require.Equal(t, []string{"3s", "59m57s", "-1h0m0s"}, steps)
}
