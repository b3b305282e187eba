//go:build linux

package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The archives of make release do not depend on where, when, and by which user they are packed.
func TestReleaseIsReproducible(t *testing.T) {
	first, second := release(t, "022"), release(t, "077")
	require.NotEmpty(t, first)
	require.Equal(t, first, second)
}

// release packs a copy of the project with a given umask, and returns SHA256SUMS.
func release(t *testing.T, umask string) string {
	t.Helper()
	dir := t.TempDir()
	everything := func(string) bool { return false }
	for _, name := range []string{"go.mod", "go.sum", "Makefile", "LICENSE", "README.md", "CHANGELOG.md", "cmd",
		"internal"} {
		require.NoError(t, copyTree(top, name, filepath.Join(dir, name), everything))
	}
	if umask == "077" {
		require.NoError(t, os.Chmod(filepath.Join(dir, "README.md"), 0o600))
	}
	cmd := exec.Command("sh", "-c", "umask "+umask+" && make release")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "MAKEFLAGS=", "GOFLAGS=-buildvcs=false", "SOURCE_DATE_EPOCH=1700000000")
	cmd.Args[2] += " VERSION=" + version + " PLATFORMS='linux/amd64 linux/arm64'"
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	const archive = "cellserver-" + version + "-linux-amd64"
	require.Contains(t, string(out), archive+".tar.gz: OK")

	listed, err := exec.Command("tar", "-tvzf", filepath.Join(dir, "dist", archive+".tar.gz")).CombinedOutput()
	require.NoError(t, err, "%s", listed)
	for _, name := range []string{"cellserver", "LICENSE", "README.md", "CHANGELOG.md"} {
		require.Contains(t, string(listed), archive+"/"+name+"\n")
	}
	for line := range strings.Lines(string(listed)) {
		require.Contains(t, line, " 0/0 ", "an owner")
	}
	sums, err := os.ReadFile(filepath.Join(dir, "dist", "SHA256SUMS"))
	require.NoError(t, err)
	return string(sums)
}
