package transaction_test

import (
	"cellserver/internal/commands"
	"cellserver/internal/commands/commandstest"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// While few keys are watched, SWAPDB marks only the watched keys as changed that exist in either
// database. If there are too many to look up while all keys are locked, it marks all watched keys
// of the two databases as changed.
func TestSwapChangesWatchedKeys(t *testing.T) {
	for _, many := range []bool{false, true} {
		s := commandstest.New(t)
		a, b, c, d := s.Connect(), s.Connect(), s.Connect(), s.Connect()
		a.Do(t, "SELECT 1\r\nSET other 1\r\nSELECT 0")
		a.Do(t, "WATCH other")
		b.Do(t, "WATCH nowhere")
		c.Do(t, "SELECT 2\r\nWATCH third")
		if many {
			for i := range 1024 {
				d.Do(t, fmt.Sprintf("WATCH %d", i))
			}
		}
		s.Connect().Do(t, "SWAPDB 0 1\r\nSWAPDB 0 1")
		const made, not = "+OK\r\n*0\r\n", "+OK\r\n*-1\r\n"
		require.Equal(t, not, a.Do(t, "MULTI\r\nEXEC"))
		require.Equal(t, map[bool]string{false: made, true: not}[many], b.Do(t, "MULTI\r\nEXEC"))
		require.Equal(t, made, c.Do(t, "MULTI\r\nEXEC"))
		d.Do(t, "UNWATCH")
		require.Contains(t, d.Do(t, "INFO clients"), "total_watched_keys:0\r\n")
	}
}

// The watched keys of a session are bounded in number and in bytes. A key that it watches already
// may be watched again.
func TestWatchedKeysAreBounded(t *testing.T) {
	s := commandstest.New(t)
	c := s.Connect()
	long := strings.Repeat("k", commands.NewSettings().MaxKeySize/2-5)
	for i := range (4 << 20) / (commands.NewSettings().MaxKeySize / 2) {
		require.Equal(t, "+OK\r\n", c.Do(t, fmt.Sprintf("WATCH %05d%s", i, long)))
	}
	require.Equal(t, "-ERR too many keys are watched\r\n", c.Do(t, "WATCH "+long))
	require.Equal(t, "+OK\r\n", c.Do(t, "WATCH 00000"+long))
	require.Equal(t, "+OK\r\n", c.Do(t, "UNWATCH"))
	for i := range 4096 {
		require.Equal(t, "+OK\r\n", c.Do(t, fmt.Sprintf("WATCH %d", i)))
	}
	require.Equal(t, "-ERR too many keys are watched\r\n", c.Do(t, "WATCH another"))
	require.Equal(t, "+OK\r\n", c.Do(t, "WATCH 0"))
}

// A flush marks the watched keys that existed as changed, without looking each up. Keys that are
// watched after it are unchanged.
func TestFlushChangesWatchedKeys(t *testing.T) {
	s := commandstest.New(t)
	a, b, c := s.Connect(), s.Connect(), s.Connect()
	a.Do(t, "SET k 1\r\nWATCH k")
	b.Do(t, "WATCH none")
	c.Do(t, "FLUSHALL\r\nSET k 2")
	c.Do(t, "WATCH k")
	require.Equal(t, "+OK\r\n*-1\r\n", a.Do(t, "MULTI\r\nEXEC"))
	require.Equal(t, "+OK\r\n*0\r\n", b.Do(t, "MULTI\r\nEXEC"))
	require.Equal(t, "+OK\r\n*0\r\n", c.Do(t, "MULTI\r\nEXEC"))
}
