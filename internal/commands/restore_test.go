package commands

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/calendar"
	"cellserver/internal/form"
	"cellserver/internal/rdb"
	"cellserver/internal/store"
	"cellserver/internal/window"
)

// call makes a call with any words, and returns the reply as transcripts show it.
func (c *testClient) call(t require.TestingT, words ...string) string {
	require.NoError(t, c.Send(encode(words)))
	line, err := c.Receive(0)
	require.NoError(t, err)
	return line
}

// formOfLog returns the state of a log with n entries, as bytes.
func formOfLog(n int) string {
	state := form.State{Kind: form.SlidingLog, Log: window.Log{End: clockStart + 1e15}}
	for i := range n {
		state.Entries = append(state.Entries, window.Entry{At: clockStart + int64(i), Total: uint64(i + 1)})
	}
	return string(form.Append(nil, &state))
}

// formOfQuota returns the state of a calendar quota of a day of which some was used.
func formOfQuota(used int64) string {
	day, _ := calendar.In(calendar.Day, []byte("UTC"))
	end := day.End(clockStart)
	return string(form.Append(nil, &form.State{
		Kind: form.Quota, Quota: window.Calendar{Used: used, End: end}, Cycle: day,
	}))
}

func payloadOf(value string) string { return string(rdb.AppendDump(nil, []byte(value))) }

// The bounds of the limiters, and of values, hold for RESTORE too.
func TestRestoreObeysBounds(t *testing.T) {
	s, err := newServerWith(t, store.NewStillClock(clockStart), func(s *Settings) {
		s.Limiter.MaxHolders, s.Limiter.MaxLogLimit, s.MaxBulk, s.MaxKeySize = 5, 7, 64<<10, 10
	})
	require.NoError(t, err)
	c := s.dial()
	for _, restored := range [][2]string{
		{formOfLeases(5), "+OK"},
		{formOfLeases(6), "-ERR the limiter has more than 5 entries or holders (max-holders)"},
		{formOfLog(7), "+OK"},
		{formOfLog(8), "-ERR the limiter has more than 7 entries or holders (max-log-limit)"},
	} {
		require.Equal(t, restored[1], c.call(t, "RESTORE", "k", "0", payloadOf(restored[0]), "REPLACE"))
	}
	require.Equal(t, "-ERR key is longer than max-key-size (10 bytes)",
		c.call(t, "RESTORE", "eleven bytes", "0", payloadOf("v")))
	require.Equal(t, "-ERR string exceeds maximum allowed size (proto-max-bulk-len)",
		c.call(t, "RESTORE", "k", "0", compressedPayload(3900), "REPLACE"))
	require.Equal(t, `"cl.slidinglog"`, c.call(t, "OBJECT", "ENCODING", "k"))
}

// Large payloads are restored, and dumped, outside the event loop; the payload is the same.
func TestLargePayloads(t *testing.T) {
	s := newServer(t)
	c := s.dial()
	for _, value := range []string{strings.Repeat("v", 1<<19), formOfLeases(10_000), formOfLog(100_000)} {
		payload := payloadOf(value)
		require.Equal(t, "+OK", c.call(t, "RESTORE", "k", "0", payload, "REPLACE"))
		require.Equal(t, "+OK", c.call(t, "MULTI"))
		require.Equal(t, "+QUEUED", c.call(t, "DUMP", "k"))
		require.Equal(t, "+QUEUED", c.call(t, "RESTORE", "other", "0", payload, "REPLACE"))
		bulk := fmt.Sprintf("$%d\r\n%s\r\n", len(payload), payload)
		require.True(t, "*2\r\n"+bulk+"+OK\r\n" == c.do(t, "EXEC"))
		require.True(t, bulk == c.do(t, "DUMP other"))
	}
	require.Equal(t, "+OK", c.call(t, "RESTORE", "k", "0", compressedPayload(3900), "REPLACE"))
	require.Equal(t, fmt.Sprint(1+3900*264), c.call(t, "STRLEN", "k"))
}

