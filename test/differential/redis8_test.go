//go:build redis8

package differential

import (
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/transcript"
	"cellserver/test/peer"
)

// A redis-server of version 8.4 or later replies as the transcripts that are marked with @redis8
// say. make test-redis8 fetches one where it can, builds this test, and says so where it cannot.
func TestConversationsWithRedis8(t *testing.T) {
	files := load(t, func(f *transcript.File) bool { return f.Redis8 })
	require.GreaterOrEqual(t, len(files), 4)
	for _, f := range files {
		t.Run(f.Base(), func(t *testing.T) {
			t.Parallel()
			server := peer.StartRedis8(t)
			for _, d := range f.PlayToRedis(stage(server)) {
				t.Error(d)
			}
		})
	}
}
