package keyspace_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/calendar"
	"cellserver/internal/commands"
	"cellserver/internal/commands/commandstest"
	"cellserver/internal/form"
	"cellserver/internal/limit"
	"cellserver/internal/store"
	"cellserver/internal/window"
)

// formOfQuota returns the state of a calendar quota of a day that was used in part.
func formOfQuota(used int64) string {
	day, _ := calendar.In(calendar.Day, []byte("UTC"))
	end := day.End(commandstest.Start)
	return string(form.Append(nil, &form.State{
		Kind: limit.Quota, Quota: window.Calendar{Used: used, End: end}, Cycle: day,
	}))
}

// The bounds of limiters and of values apply to RESTORE too.
func TestRestoreObeysBounds(t *testing.T) {
	s, err := commandstest.NewWith(t, store.NewStillClock(commandstest.Start), func(s *commands.Settings) {
		s.Limiter.MaxHolders, s.Limiter.MaxLogLimit, s.MaxBulk, s.MaxKeySize = 5, 7, 64<<10, 10
	})
	require.NoError(t, err)
	c := s.Connect()
	for _, restored := range [][2]string{
		{commandstest.FormOfLeases(5), "+OK"},
		{commandstest.FormOfLeases(6), "-ERR the limiter has more than 5 entries or holders (max-holders)"},
		{commandstest.FormOfLog(7), "+OK"},
		{commandstest.FormOfLog(8), "-ERR the limiter has more than 7 entries or holders (max-log-limit)"},
	} {
		require.Equal(
			t,
			restored[1],
			commandstest.Call(c, t, "RESTORE", "k", "0", commandstest.PayloadOf(restored[0]), "REPLACE"),
		)
	}
	require.Equal(t, "-ERR key is longer than max-key-size (10 bytes)",
		commandstest.Call(c, t, "RESTORE", "eleven bytes", "0", commandstest.PayloadOf("v")))
	require.Equal(t, "-ERR string exceeds maximum allowed size (proto-max-bulk-len)",
		commandstest.Call(c, t, "RESTORE", "k", "0", commandstest.CompressedPayload(3900), "REPLACE"))
	require.Equal(t, `"cl.slidinglog"`, commandstest.Call(c, t, "OBJECT", "ENCODING", "k"))
}

// Large payloads are restored, and dumped, outside the event loop; the payload is the same.
func TestLargePayloads(t *testing.T) {
	s := commandstest.New(t)
	c := s.Connect()
	for _, value := range []string{
		strings.Repeat("v", 1<<19), commandstest.FormOfLeases(10_000), commandstest.FormOfLog(100_000),
	} {
		payload := commandstest.PayloadOf(value)
		require.Equal(t, "+OK", commandstest.Call(c, t, "RESTORE", "k", "0", payload, "REPLACE"))
		require.Equal(t, "+OK", commandstest.Call(c, t, "MULTI"))
		require.Equal(t, "+QUEUED", commandstest.Call(c, t, "DUMP", "k"))
		require.Equal(t, "+QUEUED", commandstest.Call(c, t, "RESTORE", "other", "0", payload, "REPLACE"))
		bulk := fmt.Sprintf("$%d\r\n%s\r\n", len(payload), payload)
		require.True(t, "*2\r\n"+bulk+"+OK\r\n" == c.Do(t, "EXEC"))
		require.True(t, bulk == c.Do(t, "DUMP other"))
	}
	require.Equal(t, "+OK", commandstest.Call(c, t, "RESTORE", "k", "0", commandstest.CompressedPayload(3900), "REPLACE"))
	require.Equal(t, fmt.Sprint(1+3900*264), commandstest.Call(c, t, "STRLEN", "k"))
}

// Payloads have Unix time: the state of a limiter keeps its meaning in a server whose clock
// differs.
func TestRestoredWithAnotherClock(t *testing.T) {
	one, other := commandstest.New(t), commandstest.New(t)
	other.Clock.Advance(-1000 * time.Hour)
	other.Clock.SetOffset(1000 * time.Hour)
	from, to := one.Connect(), other.Connect()
	for _, call := range []string{
		"CL.THROTTLE k 9 1 60 5", "CL.FIXED k 9 60 5", "CL.SLIDING k 9 60 5", "CL.SLIDINGLOG k 9 60 5",
		"CL.QUOTA k 9 WEEK@America/Havana 5", "CL.QUOTA k 9 90s 5", "CL.ACQUIRE k 9 60 me 5",
	} {
		words := strings.Fields(call)
		commandstest.Call(from, t, words...)
		payload := commandstest.ReadBulk(t, from, "DUMP", "k")
		require.Equal(t, "+OK", commandstest.Call(to, t, "RESTORE", "k", "0", payload, "REPLACE"), call)
		require.Equal(t, payload, commandstest.ReadBulk(t, to, "DUMP", "k"))
		require.Equal(t, commandstest.Call(from, t, "CL.INSPECT", "k"), commandstest.Call(to, t, "CL.INSPECT", "k"))
		require.Equal(t, commandstest.Call(from, t, words...), commandstest.Call(to, t, words...))
		commandstest.Call(from, t, "DEL", "k")
	}
	other.Clock.SetOffset(1 << 62)
	require.Equal(t, "-ERR the instants of the limiter are out of range of the clock",
		commandstest.Call(to, t, "RESTORE", "k", "0", commandstest.PayloadOf(commandstest.FormOfLog(3)), "REPLACE"))
}

