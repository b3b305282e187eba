package remote_test

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/quota"
	"cellserver/internal/standing"
	"cellserver/internal/store/remote"
	"cellserver/internal/window"
)

// A standing that an older version has written to the store, with only an estimate of refusals, goes on.
func TestStandingOfAnOlderVersion(t *testing.T) {
	r := newRig(t, remote.Options{})
	refusals, err := window.NewLimit(3, quota.Seconds(600))
	require.NoError(t, err)
	rule := standing.Rule{Refusals: refusals, For: int64(time.Minute), Factor: 1, Max: int64(time.Minute)}
	zero := strings.Repeat("\x00", 8)
	old := "\x00cl1b\x01" + zero + "\x00" + zero + "\x00\x00" + zero
	old = string(binary.BigEndian.AppendUint64([]byte(old), uint64(start))) + "\x00\x02"
	old = string(binary.AppendUvarint([]byte(old), uint64(1200*time.Second))) + zero
	r.set("key", old)
	var banned []bool
	for range 2 {
		require.NoError(t, r.view.EditStanding(ctx, []byte("key"), func(now int64, s standing.State) standing.State {
			next, ban := s.Refused(now, rule)
			banned = append(banned, ban)
			return next
		}))
		if len(banned) == 1 {
			require.Equal(t, "\x00cl1b\x02"+old[6:], r.get("key")[:len(old)], "an instant is added")
		}
	}
	require.Equal(t, []bool{false, true}, banned)
	require.Equal(t, byte(1), r.get("key")[5], "an older version can read the ban")
}
