package persist

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Later passes use the memory of a large pass, which is given back if they are small.
func TestMemoryOfPasses(t *testing.T) {
	k := chunkBuffer{maxBytes: 100 * chunkBytes}
	pass := func(chunks int) {
		for range chunks {
			k.add(make([]byte, chunkBytes))
		}
		k.clear()
		require.Empty(t, k.chunks)
	}
	pass(40)
	require.Len(t, k.spare, 40)
	pass(1)
	require.Len(t, k.spare, 35)
	pass(35)
	require.Len(t, k.spare, 35)
	for range 30 {
		pass(0)
	}
	require.Empty(t, k.spare)
	k.add(make([]byte, 4*chunkBytes)) // an entry with a large value
	k.clear()
	require.Empty(t, k.spare)
	pass(1)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		k.add(nil)
		k.clear()
	}))
}
