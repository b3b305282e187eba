package commands_test

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/commands/commandstest"
	"cellserver/internal/store"
)

// banPolicy is a policy that bans after the second refusal within an hour.
const banPolicy = "{p: {limits: [{fixed: {limit: 1, period: 60s}}], ban: {after: 2, within: 1h, for: 15m}}}"

// +@ratelimit with the keys of a policy lets a user take from it, but not ban or exempt subjects.
func TestRightsToStandings(t *testing.T) {
	s := commandstest.New(t)
	for _, test := range []struct {
		rules, call string
		allowed     bool
	}{
		{"+@ratelimit ~api:*", "CL.TAKE alice api", true},
		{"+@ratelimit ~api:*", "CL.EXEMPT alice api 60", false},
		{"+@ratelimit ~api:*", "CL.BAN alice api 60", false},
		{"+@ratelimit ~api:*", "CL.PARDON alice api", false},
		{"+@ratelimit ~api:*", "CL.BANS api", false},
		{"+@ratelimit ~api:*", "CL.PLAN alice api", false},
		{"+@policy ~api:*", "CL.PLAN alice api", true},
		{"+@policy ~api:*", "CL.PLAN alice plans pro 0", false},
		{"+@policy %R~plans:*", "CL.PLAN alice plans pro 0", false},
		{"+@policy ~plans:{shop-*", "CL.PLAN shop-1 plans pro 0", true},
		{"+@policy ~plans:{shop-*", "CL.PLAN alice plans pro 0", false},
		{"+@ratelimit ~login:*", "CL.GRANT alice login fixed 5", false},
		{"+@policy ~login:*", "CL.GRANT alice login fixed 5", true},
		{"+@policy ~api:*", "CL.GRANT alice login fixed 5", false},
		{"+@policy %R~login:*", "CL.GRANT alice login fixed 5", false},
		{"+@policy ~login:{shop-*", "CL.GRANT shop-1 login fixed 5", true},
		{"+@policy ~login:{shop-*", "CL.GRANT alice login fixed 5", false},
		{"+@policy ~api:*", "CL.BAN alice api 60", true},
		{"+@policy ~api:*", "CL.EXEMPT alice login 60", false},
		{"+@policy ~api:*", "CL.PARDON api: login", false},
		{"+@policy ~api:{shop-*", "CL.PARDON shop-1 api", true},
		{"+@policy ~api:{shop-*", "CL.PARDON alice api", false},
		{"+@policy %R~api:*", "CL.BAN alice api 60", false},
		{"+@policy %R~api:*", "CL.BANS api", true},
		{"+@policy ~api:*", "CL.BANS login", false},
		{"+@policy ~api:{shop-*", "CL.BANS api", false},
		{"+@policy -@admin ~*", "CL.BANS api", true},
		{"+@policy -@admin ~*", "CL.BAN alice api 60", false},
		{"+@policy -@dangerous ~*", "CL.BANS api", false},
		{"+@policy -@dangerous %R~api:*", "CL.HISTORY api", true},
		{"+@policy ~api:*", "CL.HISTORY login", false},
		{"+@policy ~api:{shop-*", "CL.HISTORY api", false},
		{"+@policy ~api:*", "CL.HISTORY *", false},
		{"+@policy ~api:*", "CL.HISTORY _other", false},
		{"+@policy ~?:*", "CL.HISTORY *", false},
		{"+@policy ~_*", "CL.HISTORY _other", false},
		{"+@policy ~*", "CL.HISTORY *", true},
		{"+@ratelimit ~*", "CL.HISTORY api", false},
	} {
		got := s.ConnectAs(t, test.rules).Do(t, test.call)
		require.Equal(t, test.allowed, !strings.HasPrefix(got, "-NOPERM"), "%s: %s: %s", test.rules, test.call, got)
	}
}

