package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fakes are programs that write down how they were called. FAILS names the one that fails.
const fakes = `#!/bin/sh
name=$(basename "$0")
echo "$name $*" >>"$CALLS"
[ "$FAILS" != "$name" ] || exit 3
case "$name $*" in
*dest=dist/image*) for arch in amd64 arm64; do mkdir -p dist/image/linux_$arch && touch dist/image/linux_$arch/cellserver; done;;
*metadata-file*) echo '{"containerimage.digest": "sha256:abc123"}' >dist/image.metadata;;
syft*) for word; do :; done; echo "$MODULE" >"${word#spdx-json=}";;
*--bundle*) touch dist/SHA256SUMS.sigstore.json;;
esac
`

// script runs a script of packaging/ in a folder of its own, with these programs.
func script(t *testing.T, name, dir string, env []string, args ...string) (calls, out string, err error) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "packaging"), 0o700))
	path := filepath.Join(dir, "packaging", name)
	require.NoError(t, os.WriteFile(path, []byte(read(t, "packaging/"+name)), 0o700))
	tools := t.TempDir()
	for _, tool := range []string{"docker", "govulncheck", "syft", "cosign"} {
		require.NoError(t, os.WriteFile(filepath.Join(tools, tool), []byte(fakes), 0o700))
	}
	log := filepath.Join(tools, "calls")
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), append(env, "CALLS="+log, "TOOLS="+tools, "PATH="+tools+":"+os.Getenv("PATH"))...)
	b, err := cmd.CombinedOutput()
	said, _ := os.ReadFile(log)
	return string(said), string(b), err
}

// Images are built for both architectures. They are scanned and described before they are pushed, and are pushed
// only if this finds nothing.
func TestImagesOfARelease(t *testing.T) {
	module := "MODULE=\"github.com/spf13/pflag\""
	dir := t.TempDir()
	calls, out, err := script(t, "images.sh", dir, []string{module}, "1.2.3", "ghcr.io/owner/cellserver")
	require.NoError(t, err, out)
	push := strings.Index(calls, "--push --tag ghcr.io/owner/cellserver:1.2.3")
	require.Positive(t, push)
	for _, arch := range []string{"amd64", "arm64"} {
		assert.Contains(t, calls[:push], "govulncheck -mode=binary dist/image/linux_"+arch+"/cellserver\n")
		assert.Contains(t, calls[:push], "dist/cellserver-image-1.2.3-linux-"+arch+".sbom.json\n")
	}
	assert.Contains(t, calls, "--platform linux/amd64,linux/arm64 --build-arg VERSION=v1.2.3")
	digest, err := os.ReadFile(filepath.Join(dir, "dist/image.digest"))
	require.NoError(t, err)
	assert.Equal(t, "ghcr.io/owner/cellserver@sha256:abc123\n", string(digest))

	calls, out, err = script(t, "images.sh", t.TempDir(), []string{module}, "1.2.3")
	require.NoError(t, err, out)
	assert.NotContains(t, calls, "--push", "no repository is named")
	for _, env := range [][]string{{module, "FAILS=govulncheck"}, {module, "FAILS=syft"}, {"MODULE=empty"}} {
		calls, _, err = script(t, "images.sh", t.TempDir(), env, "1.2.3", "ghcr.io/owner/cellserver")
		require.Error(t, err, env)
		assert.NotContains(t, calls, "--push", env)
	}
}

// Checksums are signed only if they match the files.
func TestSignaturesOfARelease(t *testing.T) {
	dir := t.TempDir()
	_, _, err := script(t, "sign.sh", dir, nil)
	require.Error(t, err, "there are no checksums")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "dist"), 0o700))
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "dist", name), []byte(text), 0o600))
	}
	write("a", "")
	write("SHA256SUMS", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  a\n")
	calls, out, err := script(t, "sign.sh", dir, nil)
	require.NoError(t, err, out)
	assert.Equal(t, "cosign sign-blob --yes --bundle dist/SHA256SUMS.sigstore.json dist/SHA256SUMS\n", calls)
	write("image.digest", "ghcr.io/owner/cellserver@sha256:abc123\n")
	calls, _, err = script(t, "sign.sh", dir, nil)
	require.NoError(t, err)
	assert.Contains(t, calls, "cosign sign --yes ghcr.io/owner/cellserver@sha256:abc123\n")
	write("a", "changed")
	calls, _, err = script(t, "sign.sh", dir, nil)
	require.Error(t, err)
	assert.Empty(t, calls, "nothing is signed")
}

// The steps of a release that need the repository's address do not run before there is one. The workflow marks them
// so.
func TestWhatIsNotYetRunIsMarked(t *testing.T) {
	workflow := read(t, ".github/workflows/release.yml")
	before, after, found := strings.Cut(workflow, "# From here on: not yet run.\n")
	require.True(t, found)
	assert.NotContains(t, before[strings.Index(before, "jobs:"):], "PUBLISH")
	steps := strings.Split(after, "      - ")[1:]
	require.Len(t, steps, 4)
	for _, step := range steps {
		assert.Contains(t, step, "if: vars.PUBLISH == 'yes'\n")
	}
	_, version, _ := strings.Cut(govulncheck(t), "@")
	assert.Contains(t, read(t, "packaging/tools.sh"), "/govulncheck "+version)
}

// govulncheck returns the scanner of the Makefile.
func govulncheck(t *testing.T) string {
	for line := range strings.Lines(read(t, "Makefile")) {
		if tool, found := strings.CutPrefix(line, "GOVULNCHECK := "); found {
			return strings.TrimSpace(tool)
		}
	}
	require.Fail(t, "the Makefile names no govulncheck")
	return ""
}
