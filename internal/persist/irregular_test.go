//go:build unix

package persist

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Pipes and symbolic links that another user has put into the folder are refused: they neither block
// the process nor make it write to another file.
func TestIrregularFilesAreRefused(t *testing.T) {
	for _, name := range []string{lockName, segmentName(1)} {
		dir, target := filepath.Join(t.TempDir(), "dir"), filepath.Join(t.TempDir(), "target")
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, unix.Mkfifo(filepath.Join(dir, name), 0o600))
		_, err := Open(t.Context(), dir, Options{})
		require.ErrorIs(t, err, errIrregular, name)

		require.NoError(t, os.Remove(filepath.Join(dir, name)))
		require.NoError(t, os.WriteFile(target, []byte("of another user"), 0o600))
		require.NoError(t, os.Symlink(target, filepath.Join(dir, name)))
		_, err = Open(t.Context(), dir, Options{})
		require.ErrorIs(t, err, unix.ELOOP, name)
		content, err := os.ReadFile(target)
		require.NoError(t, err)
		require.Equal(t, "of another user", string(content))
	}
}
