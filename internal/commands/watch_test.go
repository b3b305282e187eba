package commands

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// While few keys are watched, SWAPDB changes those that exist in either database, and no others. If
// there are too many to look up while all keys are locked, it changes all watched keys of the two
// databases.
func TestSwapChangesWatchedKeys(t *testing.T) {
	for _, many := range []bool{false, true} {
		s := newServer(t)
		a, b, c, d := s.dial(), s.dial(), s.dial(), s.dial()
		a.do(t, "SELECT 1\r\nSET other 1\r\nSELECT 0")
		a.do(t, "WATCH other")
		b.do(t, "WATCH nowhere")
		c.do(t, "SELECT 2\r\nWATCH third")
		if many {
			for i := range 1024 {
				d.do(t, fmt.Sprintf("WATCH %d", i))
			}
		}
		s.dial().do(t, "SWAPDB 0 1\r\nSWAPDB 0 1")
		const made, not = "+OK\r\n*0\r\n", "+OK\r\n*-1\r\n"
		require.Equal(t, not, a.do(t, "MULTI\r\nEXEC"))
		require.Equal(t, map[bool]string{false: made, true: not}[many], b.do(t, "MULTI\r\nEXEC"))
		require.Equal(t, made, c.do(t, "MULTI\r\nEXEC"))
		d.do(t, "UNWATCH")
		require.Contains(t, d.do(t, "INFO clients"), "total_watched_keys:0\r\n")
	}
}

// The watched keys of a session are bounded in number and in bytes. A key that it watches already
// may be watched again.
func TestWatchedKeysAreBounded(t *testing.T) {
	s := newServer(t)
	c := s.dial()
	long := strings.Repeat("k", NewSettings().MaxKeySize/2-5)
	for i := range (4 << 20) / (NewSettings().MaxKeySize / 2) {
		require.Equal(t, "+OK\r\n", c.do(t, fmt.Sprintf("WATCH %05d%s", i, long)))
	}
	require.Equal(t, "-ERR too many keys are watched\r\n", c.do(t, "WATCH "+long))
	require.Equal(t, "+OK\r\n", c.do(t, "WATCH 00000"+long))
	require.Equal(t, "+OK\r\n", c.do(t, "UNWATCH"))
	for i := range 4096 {
		require.Equal(t, "+OK\r\n", c.do(t, fmt.Sprintf("WATCH %d", i)))
	}
	require.Equal(t, "-ERR too many keys are watched\r\n", c.do(t, "WATCH another"))
	require.Equal(t, "+OK\r\n", c.do(t, "WATCH 0"))
}

// A flush changes the watched keys that existed, without looking each up. Keys that are watched
// after it have not changed.
func TestFlushChangesWatchedKeys(t *testing.T) {
	s := newServer(t)
	a, b, c := s.dial(), s.dial(), s.dial()
	a.do(t, "SET k 1\r\nWATCH k")
	b.do(t, "WATCH none")
	c.do(t, "FLUSHALL\r\nSET k 2")
	c.do(t, "WATCH k")
	require.Equal(t, "+OK\r\n*-1\r\n", a.do(t, "MULTI\r\nEXEC"))
	require.Equal(t, "+OK\r\n*0\r\n", b.do(t, "MULTI\r\nEXEC"))
	require.Equal(t, "+OK\r\n*0\r\n", c.do(t, "MULTI\r\nEXEC"))
}