// When memory is full, RESTORE is refused like SET.
func TestRestoreInFullMemory(t *testing.T) {
	f := commandstest.NewMemoryServer(t)
	c := f.Connect()
	f.Outside = 2000
	require.True(t, f.IsFull())
	require.Equal(t, "-OOM command not allowed when used memory > 'maxmemory'.",
		commandstest.Call(c, t, "RESTORE", "k", "0", commandstest.PayloadOf(commandstest.FormOfLog(3))))
}

// The right to RESTORE strings is not enough to set back a limit: this needs the right to call the
// limiter on the key.
func TestRestoreChecksTheRightsOfTheLimiter(t *testing.T) {
	s := commandstest.New(t)
	s.Connect().Do(t, "CONFIG SET acllog-max-len 100")
	for name, value := range map[string]string{
		"cl.throttle": string(form.Append(nil, &form.State{Kind: limit.Throttle, TAT: 2 * commandstest.Start})),
		"cl.fixed": string(form.Append(nil, &form.State{Kind: limit.Fixed,
			Plain: limit.OfFixed(window.Fixed{Used: 1, End: 2 * commandstest.Start})})),
		"cl.sliding": string(form.Append(nil, &form.State{Kind: limit.Sliding,
			Plain: limit.OfSliding(window.Sliding{Previous: 1, End: 2 * commandstest.Start})})),
		"cl.quota":      formOfQuota(1),
		"cl.slidinglog": commandstest.FormOfLog(1), "cl.acquire": commandstest.FormOfLeases(1),
	} {
		restore := []string{"RESTORE", "mine:" + name, "0", commandstest.PayloadOf(value), "REPLACE"}
		denied := "-NOPERM User u has no permissions to run the '" + name + "' command"
		for rules, want := range map[string]string{
			"~mine:* +restore +" + name:                      "+OK",
			"~mine:* +@all -" + name:                         denied,
			"~mine:* +restore":                               denied,
			"%W~mine:* +restore +" + name:                    "-NOPERM No permissions to access a key",
			"%W~mine:* +restore (~others:* +" + name + ")":   "-NOPERM No permissions to access a key",
			"%W~mine:* +restore (%RW~mine:* +" + name + ")":  "+OK",
			"~mine:* +@all -@ratelimit +restore +cl.inspect": denied,
		} {
			c := s.ConnectAs(t, rules)
			require.Equal(t, want, commandstest.Call(c, t, restore...), "%s: %s", name, rules)
			require.Equal(
				t,
				"+OK",
				commandstest.Call(c, t, "RESTORE", "mine:s", "0", commandstest.PayloadOf("a string"), "REPLACE"),
			)
			log := s.Connect().Do(t, "ACL LOG 1")
			require.Equal(t, want != "+OK", strings.Contains(log, name), "%s: %s: %s", name, rules, log)
			s.Connect().Do(t, "ACL LOG RESET")
		}
	}
}

// A command that was removed is not permitted to any user whose rights are restricted.
func TestRestoreOfARemovedLimiter(t *testing.T) {
	s, err := commandstest.NewWith(t, store.NewStillClock(commandstest.Start), func(s *commands.Settings) {
		s.Renamed = [][2]string{{"cl.slidinglog", ""}, {"cl.acquire", "take"}}
	})
	require.NoError(t, err)
	c := s.ConnectAs(t, "~* +@all")
	require.Equal(
		t,
		"+OK",
		commandstest.Call(c, t, "RESTORE", "a", "0", commandstest.PayloadOf(commandstest.FormOfLeases(3))),
	)
	require.Equal(
		t,
		"+OK",
		commandstest.Call(s.Connect(), t, "RESTORE", "log", "0", commandstest.PayloadOf(commandstest.FormOfLog(3))),
	)
	c = s.ConnectAs(t, "~* +@all -flushall")
	require.Equal(
		t,
		"+OK",
		commandstest.Call(c, t, "RESTORE", "b", "0", commandstest.PayloadOf(commandstest.FormOfLeases(3))),
	)
	require.Equal(t, "-NOPERM User u has no permissions to run the 'cl.slidinglog' command",
		commandstest.Call(c, t, "RESTORE", "c", "0", commandstest.PayloadOf(commandstest.FormOfLog(3))))
}

