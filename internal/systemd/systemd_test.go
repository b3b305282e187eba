package systemd

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// listen plays systemd: it returns the messages of the service.
func listen(t *testing.T, name string) (next func() string) {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return func() string {
		message := make([]byte, 4096)
		n, err := conn.Read(message)
		require.NoError(t, err)
		return string(message[:n])
	}
}

func environment(pairs map[string]string) func(string) string {
	return func(name string) string { return pairs[name] }
}

func TestMessages(t *testing.T) {
	for _, path := range []string{filepath.Join(t.TempDir(), "notify"), "@cellserver-test-" + filepath.Base(t.TempDir())} {
		next := listen(t, path)
		s, err := Open(environment(map[string]string{"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "3000000",
			"WATCHDOG_PID": "42"}), 42)
		require.NoError(t, err)
		require.Equal(t, 3*time.Second, s.Watchdog())

		s.Extend(90*time.Second, "loading\nkeys")
		require.Equal(t, "EXTEND_TIMEOUT_USEC=90000000\nSTATUS=loading keys", next())
		s.Ready("12 keys")
		require.Equal(t, "READY=1\nSTATUS=12 keys", next())
		s.Beat()
		require.Equal(t, "WATCHDOG=1", next())
		s.Stopping(20 * time.Second)
		require.Equal(t, "STOPPING=1\nEXTEND_TIMEOUT_USEC=20000000\nSTATUS=stopping", next())
	}
}

func TestWithoutSystemd(t *testing.T) {
	s, err := Open(environment(nil), 42)
	require.NoError(t, err)
	require.Nil(t, s)
	s.Ready("")
	s.Beat()
	require.Zero(t, s.Watchdog())

	_, err = Open(environment(map[string]string{"NOTIFY_SOCKET": filepath.Join(t.TempDir(), "none")}), 42)
	require.ErrorContains(t, err, "NOTIFY_SOCKET")
}

// A parent's watchdog does not count, and neither does a watchdog whose value is not a time.
func TestWatchdogOfOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	listen(t, path)
	for _, wrong := range []map[string]string{
		{"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "41"}, {"WATCHDOG_USEC": "-1"}, {"WATCHDOG_USEC": "x"}, {},
		{"WATCHDOG_USEC": "9223372036854775807"},
	} {
		wrong["NOTIFY_SOCKET"] = path
		s, err := Open(environment(wrong), 42)
		require.NoError(t, err)
		require.Zero(t, s.Watchdog(), "%v", wrong)
	}
}
