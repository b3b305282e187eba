package limit

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Each kind is described, and its names and its letter are its own.
func TestKindsAreDescribed(t *testing.T) {
	names, letters := map[string]bool{}, map[byte]bool{}
	for k := range Kind(Kinds) {
		require.NotEmpty(t, k.String(), int(k))
		require.False(t, names[k.String()], k)
		names[k.String()] = true
		if k == None || k.IsValue() {
			require.Empty(t, k.Command(), k)
			require.Zero(t, k.Letter(), k)
			continue
		}
		require.NotEmpty(t, k.Command(), k)
		require.False(t, letters[k.Letter()], k)
		letters[k.Letter()] = true
		of, ok := OfLetter(k.Letter())
		require.True(t, ok, k)
		require.Equal(t, k, of)
	}
	for _, letter := range []byte{0, 'x', 'T'} {
		_, ok := OfLetter(letter)
		require.False(t, ok, letter)
	}
}

func TestShare(t *testing.T) {
	const large = 1<<63 - 1
	for _, c := range [][4]int64{{60, 1, 3, 20}, {60, 5, 3, 60}, {60, 0, 3, 0}, {60, -1, 3, 0}, {60, 1, 0, 0},
		{large, large, large, large}, {large, 1, 2, large / 2}} {
		require.Equal(t, c[3], Share(c[0], c[1], c[2]), c)
	}
}
