// Package shells tests the manual page with groff, and the completions with the shells.
package shells

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
		"--maxmemory size", "bytes of memory beyond which calls that may need more are refused (OOM)", "SIGHUP",
		"OPTIONS OF CELLSERVER CLI", "--interval seconds",
		"OPTIONS OF CELLSERVER POLICIES REPLAY", "--instead-of path", "--limited-subjects part"} {
		assert.Contains(t, text, part)
	}
	for line := range strings.Lines(printed(t, "--help")) {
		if name, found := strings.CutPrefix(line, "  --"); found {
			assert.Contains(t, text, "--"+strings.TrimSpace(name))
		}
	}
}

// completes runs a shell's script, in which $COMPLETION is the file with the completion, and returns the
// lines that it prints.
func completes(t *testing.T, shell, script string, args ...string) []string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "_cellserver")
	require.NoError(t, os.WriteFile(path, []byte(printed(t, "completion", shell)), 0o600))
	for tries := 1; ; tries++ {
		out, ended, err := runShell(t, shell, append(args, "-c", script), "COMPLETION="+path, "HOME="+dir,
			"XDG_CONFIG_HOME="+dir, "TERM=dumb")
		if ended || tries == maxTries {
			require.NoError(t, err, "%s: %s", shell, out)
			return strings.Fields(out)
		}
	}
}

// A shell in a pseudo-terminal may miss what is typed while it starts, and then waits for ever. So a
// shell that has not ended in time is started again.
const (
	shellTimeout = 20 * time.Second
	maxTries     = 5
)

// runShell runs a shell. If it does not end in time, it is killed, and ended is false.
func runShell(t *testing.T, shell string, args []string, env ...string) (out string, ended bool, err error) {
	ctx, cancel := context.WithTimeout(t.Context(), shellTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, shell, args...)
	cmd.Env, cmd.WaitDelay = append(os.Environ(), env...), time.Second
	text, err := cmd.CombinedOutput()
	return string(text), ctx.Err() == nil, err
}

// Each shell completes options, the values of an option, and subcommands, in its own order.
func TestCompletionInShells(t *testing.T) {
	want := []string{"--maxmemory", "--maxmemory-clients", "--maxmemory-unauthenticated", "notice", "nothing", "check",
		"check-store"}
	bash := `source "$COMPLETION"
ask() { COMP_WORDS=(cellserver "$@"); COMP_CWORD=$#; _cellserver; echo "${COMPREPLY[@]}"; }
ask --maxm; ask --loglevel n; ask che; ask --port 1`
	assert.ElementsMatch(t, want, completes(t, "bash", bash, "--norc"))
	fish := `source $COMPLETION
for line in 'cellserver --maxm' 'cellserver --loglevel n' 'cellserver che'; complete -C $line | string split -f1 \t; end`
	assert.ElementsMatch(t, want, completes(t, "fish", fish, "--no-config"))
	zsh := strings.Replace(strings.Replace(inZsh, "TYPED", "--maxmemory-u", 1), "REST", "unauthenticated", 1)
	assert.Contains(t, strings.Join(completes(t, "zsh", zsh, "-f"), " "), "--maxmemory-unauthenticated")
	for _, shell := range []string{"", "tcsh"} {
		refused := peer.Command("completion", shell)
		assert.Error(t, refused.Run())
	}
}

// inZsh types a command line and a tab. Zsh completes only in a terminal. Zsh loses what is typed before its line
// editor has begun, which ESC [?2004h shows.
const inZsh = `zmodload zsh/zpty zsh/zselect; zpty z zsh -f -i
read_until() {
	local all part
	repeat 300 {
		if zpty -r -t z part; then
			all+=$part
			[[ $all == *$1*$2* ]] && { print -r -- $all; return 0 }
		else
			zselect -t 5
		fi
	}
	return 1
}
zpty -w z "PS1=; autoload -Uz compinit; compinit -D -u; source $COMPLETION; echo rea''dy"
read_until ready $'\e[?2004h' >/dev/null
zpty -w -n z $'cellserver TYPED\t'; read_until REST`

// After cli, each shell completes the options of cli, and not the server's options.
func TestCompletionOfCLI(t *testing.T) {
	want := []string{"--repeat", "--resp2", "--resp3", "--raw", "--json"}
	bash := `source "$COMPLETION"
ask() { COMP_WORDS=(cellserver cli "$@"); COMP_CWORD=$(($# + 1)); _cellserver; echo "${COMPREPLY[@]}"; }
ask --r; ask -p 1 --js; ask --maxm`
	assert.ElementsMatch(t, want, completes(t, "bash", bash, "--norc"))
	fish := `source $COMPLETION
for line in '--maxm' '--r' '--js'; complete -C "cellserver cli $line" | string split -f1 \t; end`
	assert.ElementsMatch(t, want, completes(t, "fish", fish, "--no-config"))
	zsh := strings.Replace(strings.Replace(inZsh, "TYPED", "cli --rep", 1), "REST", "eat", 1)
	assert.Contains(t, strings.Join(completes(t, "zsh", zsh, "-f"), " "), "eat")
}

// After policies replay, each shell completes the options of policies replay, and not the server's
// options.
func TestCompletionOfReplay(t *testing.T) {
	want := []string{"--instead-of", "give-up", "haproxy", "--limited-subjects"}
	bash := `source "$COMPLETION"
ask() { COMP_WORDS=(cellserver policies "$@"); COMP_CWORD=$(($# + 1)); _cellserver; echo "${COMPREPLY[@]}"; }
ask replay --in; ask replay p.yaml --clients g; ask replay --format h; ask suggest --limited-; ask replay --port`
	assert.ElementsMatch(t, want, completes(t, "bash", bash, "--norc"))
	fish := `source $COMPLETION
for line in 'replay --port' 'replay --in' 'replay p.yaml --clients g' 'replay --format h' 'suggest --limited-'
	complete -C "cellserver policies $line" | string split -f1 \t
end`
	assert.ElementsMatch(t, want, completes(t, "fish", fish, "--no-config"))
	for typed, rest := range map[string]string{"replay --instead": "instead-of", "replay p.yaml --clients g": "give-up",
		"suggest --limited-s": "subjects"} {
		zsh := strings.Replace(strings.Replace(inZsh, "TYPED", "policies "+typed, 1), "REST", rest, 1)
		assert.Contains(t, strings.Join(completes(t, "zsh", zsh, "-f"), " "), rest, typed)
	}
}
