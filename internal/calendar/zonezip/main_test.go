package main

import (
	"archive/zip"
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// From the content of the archive in the repository, this program writes the same archive again, byte for
// byte.
func TestArchiveIsReproducible(t *testing.T) {
	embedded, err := os.ReadFile("../zoneinfo.zip")
	require.NoError(t, err)
	archive, err := zip.NewReader(bytes.NewReader(embedded), int64(len(embedded)))
	require.NoError(t, err)
	wheel := map[string][]byte{"tzdata/__init__.py": []byte("#"), "tzdata/zoneinfo/zone.tab": []byte("# tzdb")}
	for _, file := range archive.File {
		text, err := read(file)
		require.NoError(t, err)
		if file.Name == "+VERSION" {
			file.Name, text = "tzdata.zi", append(append([]byte("# version "), text...), "\n# redo posix_only\n"...)
		}
		wheel["tzdata/zoneinfo/"+file.Name] = text
	}
	packed, err := pack(wheel)
	require.NoError(t, err)
	from, to := filepath.Join(t.TempDir(), "wheel"), filepath.Join(t.TempDir(), "zip")
	require.NoError(t, os.WriteFile(from, packed, 0o600))
	require.NoError(t, run(from, to))
	written, err := os.ReadFile(to)
	require.NoError(t, err)
	require.True(t, bytes.Equal(embedded, written))
}

func TestOtherArchivesAreRefused(t *testing.T) {
	folder := t.TempDir()
	packed, err := pack(map[string][]byte{"tzdata/zoneinfo/UTC": []byte("TZif2")})
	require.NoError(t, err)
	for name, text := range map[string][]byte{"empty": nil, "other": packed} {
		path := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(path, text, 0o600))
		require.Error(t, run(path, filepath.Join(folder, "zip")), name)
	}
	require.NoFileExists(t, filepath.Join(folder, "zip"))
}