// The end of a calendar quota is Unix time, whatever the clocks of the servers are. A quota of a
// zone that this server does not know is kept as it is.
func TestRestoredQuotas(t *testing.T) {
	for _, offset := range []time.Duration{0, 1000 * time.Hour, -1000 * time.Hour} {
		s := commandstest.New(t)
		s.Clock.Advance(-offset)
		s.Clock.SetOffset(offset)
		c := s.Connect()
		require.Equal(t, "+OK", commandstest.Call(c, t, "RESTORE", "k", "0", commandstest.PayloadOf(formOfQuota(3))))
		require.Equal(t, "[0, 9, 6, -1, 86400]", commandstest.Call(c, t, "CL.QUOTA", "k", "9", "DAY", "0"), offset)
		s.Clock.Advance(24 * time.Hour)
		require.Equal(t, "0", commandstest.Call(c, t, "EXISTS", "k"), offset)
		require.Equal(
			t,
			"+OK",
			commandstest.Call(c, t, "RESTORE", "k", "0", commandstest.PayloadOf(formOfQuota(3))),
			"it has ended",
		)
		require.Equal(t, "0", commandstest.Call(c, t, "EXISTS", "k"), offset)
	}
	mars, ok := calendar.Restore(calendar.Day, []byte("Mars/Olympus"))
	require.True(t, ok)
	unknown := form.State{Kind: limit.Quota, Quota: window.Calendar{Used: 1, End: 2 * commandstest.Start}, Cycle: mars}
	c := commandstest.New(t).Connect()
	payload := commandstest.PayloadOf(string(form.Append(nil, &unknown)))
	require.Equal(t, "+OK", commandstest.Call(c, t, "RESTORE", "k", "0", payload))
	require.Equal(t, payload, commandstest.ReadBulk(t, c, "DUMP", "k"))
	require.Contains(t, commandstest.Call(c, t, "CL.INSPECT", "k"), "DAY@Mars/Olympus")
	require.Equal(t, "-ERR key counts by DAY in Mars/Olympus", commandstest.Call(c, t, "CL.QUOTA", "k", "9", "DAY"))
}

// Any payload is refused or restored. A restored key can be dumped, and restoring that payload
// gives the same key. Limiters can be used whatever their state is.
func FuzzRestore(f *testing.F) {
	for _, value := range []string{"", "v", "123", "-5", commandstest.FormOfLeases(2),
		commandstest.FormOfLeases(60), commandstest.FormOfLog(2), commandstest.FormOfLog(100),
		string(form.Append(nil, &form.State{Kind: limit.Throttle, TAT: commandstest.Start + 5})), formOfQuota(3),
		string(form.Append(nil, &form.State{
			Kind: limit.Fixed, Plain: limit.OfFixed(window.Fixed{Used: 3, End: commandstest.Start + 1e12})})),
		string(form.Append(nil, &form.State{
			Kind: limit.Sliding, Plain: limit.OfSliding(window.Sliding{Current: 3, End: 2 * commandstest.Start}),
		})),
	} {
		payload := commandstest.PayloadOf(value)
		f.Add([]byte(payload[:len(payload)-10]))
	}
	compressed := commandstest.CompressedPayload(3)
	f.Add([]byte(compressed[:len(compressed)-10]))
	s := commandstest.New(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		c := s.Connect()
		defer c.Session.Close()
		if reply := commandstest.Call(c, t, "RESTORE", "k", "0", commandstest.WithChecksum(body), "REPLACE"); reply != "+OK" {
			require.Regexp(t, `^-"?ERR `, reply)
			return
		}
		if commandstest.Call(c, t, "EXISTS", "k") == "0" {
			return
		}
		payload := commandstest.ReadBulk(t, c, "DUMP", "k")
		require.Equal(t, "+OK", commandstest.Call(c, t, "RESTORE", "other", "0", payload, "REPLACE"))
		require.Equal(t, payload, commandstest.ReadBulk(t, c, "DUMP", "other"))
		for _, call := range []string{"CL.THROTTLE k 9 1 60 5", "CL.FIXED k 9 60 5", "CL.SLIDING k 9 60 5 UPTO",
			"CL.SLIDINGLOG k 9 60 5", "CL.QUOTA k 9 DAY 5", "CL.ACQUIRE k 9 60 me 5", "CL.INSPECT k", "GET k",
			"CL.HOLDERS k", "TTL k"} {
			commandstest.Call(c, t, strings.Fields(call)...)
		}
	})
}
