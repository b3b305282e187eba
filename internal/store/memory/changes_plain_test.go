//go:build !race

package memory

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// A key that is created and removed repeatedly is listed each time. The list is bounded. It takes 20
// times as long with the race detector, and nothing in it runs concurrently.
func TestChangesOfOneKeyAreBounded(t *testing.T) {
	t.Parallel()
	r := newTrackingRig(t, 0)
	s := &r.store.createDatabase(0).shards[r.store.hash([]byte("key")).shard]
	for range maxChanges / 2 {
		r.write("key", "v")
		_, err := r.view.Delete(context.Background(), [][]byte{[]byte("key")})
		require.NoError(t, err)
		if s.changes.bytes() > 2*maxChanges {
			break
		}
	}
	require.LessOrEqual(t, s.changes.bytes(), int64(2*maxChanges))
	require.ErrorIs(t, r.store.Pass(func([]byte) error { return nil }), ErrPassTooLarge)
	r.write("key", "after")
	r.pass(false)
	require.NotEmpty(t, r.chunks)
}
