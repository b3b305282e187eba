package commands

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/command"
	"cellserver/internal/stats"
)

// A call takes a bounded amount of memory in SLOWLOG and in MONITOR, however large it is. What
// monitors have not read is bounded as other pushes are.
func TestShownCallsAreBounded(t *testing.T) {
	s := newServer(t)
	watcher, other := s.dial(), s.dial()
	require.Equal(t, "+OK\r\n", other.do(t, "CONFIG SET slowlog-log-slower-than 0"))
	require.Equal(t, "+OK\r\n", watcher.do(t, "MONITOR"))
	words := []string{"EXISTS"}
	for i := range 5000 {
		words = append(words, fmt.Sprint(strings.Repeat("x", 2000), i))
	}
	require.NoError(t, other.Send(encode(words)))
	other.output()
	watcher.settle()
	line := watcher.output()
	require.Less(t, len(line), 128*(1024+64))
	require.Contains(t, line, `(980 more bytes)`[5:])
	require.Contains(t, line, "more arguments)")
	kept := s.instance.Stats.SlowLog.Latest(1)[0]
	require.Len(t, kept.Arguments, stats.SlowArguments)
	require.LessOrEqual(t, len(kept.Arguments[1]), stats.SlowArgumentBytes+32)

	for range 100 {
		other.do(t, "PING")
	}
	require.Positive(t, watcher.session.PushedBytes())
	watcher.session.Close()
	require.False(t, s.instance.Hooks.Has(command.Monitored), "no session looks at the hook any more")
}