// A payload of DUMP keeps a ban, whatever the clocks are, and needs the right to CL.EXEMPT.
func TestRestoredStanding(t *testing.T) {
	one, other := commandstest.New(t), commandstest.New(t)
	other.Clock.Advance(-1000 * time.Hour)
	other.Clock.SetOffset(1000 * time.Hour)
	c := one.Connect()
	commandstest.Call(c, t, "CL.BAN", "eve", "login", "600", "a reason")
	commandstest.Call(c, t, "CL.EXEMPT", "eve", "login", "60")
	const key = "login:{eve}:standing"
	payload := commandstest.ReadBulk(t, c, "DUMP", key)
	require.NoError(t, one.Advance(100*time.Second))
	require.NoError(t, other.Advance(100*time.Second))
	to := other.Connect()
	require.Equal(t, "[0, 2, 1, -1, 60]", commandstest.Call(to, t, "CL.TAKE", "eve", "login"))
	require.Equal(t, "+OK", commandstest.Call(to, t, "RESTORE", key, "0", payload))
	require.Equal(t, payload, commandstest.ReadBulk(t, to, "DUMP", key))
	require.Equal(t, "[1, 2, 0, 500, 500]", commandstest.Call(to, t, "CL.TAKE", "eve", "login"))
	for rules, want := range map[string]string{
		"~login:* +restore +cl.exempt":                          "+OK",
		"~login:* +@all -cl.exempt":                             "-NOPERM User u has no permissions to run the 'cl.exempt' command",
		"~login:* +restore +@ratelimit":                         "-NOPERM User u has no permissions to run the 'cl.exempt' command",
		"%W~login:{eve}* +restore (~api:* +cl.exempt)":          "-NOPERM No permissions to access a key",
		"%W~login:{eve}* +restore (%RW~login:* +cl.exempt)":     "+OK",
		"%W~login:{eve}* +restore (%RW~login:{bob* +cl.exempt)": "-NOPERM No permissions to access a key",
	} {
		require.Equal(
			t,
			want,
			commandstest.Call(other.ConnectAs(t, rules), t, "RESTORE", key, "0", payload, "REPLACE"),
			rules,
		)
	}
}

// A standing of an older version, which counted by estimate, is loaded, and its refusals lead to a ban. The keys
// of newer versions are refused.
func TestRestoredStandingOfAnOlderVersion(t *testing.T) {
	s := commandstest.New(t)
	setPolicies(t, s, banPolicy)
	c, zero := s.Connect(), strings.Repeat("\x00", 8)
	const period = int64(10 * time.Minute)
	start := s.Clock.Now() + s.Clock.Offset()
	instant := func(at int64) string { return string(binary.BigEndian.AppendUint64(nil, uint64(at))) }
	old := "\x00cl1b\x01" + zero + "\x00" + zero + "\x00\x00" + zero + instant(start) + "\x00\x01" +
		string(binary.AppendUvarint(nil, uint64(2*period))) + instant(start+period) // one refusal
	const key = "p:{k}:standing"
	require.Equal(t, "+OK", commandstest.Call(c, t, "RESTORE", key, "0", commandstest.PayloadOf(old)))
	require.Contains(t, commandstest.Call(c, t, "CL.INSPECT", key), `"refusals", 1`)
	require.Equal(t, "[0, 1, 0, -1, 60]", commandstest.Call(c, t, "CL.TAKE", "k", "p"))
	require.Equal(t, "[1, 1, 0, 900, 900]", commandstest.Call(c, t, "CL.TAKE", "k", "p"))
	newer := "\x00cl1b\x03" + old[6:]
	require.Contains(t, commandstest.Call(c, t, "RESTORE", key, "0", commandstest.PayloadOf(newer), "REPLACE"), "-ERR ")
}

