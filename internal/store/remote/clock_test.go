package remote_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/store"
	"cellserver/internal/store/remote"
	"cellserver/internal/store/remote/combine"
)

// twoServers hold the keys a and b; the clock of a server has been read if its round trip is known.
type twoServers struct {
	offsets, trips [2]int64
	down           bool
}

func (s *twoServers) Primary(key string) combine.Primary {
	if s.down {
		return combine.NoPrimary
	}
	return combine.Primary(key[0] - 'a')
}

func (s *twoServers) Offset(p combine.Primary) int64    { return s.offsets[p] }
func (s *twoServers) RoundTrip(p combine.Primary) int64 { return s.trips[p] }

// Each key has the clock of its server, as soon as that clock is known. The clock of the process goes on
// with elapsed time, whatever the servers' clocks do.
func TestClocks(t *testing.T) {
	machine := store.NewStillClock(1000)
	servers := &twoServers{offsets: [2]int64{50, 70}}
	clocks := remote.NewClocks(machine, servers)
	require.Equal(t, 1000+machine.Offset(), clocks.Now(), "the machine's, in Unix time")
	for _, key := range []string{"a", "b"} {
		_, known := clocks.OfKey(key)
		require.False(t, known)
	}
	servers.trips = [2]int64{1, 1}
	began := clocks.Now()
	machine.SetOffset(time.Hour)
	machine.Advance(1)
	require.Equal(t, began+1, clocks.Now())
	require.Zero(t, clocks.Offset())
	now, known := clocks.OfKey("b")
	require.True(t, known)
	require.Equal(t, int64(1071), now)
	servers.down = true
	_, known = clocks.OfKey("b")
	require.False(t, known)
}
