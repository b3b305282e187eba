//go:build linux

package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// Each part runs even if an earlier part failed, and the end says how each part ended.
func TestVerdicts(t *testing.T) {
	fake := filepath.Join(t.TempDir(), "make")
	const script = `#!/bin/sh
case $2 in
bad) printf '%s\n' 'ok  x' '    --- FAIL: TestOne/two (0.1s)' 'FAIL'; exit 1;;
unsure) echo 'NOT CHECKED: no network';;
esac
`
	require.NoError(t, os.WriteFile(fake, []byte(script), 0o700))
	verdicts := func(parts ...string) (string, error) {
		cmd := exec.Command("test/check.sh", parts...)
		cmd.Dir, cmd.Env = top, append(os.Environ(), "MAKE="+fake)
		out, err := cmd.CombinedOutput()
		_, end, _ := strings.Cut(string(out), "== make check")
		_, end, _ = strings.Cut(end, "\n")
		return regexp.MustCompile(` +\d+ s +\d+ CPU s `).ReplaceAllString(end, " N s "), err
	}
	end, err := verdicts("good", "bad", "unsure")
	assert.Error(t, err)
	assert.Equal(t, "good N s  ok\nbad N s  FAILED\n        --- FAIL: TestOne/two (0.1s)\n    FAIL\n"+
		"unsure N s  ok, but NOT CHECKED: see above\n", end)
	end, err = verdicts("good unsure", "better") // at the same time
	assert.NoError(t, err)
	assert.Equal(t, "good N s  ok\nunsure N s  ok, but NOT CHECKED: see above\nbetter N s  ok\n", end)
	_, err = verdicts("good bad", "better")
	assert.Error(t, err)
}

// Every part that make check names is a target, and the servers that it builds have the version
// that tests expect.
func TestCheckIsWhole(t *testing.T) {
	makefile := read(t, "Makefile")
	parts := regexp.MustCompile(`test/check\.sh ((?:[a-z0-9 '-]|\\\n\t+)+)\n`).FindStringSubmatch(makefile)
	require.NotNil(t, parts)
	for _, part := range regexp.MustCompile(`[a-z0-9-]+`).FindAllString(parts[1], -1) {
		assert.Contains(t, makefile, ".PHONY: "+part+"\n")
	}
	assert.Contains(t, makefile, "-X main.version="+peer.Version+"'")
}

// README.md's command that tests everything runs the same as CI.
func TestReadmeTestsAsCIDoes(t *testing.T) {
	commands := regexp.MustCompile(`(?m)^    (test/.*)$`).FindAllStringSubmatch(read(t, "README.md"), -1)
	require.Len(t, commands, 1)
	assert.Contains(t, read(t, ".ci/run"), "\nexec \"$(dirname \"$0\")/../"+commands[0][1]+"\" \"$@\"\n")
}
