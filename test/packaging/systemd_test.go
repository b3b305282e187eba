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
)

// underSystemd runs a script beside a systemd for users, in namespaces in which the script is process 1. Everything
// there except /run is read-only, so that systemd cannot change the machine; unit is in its folder of units.
const underSystemd = `set -e
mount --make-rprivate /
mount --bind / / && mount -o remount,bind,ro /
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system /run/user /run/config/systemd/user
chmod 700 /run/user
if touch /usr/written 2>/run/refused; then echo 'the machine can be written'; exit 1; fi
export XDG_RUNTIME_DIR=/run/user XDG_CONFIG_HOME=/run/config HOME=/run
printf '%s' "$UNIT" >/run/config/systemd/user/cellserver.service
printf '[Unit]\n' >/run/config/systemd/user/empty.target
/lib/systemd/systemd --user --unit=empty.target >/run/log 2>&1 &
systemd=$!
for second in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
	! systemctl --user is-active empty.target >/dev/null 2>&1 || break
	sleep 1
done
say() { echo "$@"; }
show() { systemctl --user show cellserver -P "$1"; }
cli() { "$BINARY" cli -s /run/cellserver.sock "$@"; }
`

// endOfSystemd ends systemd, and removes its control groups.
const endOfSystemd = `
kill -KILL $systemd
sleep 0.2
find /sys/fs/cgroup -depth -type d -path '*app.slice*' -exec rmdir {} + 2>/dev/null || true
`

// userUnit returns the unit without settings that a systemd for users does not support: users, folders
// and hardening.
func userUnit(t *testing.T, more string) string {
	t.Helper()
	var lines []string
	for line := range strings.Lines(read(t, unitFile)) {
		name, _, _ := strings.Cut(line, "=")
		switch name {
		case "[Unit]\n", "[Service]\n", "Type", "WatchdogSec", "ExecReload", "Restart", "RestartSec", "KillSignal",
			"TimeoutStopSec":
			lines = append(lines, line)
		case "ExecStart":
			lines = append(lines, "ExecStart="+binary(t)+" --port 0 --unixsocket /run/cellserver.sock --dir /run/state\n")
		}
	}
	return strings.Join(lines, "") + more
}

// A real systemd waits until the server is ready, restarts a server whose event loops take no turns, and is told
// when the server ends.
func TestSystemd(t *testing.T) {
	if _, err := os.Stat("/lib/systemd/systemd"); err != nil || os.Getuid() != 0 {
		t.Log("systemd is not installed, or the test is not run by root: TestSystemdIsTold has the protocol")
		return
	}
	cmd := exec.Command("timeout", "-k", "5", "120",
		"unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", underSystemd+`
say "--- started"
systemctl --user start cellserver
show Type; show ActiveState; show StatusText
cli PING
say "--- stopped process"
kill -STOP $(show MainPID)
for second in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
	[ "$(show NRestarts)" = 0 ] || [ "$(show ActiveState)" != active ] || break
	sleep 1
done
show NRestarts; cli PING
say "--- reloaded"
systemctl --user reload cellserver
show ActiveState
say "--- ended"
systemctl --user stop cellserver
show ActiveState; show Result
`+endOfSystemd)
	cmd.Env = append(os.Environ(), "UNIT="+userUnit(t, "WatchdogSec=2\n"), "BINARY="+binary(t))
	out, err := cmd.CombinedOutput()
	if regexp.MustCompile(`unshare: |Operation not permitted|permission denied`).Match(out) {
		t.Logf("this system makes no namespaces: %s", out)
		return
	}
	require.NoError(t, err, string(out))
	assert.Equal(t, strings.Join([]string{
		"--- started", "notify", "active", "ready to accept connections", "PONG",
		"--- stopped process", "1", "PONG",
		"--- reloaded", "active",
		"--- ended", "inactive", "success", "",
	}, "\n"), string(out))
	assert.NoFileExists(t, filepath.Join("/run", "cellserver.sock"))
}
