package logging

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestReopen checks that after Reopen, lines go to a new file of that name, or if it cannot be opened,
// to the file that is open.
func TestReopen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	f, err := OpenFile(path)
	require.NoError(t, err)
	write := func(line string) {
		_, err := f.Write([]byte(line))
		require.NoError(t, err)
	}
	write("a\n")
	require.NoError(t, os.Rename(path, path+".1"))
	write("b\n")
	require.NoError(t, f.Reopen())
	write("c\n")
	require.NoError(t, os.Rename(path, path+".2"))
	require.NoError(t, os.Mkdir(path, 0o700))
	require.Error(t, f.Reopen())
	write("d\n")
	for name, want := range map[string]string{path + ".1": "a\nb\n", path + ".2": "c\nd\n"} {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		assert.Equal(t, want, string(text))
	}
	_, err = OpenFile(filepath.Join(path, "nosuch", "log"))
	assert.Error(t, err)
}
