package persist

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The name of a file is removed at once, and its space is freed in parts.
func TestSpaceOfAFileIsFreedInParts(t *testing.T) {
	folder := directory(t.TempDir())
	const size = 2*freedAtOnce + 1
	for name, bytes := range map[string]int{"large": size, "small": freedAtOnce} {
		require.NoError(t, os.WriteFile(folder.path(name), make([]byte, bytes), fileMode))
	}
	large, err := folder.open("large")
	require.NoError(t, err)
	defer large.Close()

	var sizes []int64
	var launched []func()
	r := &recorder{environment: newEnvironment(folder)}
	r.launch = func(f func()) { launched = append(launched, f) }
	r.sleep = func(time.Duration) {
		left, err := large.Size()
		require.NoError(t, err)
		sizes = append(sizes, left)
	}
	require.NoError(t, r.removeInParts("small"))
	require.Empty(t, launched)
	require.NoError(t, r.removeInParts("large"))
	names, err := folder.list()
	require.NoError(t, err)
	require.Empty(t, names)
	require.Len(t, launched, 1)
	launched[0]()
	require.Equal(t, []int64{freedAtOnce + 1, 1, 0}, sizes)
	require.NoError(t, r.removeInParts("missing"))
}
