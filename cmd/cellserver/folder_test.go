package main

import (
	"bytes"
	"log/slog"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// Only a folder that all users may write into is reported.
func TestWritableFolder(t *testing.T) {
	for mode, warns := range map[os.FileMode]bool{0o700: false, 0o755: false, 0o770: false, 0o757: true, 0o777: true} {
		dir := t.TempDir()
		require.NoError(t, os.Chmod(dir, mode))
		var out bytes.Buffer
		warnWritable(dir, slog.New(slog.NewTextHandler(&out, nil)))
		require.Equal(t, warns, bytes.Contains(out.Bytes(), []byte("use chmod o-w")), mode)
	}
}