// Payloads have Unix time: the state of a limiter keeps its meaning in a server whose clock
// differs.
func TestRestoredWithAnotherClock(t *testing.T) {
	one, other := newServer(t), newServer(t)
	other.clock.Advance(-1000 * time.Hour)
	other.clock.SetOffset(1000 * time.Hour)
	from, to := one.dial(), other.dial()
	for _, call := range []string{
		"CL.THROTTLE k 9 1 60 5", "CL.FIXED k 9 60 5", "CL.SLIDING k 9 60 5", "CL.SLIDINGLOG k 9 60 5",
		"CL.QUOTA k 9 WEEK@America/Havana 5", "CL.QUOTA k 9 90s 5", "CL.ACQUIRE k 9 60 me 5",
	} {
		words := strings.Fields(call)
		from.call(t, words...)
		payload := readBulk(t, from, "DUMP", "k")
		require.Equal(t, "+OK", to.call(t, "RESTORE", "k", "0", payload, "REPLACE"), call)
		require.Equal(t, payload, readBulk(t, to, "DUMP", "k"))
		require.Equal(t, from.call(t, "CL.INSPECT", "k"), to.call(t, "CL.INSPECT", "k"))
		require.Equal(t, from.call(t, words...), to.call(t, words...))
		from.call(t, "DEL", "k")
	}
	other.clock.SetOffset(1 << 62)
	require.Equal(t, "-ERR the instants of the limiter are out of range of the clock",
		to.call(t, "RESTORE", "k", "0", payloadOf(formOfLog(3)), "REPLACE"))
}

// readBulk makes a call whose reply is a string of any bytes, and returns the string.
func readBulk(t require.TestingT, c *testClient, words ...string) string {
	require.NoError(t, c.Send(encode(words)))
	c.read()
	reply := string(c.received)
	c.received = nil
	require.Equal(t, "$", reply[:1])
	_, text, _ := strings.Cut(reply, "\r\n")
	return strings.TrimSuffix(text, "\r\n")
}

// With full memory, RESTORE is refused as SET is.
func TestRestoreInFullMemory(t *testing.T) {
	f := newMemoryServer(t)
	c := f.dial()
	f.outside = 2000
	require.True(t, f.isFull())
	require.Equal(t, "-OOM command not allowed when used memory > 'maxmemory'.",
		c.call(t, "RESTORE", "k", "0", payloadOf(formOfLog(3))))
}

// The right to RESTORE strings is not enough to set limits back: that needs the right to make the
// calls of the limiter on the key.
func TestRestoreChecksTheRightsOfTheLimiter(t *testing.T) {
	s := newServer(t)
	s.dial().do(t, "CONFIG SET acllog-max-len 100")
	for name, value := range map[string]string{
		"cl.throttle": string(form.Append(nil, &form.State{Kind: form.Throttle, TAT: 2 * clockStart})),
		"cl.fixed": string(form.Append(nil, &form.State{Kind: form.Fixed,
			Fixed: window.Fixed{Used: 1, End: 2 * clockStart}})),
		"cl.sliding": string(form.Append(nil, &form.State{Kind: form.Sliding,
			Sliding: window.Sliding{Previous: 1, End: 2 * clockStart}})),
		"cl.quota":      formOfQuota(1),
		"cl.slidinglog": formOfLog(1), "cl.acquire": formOfLeases(1),
	} {
		restore := []string{"RESTORE", "mine:" + name, "0", payloadOf(value), "REPLACE"}
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
			c := s.dialAs(t, rules)
			require.Equal(t, want, c.call(t, restore...), "%s: %s", name, rules)
			require.Equal(t, "+OK", c.call(t, "RESTORE", "mine:s", "0", payloadOf("a string"), "REPLACE"))
			log := s.dial().do(t, "ACL LOG 1")
			require.Equal(t, want != "+OK", strings.Contains(log, name), "%s: %s: %s", name, rules, log)
			s.dial().do(t, "ACL LOG RESET")
		}
	}
}

// A command that was removed is not permitted to any user whose rights are restricted.
func TestRestoreOfARemovedLimiter(t *testing.T) {
	s, err := newServerWith(t, store.NewStillClock(clockStart), func(s *Settings) {
		s.Renamed = [][2]string{{"cl.slidinglog", ""}, {"cl.acquire", "take"}}
	})
	require.NoError(t, err)
	c := s.dialAs(t, "~* +@all")
	require.Equal(t, "+OK", c.call(t, "RESTORE", "a", "0", payloadOf(formOfLeases(3))))
	require.Equal(t, "+OK", s.dial().call(t, "RESTORE", "log", "0", payloadOf(formOfLog(3))))
	c = s.dialAs(t, "~* +@all -flushall")
	require.Equal(t, "+OK", c.call(t, "RESTORE", "b", "0", payloadOf(formOfLeases(3))))
	require.Equal(t, "-NOPERM User u has no permissions to run the 'cl.slidinglog' command",
		c.call(t, "RESTORE", "c", "0", payloadOf(formOfLog(3))))
}

