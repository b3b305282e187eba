package commands_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/commands"
	"cellserver/internal/commands/commandstest"
	"cellserver/internal/racetest"
	"cellserver/internal/store"
	memstore "cellserver/internal/store/memory"
)

// When a shard is full, CL.ALL decides as its limiters do alone: existing keys are limited as
// usual, and oom-decision decides about other keys.
func TestLimitersAgreeInFullShards(t *testing.T) {
	racetest.HasOneGoroutine(t)
	s, err := commandstest.NewIn(
		t,
		memstore.Options{Clock: store.NewStillClock(commandstest.Start), SweepEvery: -1, MaxPages: 1},
		func(*commands.Settings) {},
	)
	require.NoError(t, err)
	c := s.Connect()
	says := func(want, call string) {
		t.Helper()
		require.NoError(t, c.Send([]byte(call+"\r\n")))
		got, err := c.Receive(0)
		require.NoError(t, err)
		require.Equal(t, want, got, call)
	}
	for i := range 256 * 128 * 2 {
		require.NoError(t, c.Send(fmt.Appendf(nil, "CL.THROTTLE key:%08d 3 1 60\r\n", i)))
		_, err := c.Receive(0)
		require.NoError(t, err)
	}
	const oom = "-OOM command not allowed when used memory > 'maxmemory'."
	for _, decision := range []string{"error", "limit"} {
		says("+OK", "CONFIG SET oom-decision "+decision)
		says("[0, 4, 3, -1, 60]", "CL.THROTTLE key:00000000 3 1 60 0")
		says("[0, -1, [0, 4, 2, -1, 120]]", "CL.ALL 1 THROTTLE key:00000000 3 1 60 1")
		says("[0, 4, 3, -1, 60]", "CL.THROTTLE key:00000000 3 1 60 -1")
		one, all := oom, oom
		if decision == "limit" {
			one, all = "[1, 5, 0, 1, 0]", "[1, 1, [0, 4, 3, -1, 60], [1, 5, 0, 1, 0]]"
		}
		says(one, "CL.FIXED new:00000000 5 60")
		says(all, "CL.ALL 2 THROTTLE key:00000000 3 1 60 1 FIXED new:00000000 5 60 1")
		says("0", "EXISTS new:00000000")
	}
}
