package admin_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/commands/commandstest"
	"cellserver/internal/stats"
)

// wrongCounts sends calls of more rows than a session counts at a time, in pipelines of any length.
// It returns the commands whose counts are wrong; corrupt may make some wrong.
func wrongCounts(t *testing.T, corrupt func(s *commandstest.Server)) (wrong []string) {
	s := commandstest.New(t)
	c := s.Connect()
	random := rand.New(rand.NewPCG(1, 1))
	rows := []string{"ping", "get", "incr", "ttl", "cl.throttle", "dbsize", "time", "echo"}
	words := []string{"PING", "GET n", "INCR n", "TTL n", "CL.THROTTLE k 0 1 1000", "DBSIZE", "TIME", "ECHO x"}
	want := make([]int64, len(rows))
	for range 300 {
		pipeline := ""
		for range 1 + random.IntN(40) {
			i := random.IntN(len(rows))
			want[i]++
			pipeline += words[i] + "\r\n"
		}
		require.NoError(t, c.Send([]byte(pipeline)))
		c.Output()
		corrupt(s)
	}
	for i, row := range rows {
		if s.Instance.Stats.Of(s.Instance.Table.ByName[row].Number).Calls.Load() != want[i] {
			wrong = append(wrong, row)
		}
	}
	if limited := s.Instance.Stats.Of(s.Instance.Table.ByName["cl.throttle"].Number).Limited.Load(); limited != want[4]-1 {
		wrong = append(wrong, "limited")
	}
	return wrong
}

func TestEveryCallIsCounted(t *testing.T) {
	require.Empty(t, wrongCounts(t, func(*commandstest.Server) {}))
}

func TestWrongCountIsFound(t *testing.T) {
	count := func(s *commandstest.Server, row string) *stats.Calls {
		return s.Instance.Stats.Of(s.Instance.Table.ByName[row].Number)
	}
	require.Contains(t, wrongCounts(t, func(s *commandstest.Server) { count(s, "get").Calls.Add(1) }), "get")
	require.Contains(t, wrongCounts(t, func(s *commandstest.Server) { count(s, "cl.throttle").Limited.Add(1) }), "limited")
}
