package faults

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/journal"
	"cellserver/test/peer"
)

// rewrite changes the stamps of all passes in a folder. This has the same effect as setting the
// clocks of the machine before the next start.
func rewrite(t *testing.T, dir string, shift func(*journal.Stamp)) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "journal-*"))
	require.NoError(t, err)
	for _, name := range files {
		old, err := os.Open(name)
		require.NoError(t, err)
		defer old.Close()
		stat, err := old.Stat()
		require.NoError(t, err)
		s, err := journal.Scan(old, stat.Size())
		require.NoError(t, err)
		require.NoError(t, os.Remove(name))
		to, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
		require.NoError(t, err)
		defer to.Close()
		rewriteSegment(t, to, old, s, shift)
	}
}

func rewriteSegment(t *testing.T, to journal.File, from *os.File, s journal.Summary, shift func(*journal.Stamp)) {
	w, err := journal.Create(to, s.Header)
	require.NoError(t, err)
	open := false
	err = journal.Replay(from, s, func(pass uint64, stamp journal.Stamp, payload []byte) error {
		if pass != w.Next() {
			require.NoError(t, w.End(true))
			open = false
		}
		if !open {
			shift(&stamp)
			require.NoError(t, w.Begin(stamp))
			open = true
		}
		if len(payload) == 0 {
			return nil
		}
		return w.Append(payload)
	})
	require.NoError(t, err)
	require.NoError(t, w.End(true))
}

// A limiter recovers while its server is stopped, for a moment or for an hour, whether or not the
// clock was set forward or back. After another boot of the machine, only the wall clock tells how
// much time has passed; if it was set back, no time has passed.
func TestClockIsSet(t *testing.T) {
	t.Parallel()
	otherBoot := func(s *journal.Stamp) { s.Boot[0]++ }
	earlier := func(s *journal.Stamp) { s.Wall -= int64(time.Hour) }
	later := func(s *journal.Stamp) { s.Wall += int64(time.Hour) }
	up := func(s *journal.Stamp) { s.Uptime -= int64(time.Hour) }
	for name, c := range map[string]struct {
		shifts []func(*journal.Stamp)
		hours  int
		says   string
	}{
		"same boot":                      {},
		"same boot, an hour forth":       {shifts: []func(*journal.Stamp){earlier}},
		"same boot, an hour back":        {shifts: []func(*journal.Stamp){later}},
		"same boot, an hour later":       {shifts: []func(*journal.Stamp){up, earlier}, hours: 1},
		"same boot, later, and set back": {shifts: []func(*journal.Stamp){up, later}, hours: 1},
		"other boot":                     {shifts: []func(*journal.Stamp){otherBoot}},
		"other boot, an hour later":      {shifts: []func(*journal.Stamp){otherBoot, earlier}, hours: 1},
		"other boot, an hour back": {shifts: []func(*journal.Stamp){otherBoot, later},
			says: "the wall clock is behind the time at which the folder was written"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			server := peer.Start(t, "--dir", dir)
			ask(t, server, "CL.THROTTLE tokens 99 1 3600 50", "CL.FIXED window 9 5400 7", "CL.FIXED long 9 9000 7",
				"SET short 1 EX 5400", "SET forever 1", "CL.ACQUIRE job 1 5400 holder")
			server.Signal(syscall.SIGTERM)
			require.Zero(t, server.Wait())
			for _, shift := range c.shifts {
				rewrite(t, dir, shift)
			}
			server = peer.Start(t, "--dir", dir)
			requireHours(t, server, c.hours)
			server.Signal(syscall.SIGTERM)
			require.Zero(t, server.Wait())
			require.Equal(t, c.says != "", strings.Contains(server.Stderr(), c.says) && server.Stderr() != "", server.Stderr())
		})
	}
}

// requireHours checks how many hours have passed for the limits. The test itself may take up to
// half an hour more.
func requireHours(t *testing.T, server *peer.Server, hours int) {
	t.Helper()
	replies := ask(t, server, "CL.THROTTLE tokens 99 1 3600 0", "CL.FIXED window 9 5400 0", "CL.FIXED long 9 9000 0",
		"TTL short", "TTL forever", "CL.HOLDERS job")
	require.Regexp(t, "^"+[]string{`\[0, 100, 50, `, `\[0, 100, 51, `}[hours], replies[0])
	require.Regexp(t, `^\[0, 9, 2, `, replies[1])
	require.Regexp(t, `^\[0, 9, 2, `, replies[2])
	require.InDelta(t, 5400-3600*hours-900, number(replies[3]), 900)
	require.Equal(t, "-1", replies[4])
	require.Contains(t, replies[5], "holder")
}
