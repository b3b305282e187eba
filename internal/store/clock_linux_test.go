package store

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBootID(t *testing.T) {
	require.NotZero(t, bootID())
	require.Equal(t, [16]byte{0x6c, 1: 0x3f, 6: 0x4e, 15: 0x11}, parseBootID("6c3f0000-0000-4e00-0000-000000000011\n"))
	for _, text := range []string{"", "6c3f", "6c3f0000-0000-4e00-0000-0000000000zz", "6c3f0000-0000-4e00-0000-00000000001122"} {
		require.Zero(t, parseBootID(text), text)
	}
}