// The end of a calendar quota is Unix time, whatever the clocks of the servers are. A quota of a
// zone that this server does not know is kept as it is.
func TestRestoredQuotas(t *testing.T) {
	for _, offset := range []time.Duration{0, 1000 * time.Hour, -1000 * time.Hour} {
		s := newServer(t)
		s.clock.Advance(-offset)
		s.clock.SetOffset(offset)
		c := s.dial()
		require.Equal(t, "+OK", c.call(t, "RESTORE", "k", "0", payloadOf(formOfQuota(3))))
		require.Equal(t, "[0, 9, 6, -1, 86400]", c.call(t, "CL.QUOTA", "k", "9", "DAY", "0"), offset)
		s.clock.Advance(24 * time.Hour)
		require.Equal(t, "0", c.call(t, "EXISTS", "k"), offset)
		require.Equal(t, "+OK", c.call(t, "RESTORE", "k", "0", payloadOf(formOfQuota(3))), "it has ended")
		require.Equal(t, "0", c.call(t, "EXISTS", "k"), offset)
	}
	mars, ok := calendar.Restore(calendar.Day, []byte("Mars/Olympus"))
	require.True(t, ok)
	unknown := form.State{Kind: form.Quota, Quota: window.Calendar{Used: 1, End: 2 * clockStart}, Cycle: mars}
	c := newServer(t).dial()
	payload := payloadOf(string(form.Append(nil, &unknown)))
	require.Equal(t, "+OK", c.call(t, "RESTORE", "k", "0", payload))
	require.Equal(t, payload, readBulk(t, c, "DUMP", "k"))
	require.Contains(t, c.call(t, "CL.INSPECT", "k"), "DAY@Mars/Olympus")
	require.Equal(t, "-ERR key counts by DAY in Mars/Olympus", c.call(t, "CL.QUOTA", "k", "9", "DAY"))
}

// Any payload is refused or restored. Then it can be dumped, and that payload restored is the same.
// Limiters can be used whatever their state is.
func FuzzRestore(f *testing.F) {
	for _, value := range []string{"", "v", "123", "-5", formOfLeases(2), formOfLeases(60), formOfLog(2), formOfLog(100),
		string(form.Append(nil, &form.State{Kind: form.Throttle, TAT: clockStart + 5})), formOfQuota(3),
		string(form.Append(nil, &form.State{Kind: form.Fixed, Fixed: window.Fixed{Used: 3, End: clockStart + 1e12}})),
		string(form.Append(nil, &form.State{Kind: form.Sliding, Sliding: window.Sliding{Current: 3, End: 2 * clockStart}})),
	} {
		payload := payloadOf(value)
		f.Add([]byte(payload[:len(payload)-10]))
	}
	compressed := compressedPayload(3)
	f.Add([]byte(compressed[:len(compressed)-10]))
	s := newServer(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		c := s.dial()
		defer c.session.Close()
		if reply := c.call(t, "RESTORE", "k", "0", withChecksum(body), "REPLACE"); reply != "+OK" {
			require.Regexp(t, `^-"?ERR `, reply)
			return
		}
		if c.call(t, "EXISTS", "k") == "0" {
			return
		}
		payload := readBulk(t, c, "DUMP", "k")
		require.Equal(t, "+OK", c.call(t, "RESTORE", "other", "0", payload, "REPLACE"))
		require.Equal(t, payload, readBulk(t, c, "DUMP", "other"))
		for _, call := range []string{"CL.THROTTLE k 9 1 60 5", "CL.FIXED k 9 60 5", "CL.SLIDING k 9 60 5 UPTO",
			"CL.SLIDINGLOG k 9 60 5", "CL.QUOTA k 9 DAY 5", "CL.ACQUIRE k 9 60 me 5", "CL.INSPECT k", "GET k",
			"CL.HOLDERS k", "TTL k"} {
			c.call(t, strings.Fields(call)...)
		}
	})
}
