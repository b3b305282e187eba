package snippets

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

const start = "docs/start.md"

// step is a command of a session in a document, and what it should print.
type step struct{ command, want string }

// session returns the steps of all blocks of a document that show a session in a shell.
func session(t *testing.T, document string) (steps []step) {
	for _, b := range blocks(t, document) {
		if b.language != "session" {
			continue
		}
		for line := range strings.Lines(b.text) {
			if command, found := strings.CutPrefix(line, "$ "); found {
				steps = append(steps, step{command: strings.TrimSpace(command)})
			} else {
				steps[len(steps)-1].want += line
			}
		}
	}
	return steps
}

// The commands of docs/start.md, in one shell in an empty folder, print what the page shows.
func TestFirstFiveMinutes(t *testing.T) {
	steps := session(t, start)
	require.Greater(t, len(steps), 15)
	printed := runSession(t, steps)
	require.Len(t, printed, len(steps))
	for i, s := range steps {
		assert.True(t, shows(s.want, printed[i]), "$ %s\nshould print\n%s\nand printed\n%s", s.command, s.want, printed[i])
	}
}

// preamble makes the program print as on a terminal.
const preamble = `cellserver() {
	if [ "$1" = cli ]; then shift; command cellserver cli --no-raw "$@"; else command cellserver "$@"; fi
}
`

// metricsPort is the port of the page in docs/start.md.
const metricsPort = "9121"

// runSession runs the commands in one shell, and returns what each has printed. The server and the client use
// free ports, because the usual ones may be taken.
func runSession(t *testing.T, steps []step) []string {
	const mark = "=== the next command"
	dir := t.TempDir()
	require.NoError(t, os.Symlink(peer.Command().Path, filepath.Join(dir, "cellserver")))
	script := preamble
	for _, s := range steps {
		script += fmt.Sprintf("%s\necho '%s'\n", s.command, mark)
	}
	script = strings.ReplaceAll(script, metricsPort, strconv.Itoa(peer.FreePort(t)))
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "CELLSERVER_PORT="+strconv.Itoa(peer.FreePort(t)),
		"GORACE=atexit_sleep_ms=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // with the server
	cmd.WaitDelay = time.Second
	tooLate := time.AfterFunc(patience, func() { _ = cmd.Cancel() })
	defer tooLate.Stop()
	out, err := cmd.Output()
	require.NoError(t, err, string(out))
	parts := strings.Split(string(out), mark+"\n")
	return parts[:len(parts)-1]
}

var longTime = regexp.MustCompile(`\b\d{3,}\b`)

// shows reports whether a text is as the page shows it. On the page, a line of dots stands for any lines,
// and dots in a line stand for any text. Long times in seconds may be up to a minute shorter.
func shows(want, got string) bool {
	pattern := regexp.QuoteMeta(want)
	pattern = strings.ReplaceAll(pattern, `\.\.\.`+"\n", `(?:.*\n)*?`)
	pattern = strings.ReplaceAll(pattern, `\.\.\.`, ".*")
	pattern = longTime.ReplaceAllString(pattern, `(\d+)`)
	found := regexp.MustCompile("^" + pattern + "$").FindStringSubmatch(got)
	if found == nil {
		return false
	}
	for i, shown := range longTime.FindAllString(want, -1) {
		expected, _ := strconv.Atoi(shown)
		actual, err := strconv.Atoi(found[i+1])
		if err != nil || actual > expected || actual < expected-60 {
			return false
		}
	}
	return true
}

func TestShows(t *testing.T) {
	for _, c := range []struct {
		want, got string
		shown     bool
	}{
		{"ready\n", "ready\n", true},
		{"ready\n", "not ready\n", false},
		{"", "more\n", false},
		{"a\n...\nb\n", "a\n1\n2\nb\n", true},
		{"a ... b\n", "a 1 b\n", true},
		{"a ... b\n", "a\nb\n", false},
		{"5) (integer) 1200\n", "5) (integer) 1190\n", true},
		{"5) (integer) 1200\n", "5) (integer) 1201\n", false},
		{"5) (integer) 1200\n", "5) (integer) 1100\n", false},
		{"3) (integer) 2\n", "3) (integer) 1\n", false},
	} {
		assert.Equal(t, c.shown, shows(c.want, c.got), "%q %q", c.want, c.got)
	}
}
