// Package shells tests the manual page, and the completions, with the programs that read them.
package shells

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

func TestMain(m *testing.M) { peer.Main(m) }

// printed returns what cellserver prints with these arguments.
func printed(t *testing.T, args ...string) string {
	t.Helper()
	out, err := peer.Command(args...).Output()
	require.NoError(t, err, args)
	return string(out)
}

// The manual page is formatted without a warning, and has every option.
func TestManualPage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cellserver.1")
	require.NoError(t, os.WriteFile(path, []byte(printed(t, "man")), 0o600))
	cmd := exec.Command("groff", "-man", "-Tascii", "-ww", "-rLL=200n", "-P-cbou", path)
	var warnings bytes.Buffer
	cmd.Stderr = &warnings
	page, err := cmd.Output()
	require.NoError(t, err, "this test formats the page with groff: install it")
	assert.Empty(t, warnings.String())
	text := string(page)
	for _, part := range []string{"cellserver - rate-limit server that speaks the Redis protocol", "cellserver check-store URL",
		"--maxmemory size", "bytes of memory beyond which calls that may need more are refused (OOM)", "SIGHUP"} {
		assert.Contains(t, text, part)
	}
	for line := range strings.Lines(printed(t, "--help")) {
		if name, found := strings.CutPrefix(line, "  --"); found {
			assert.Contains(t, text, "--"+strings.TrimSpace(name))
		}
	}
}

// completes runs a script of a shell, in which $COMPLETION is a file with the completion, and returns the
// lines that it prints.
func completes(t *testing.T, shell, script string, args ...string) []string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "_cellserver")
	require.NoError(t, os.WriteFile(path, []byte(printed(t, "completion", shell)), 0o600))
	cmd := exec.Command(shell, append(args, "-c", script)...)
	cmd.Env = append(os.Environ(), "COMPLETION="+path, "HOME="+dir, "XDG_CONFIG_HOME="+dir, "TERM=dumb")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s: %s", shell, out)
	return strings.Fields(string(out))
}

// Each shell completes options, the values of an option, and subcommands.
func TestCompletionInShells(t *testing.T) {
	bash := `source "$COMPLETION"
ask() { COMP_WORDS=(cellserver "$@"); COMP_CWORD=$#; _cellserver; echo "${COMPREPLY[@]}"; }
ask --maxm; ask --loglevel n; ask che; ask --port 1`
	assert.Equal(t, []string{"--maxmemory", "--maxmemory-clients", "--maxmemory-unauthenticated", "notice", "nothing",
		"check", "check-store"}, completes(t, "bash", bash, "--norc"))
	fish := `source $COMPLETION
for line in 'cellserver --maxm' 'cellserver --loglevel n' 'cellserver che'; complete -C $line | string split -f1 \t; end`
	assert.Equal(t, []string{"--maxmemory", "--maxmemory-clients", "--maxmemory-unauthenticated", "notice", "nothing",
		"check", "check-store"}, completes(t, "fish", fish, "--no-config"))
	zsh := `zmodload zsh/zpty; zpty z zsh -f -i
read_until() { local all part; repeat 200 { zpty -r z part && all+=$part; [[ $all == *$1* ]] && { print -r -- $all; return 0 } }; return 1 }
zpty -w z "PS1=; unsetopt zle_bracketed_paste; autoload -Uz compinit; compinit -D -u; source $COMPLETION; echo rea''dy"
read_until ready >/dev/null
zpty -w -n z $'cellserver --maxmemory-u\t'; read_until unauthenticated`
	assert.Contains(t, strings.Join(completes(t, "zsh", zsh, "-f"), " "), "--maxmemory-unauthenticated")
	for _, shell := range []string{"", "tcsh"} {
		refused := peer.Command("completion", shell)
		assert.Error(t, refused.Run())
	}
}
