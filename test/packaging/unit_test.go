//go:build linux

package packaging

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const unitFile = "deploy/cellserver.service"

// unit returns the unit's settings. If a setting is given several times, it returns the last, except
// that it returns all variables of the environment.
func unit(t *testing.T) map[string]string {
	t.Helper()
	settings := map[string]string{}
	for line := range strings.Lines(read(t, unitFile)) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		switch {
		case !ok || strings.HasPrefix(line, "#"):
		case name == "Environment":
			settings[name] += value + " "
		default:
			settings[name] = value
		}
	}
	return settings
}

func TestUnit(t *testing.T) {
	settings := unit(t)
	require.Equal(t, "notify", settings["Type"], "see TestSystemd")
	require.Greater(t, number(t, settings["WatchdogSec"]), 10.0, "a busy machine is no reason for a restart")
	require.Equal(t, "yes", settings["DynamicUser"])
	require.Equal(t, "cellserver", settings["RuntimeDirectory"])
	require.Contains(t, settings["Environment"], "CELLSERVER_DIR=/var/lib/"+settings["StateDirectory"]+" ")
	require.Equal(t, "SIGTERM", settings["KillSignal"])
	require.Equal(t, "on-failure", settings["Restart"])
	require.Greater(t, number(t, settings["TimeoutStopSec"]), 10.0, "--shutdown-timeout's default")
	require.Greater(t, number(t, settings["LimitNOFILE"]), 10000.0, "--maxclients's default")
}

// The unit's environment and command line create the socket that its first lines promise, and keep
// keys in its state directory.
func TestUnitStarts(t *testing.T) {
	settings := unit(t)
	require.Equal(t, "/usr/local/bin/cellserver", settings["ExecStart"])
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o777))
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	socket := filepath.Join(dir, "cellserver.sock")
	environment := strings.Replace(settings["Environment"], "/run/cellserver/cellserver.sock", socket, 1)
	require.Contains(t, environment, socket)
	state := filepath.Join(dir, "state")
	environment = strings.Replace(environment, "/var/lib/cellserver", state, 1)
	require.Contains(t, environment, state)

	// Without a chroot, because the socket is outside of the image.
	i := *imageFor(t, "amd64")
	i.entrypoint, i.environment = []string{binary(t)}, strings.Fields(environment)
	i.root, i.user, i.group = "/", os.Getuid(), os.Getgid()
	c := start(t, &i, newNetwork(t))
	entry, err := os.Stat(socket)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o777), entry.Mode().Perm())
	peer, err := net.Dial("unix", socket)
	require.NoError(t, err)
	require.NoError(t, peer.Close())
	require.Equal(t, 0, c.stop(t), c.String())
	require.NoFileExists(t, socket)
	require.NotEmpty(t, filesOf(t, state))
}

// Where systemd is installed, it must understand every line, and rate the unit's exposure at 20 of
// 100 or less.
func TestUnitVerifies(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Log("systemd-analyze is not installed, so systemd has not checked the unit")
		return
	}
	// systemd-analyze wants the program to exist.
	text := strings.ReplaceAll(read(t, unitFile), "/usr/local/bin/cellserver", binary(t))
	file := filepath.Join(t.TempDir(), "cellserver.service")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	for _, words := range [][]string{{"verify"}, {"security", "--offline=yes", "--threshold=20"}} {
		out, err := exec.Command("systemd-analyze", append(words, file)...).CombinedOutput()
		require.NoError(t, err, "%v: %s", words, out)
		if words[0] == "verify" {
			require.Empty(t, string(out))
		}
	}
}
