package remote_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/store"
	"cellserver/internal/store/remote"
)

// The clock is the backend's as soon as its offset is known, whatever that of the machine says.
func TestClockOfTheBackend(t *testing.T) {
	machine := store.NewStillClock(start)
	machine.SetOffset(time.Hour)
	known := false
	c := remote.NewClock(func() int64 { return 5 }, func() (int64, bool) { return start - 5, known }, machine)
	require.Equal(t, start+int64(time.Hour), c.Now())
	known = true
	require.Equal(t, start, c.Now())
	require.Zero(t, c.Offset())
}