// A call that has waited does not count as a refusal, however it ends. A call that is refused at once
// counts, with and without WAIT or an ID.
func TestRefusalsThatCount(t *testing.T) {
	s := commandstest.New(t)
	setPolicies(t, s, banPolicy)
	c := s.Connect()
	for _, call := range []string{"CL.TAKE k p", "CL.TAKE k p 1 WAIT 1000 ID a", "CL.TAKE k p 1 PEEK",
		"CL.TAKE k p 1 FORCE",
		"CL.TAKE k p -1", "CL.TAKE k p 0", "CL.TAKE k p 9", "CL.TAKE l p 1 LEAVE 1", "CL.TAKE l p 1 LEAVE 1"} {
		require.NotContains(t, c.Do(t, call), ":900", call)
	}
	require.Equal(t, ":0\r\n", c.Do(t, "EXISTS p:{l}:standing"))
	require.Contains(t, c.Do(t, "CL.INSPECT p:{k}:standing"), "$8\r\nrefusals\r\n:1\r\n")
	// The first call waits long enough, and the second waits in vain.
	waiting, late := s.Connect(), s.Connect()
	require.NoError(t, waiting.Send([]byte("CL.TAKE k p 1 WAIT 90000\r\n")))
	require.NoError(t, late.Send([]byte("CL.TAKE k p 1 WAIT 61000\r\n")))
	require.NoError(t, s.Advance(70*time.Second))
	reply, err := waiting.Receive(0)
	require.NoError(t, err)
	require.Equal(t, "[0, 1, 0, -1, 60]", reply)
	reply, err = late.Receive(0)
	require.NoError(t, err)
	require.Contains(t, reply, "[1, 1, 0, ")
	require.Contains(t, c.Do(t, "CL.INSPECT p:{k}:standing"), "$8\r\nrefusals\r\n:1\r\n")
	require.Equal(t, integers(1, 1, 0, 900, 900), c.Do(t, "CL.TAKE k p 1 ID b"))
}

// While memory is full, exemptions and bans can be written, and a call is refused even if its refusal
// cannot be counted.
func TestStandingsWhileMemoryIsFull(t *testing.T) {
	s := commandstest.New(t)
	setPolicies(t, s, banPolicy)
	c := s.Connect()
	c.Do(t, "CL.TAKE old p")
	c.Do(t, "CL.TAKE new p")
	c.Do(t, "CL.TAKE old p")
	c.Do(t, "CONFIG SET maxmemory 1")
	for range 3 {
		require.Equal(t, integers(1, 1, 0, 60, 60), c.Do(t, "CL.TAKE new p"))
	}
	require.Equal(t, ":0\r\n", c.Do(t, "EXISTS p:{new}:standing"))
	require.Equal(t, integers(1, 1, 0, 900, 900), c.Do(t, "CL.TAKE old p"), "its key exists")
	require.Equal(t, "+OK\r\n", c.Do(t, "CL.EXEMPT new p 60 reason"))
	require.Equal(t, "+OK\r\n", c.Do(t, "CL.BAN another p 60"))
	require.Equal(t, integers(1, 1, 0, 60, 60), c.Do(t, "CL.TAKE another p"))
	require.Equal(t, ":1\r\n", c.Do(t, "CL.PARDON old p"))
	c.Do(t, "MULTI\r\nCL.BAN third p 60")
	require.Equal(t, "*1\r\n+OK\r\n", c.Do(t, "EXEC"))
}

// While the store fails, calls of banned subjects are also answered as --store-fails says, and no such
// answer counts as a refusal.
func TestStandingsWhileTheStoreFails(t *testing.T) {
	for policy, want := range map[string]string{
		"error": storeDown, "allow": integers(0, 1, 0, -1, 0), "deny": integers(1, 1, 0, 1, 1),
		"local": integers(0, 1, 0, -1, 60),
	} {
		s := newFailingServer(t, policy)
		setPolicies(t, s.Server, banPolicy[:len(banPolicy)-1]+", api: {limits: [{fixed: {limit: 1, period: 60s}}], "+
			"overrides: [{subject: evil, blocked: true}]}}")
		c := s.Connect()
		c.Do(t, "CL.BAN eve p 60")
		*s.fails = store.ErrDown
		require.Equal(t, want, c.Do(t, "CL.TAKE eve p"), policy)
		require.Equal(t, strings.HasPrefix(want, "-"), strings.HasPrefix(c.Do(t, "CL.ALL 1 TAKE eve p 1"), "-"), policy)
		require.Equal(t, integers(1, 0, 0, -1, 0), c.Do(t, "CL.TAKE evil api"), policy)
		require.Equal(t, storeDown, c.Do(t, "CL.BAN bob p 60"))
		c.Do(t, "CL.TAKE bob p")
		c.Do(t, "CL.TAKE bob p")
		c.Do(t, "CL.TAKE bob p")
		*s.fails = nil
		require.Equal(t, ":0\r\n", c.Do(t, "EXISTS p:{bob}:standing"), policy)
		require.Equal(t, integers(1, 1, 0, 60, 60), c.Do(t, "CL.TAKE eve p"))
	}
}
