//go:build redis8

package differential

import (
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/transcript"
	"cellserver/test/peer"
)

// What is marked as a later Redis's, such a one says. Few machines have one: make test-redis8
// builds this test where it can fetch one, and says so where it cannot.
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
