package admin_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/command"
	"cellserver/internal/commands/commandstest"
	"cellserver/internal/stats"
)

// A call takes a bounded amount of memory in SLOWLOG and in MONITOR, however large it is. Output
// that monitors have not read is bounded like other pushes.
func TestShownCallsAreBounded(t *testing.T) {
	s := commandstest.New(t)
	watcher, other := s.Connect(), s.Connect()
	require.Equal(t, "+OK\r\n", other.Do(t, "CONFIG SET slowlog-log-slower-than 0"))
	require.Equal(t, "+OK\r\n", watcher.Do(t, "MONITOR"))
	words := []string{"EXISTS"}
	for i := range 5000 {
		words = append(words, fmt.Sprint(strings.Repeat("x", 2000), i))
	}
	require.NoError(t, other.Send(commandstest.Encode(words)))
	other.Output()
	watcher.Settle()
	line := watcher.Output()
	require.Less(t, len(line), 128*(1024+64))
	require.Contains(t, line, `(980 more bytes)`[5:])
	require.Contains(t, line, "more arguments)")
	kept := s.Instance.Stats.SlowLog.Latest(1)[0]
	require.Len(t, kept.Arguments, stats.SlowArguments)
	require.LessOrEqual(t, len(kept.Arguments[1]), stats.SlowArgumentBytes+32)

	for range 100 {
		other.Do(t, "PING")
	}
	require.Positive(t, watcher.Session.PushedBytes())
	watcher.Session.Close()
	require.False(t, s.Instance.Hooks.Has(command.Monitored), "no session looks at the hook any more")
}
