package memory

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/lease"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/window"
)

// A log, or leases, may expire after a pass with a delta, and before a snapshot reads its key. The
// baseline of the delta is then in no file. That is not a fault.
func TestChangesThatExpireBeforeASnapshot(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"log", "leases"} {
		for _, swept := range []bool{false, true} {
			t.Run(fmt.Sprint(kind, swept), func(t *testing.T) {
				t.Parallel()
				r := newTrackingRig(t, 0)
				r.write("other", "value")
				for range 90 {
					r.takeBriefly(kind)
				}
				r.pass(false) // is in a segment that the snapshot replaces
				r.takeBriefly(kind)
				r.pass(false)
				require.Less(t, len(r.chunks[0]), 300, "only changes are written")
				passes := r.chunks
				r.clock.Advance(61 * time.Second)
				shards := r.store.database(0).shards[:]
				for i := range shards {
					shards[i].advance(r.clock.Now())
				}
				for range slicesPerRound {
					if swept {
						r.store.Sweep()
					}
				}
				var snapshot [][]byte
				require.NoError(t, r.store.Snapshot(func(entries []byte) error {
					snapshot = append(snapshot, append([]byte(nil), entries...))
					return nil
				}))
				r.pass(false)
				loaded := r.load(slices.Concat(snapshot, passes, r.chunks))[0]
				require.Equal(t, content{"other": "value"}, loaded)
			})
		}
	}
}

// takeBriefly adds an entry to a log or to leases that expires after a minute.
func (r *trackingRig) takeBriefly(kind string) {
	ctx := context.Background()
	r.clock.Advance(time.Millisecond)
	r.view.Begin()
	if kind == "log" {
		rate, err := window.NewLogLimit(100, 60, 1000)
		require.NoError(r, err)
		rule := limit.Rule{Kind: limit.SlidingLog, Log: rate}
		_, err = r.view.Take(ctx, []byte("log:0"), &rule, 1, quota.Take)
		require.NoError(r, err)
		return
	}
	r.version++
	request, err := lease.NewRequest(1000, 60, fmt.Appendf(nil, "holder%d", r.version), 1)
	require.NoError(r, err)
	_, err = r.view.Acquire(ctx, []byte("leases:0"), request, 1000)
	require.NoError(r, err)
}
