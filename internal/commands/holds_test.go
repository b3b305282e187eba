package commands_test

import (
	"cmp"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/commands/commandstest"
	"cellserver/internal/session/sessiontest"
)

// A SETTLE that is sent again gets the first reply, and gives back nothing more.
func TestRepeatedSettlementsGiveBackOnce(t *testing.T) {
	c := commandstest.New(t).Connect()
	require.Equal(t, integers(0, 10000, 7000, -1, 60), c.Do(t, "CL.FIXED k 10000 60 3000 HOLD a 10m"))
	for range 3 {
		require.Equal(t, integers(0, 10000, 8800, -1, 60, -1800), c.Do(t, "CL.FIXED k 10000 60 1200 SETTLE a"))
	}
	require.Contains(t, c.Do(t, "INFO cell"), "cell_holds_given_back:1800\r\n")
}

// INFO counts the holds that calls of this server have made and settled, wherever the holds are. Only a server whose
// holds are in memory knows how many are open, and how many have lapsed.
func TestHoldsAreCounted(t *testing.T) {
	for open, server := range map[string]*commandstest.Server{
		"\r\ncell_holds:1\r\ncell_holds_lapsed:0\r\ncell_holds_lapsed_early:0": commandstest.New(t),
		"": commandstest.RemoteStage(t).(*commandstest.Server),
	} {
		c := server.Connect()
		for _, call := range []string{"7 HOLD a 10m", "7 HOLD a 10m", "3 HOLD b 10m", "5 HOLD c 10m", "9999 HOLD d 10m",
			"5 SETTLE a", "5 SETTLE a", "5 SETTLE unknown", "1 SETTLE other FORCE", "5 SETTLE c"} {
			c.Do(t, "CL.FIXED k 100 60 "+call)
		}
		info := c.Do(t, "INFO cell")
		require.Contains(t, info, open+"\r\ncell_holds_made:3\r\ncell_holds_settled:2\r\ncell_holds_given_back:2\r\n")
		require.Equal(t, open != "", strings.Contains(info, "cell_holds_lapsed"))
	}
}

// A hold counts once for each key that it has charged, and that of CL.TAKE once more.
func TestHoldsOfPoliciesAreCounted(t *testing.T) {
	s := commandstest.New(t)
	setPolicies(t, s, "{p: {limits: ["+oneOfTwo+", "+otherOfTwo+"]}}")
	c := s.Connect()
	c.Do(t, "CL.TAKE user p 7 HOLD a 10m")
	require.Contains(t, c.Do(t, "INFO cell"), "\r\ncell_holds:3\r\n")
	c.Do(t, "CL.TAKE user p 3 SETTLE a")
	require.Contains(t, c.Do(t, "INFO cell"), "\r\ncell_holds:0\r\n")
}

// Five connections of LiteLLM's users call at the same time, with 100 tokens a minute and estimates of 30, more than
// are used. What is admitted as estimated, and settled as used, is never more than 100 together; in the end, what was
// used is charged, and there is too little left for an estimate.
func TestConcurrentCallsOfAModel(t *testing.T) {
	for name, s := range map[string]*commandstest.Server{
		"in memory": commandstest.New(t), "over a store": commandstest.RemoteStage(t).(*commandstest.Server),
	} {
		var admitted, refused, used atomic.Int64 // a call is admitted a little earlier than it counts here
		var all sync.WaitGroup
		for n := range 5 {
			c := s.Connect()
			all.Go(func() {
				for i := 0; used.Load() <= 70 || refused.Load() == 0; i++ {
					id, actual := fmt.Sprint(n, ".", i), int64(n+i)%4
					if reply := c.Ask(t, "CL.FIXED tenant 100 60 30 HOLD %s 10m", id); reply[:2] == "[1" {
						refused.Add(1)
						continue
					}
					assert.LessOrEqual(t, admitted.Add(30), int64(100), name)
					assert.LessOrEqual(t, used.Add(actual), int64(100), name)
					admitted.Add(actual - 30)
					c.Ask(t, "CL.FIXED tenant 100 60 %d SETTLE %s", actual, id)
				}
			})
		}
		all.Wait()
		left := 100 - int(used.Load())
		require.Equal(t, integers(0, 100, left, -1, 60), s.Connect().Do(t, "CL.FIXED tenant 100 60 0"), name)
	}
}

// Tokens that a SETTLE gives back admit a call that waits for them, with every limiter.
func TestSettlementsAdmit(t *testing.T) {
	server := commandstest.New(t)
	setPolicies(t, server, "{p: {limits: [{fixed: {limit: 10, period: 600s}}]}}")
	s := server.Server
	other := s.Connect()
	defer other.Session.Close()
	for _, call := range []string{
		"CL.THROTTLE throttle 9 10 600 %d", "CL.FIXED fixed 10 600 %d", "CL.SLIDING sliding 10 600 %d",
		"CL.SLIDINGLOG log 10 600 %d", "CL.QUOTA quota 10 HOUR@UTC %d", "CL.TAKE user p %d",
		"CL.ALL 2 FIXED a 10 600 %d FIXED b 99 3600 1",
	} {
		made := func(quantity int, options string) string { return fmt.Sprintf(call, quantity) + options }
		require.NotContains(t, other.Ask(t, "%s", made(10, " HOLD id 1h")), "ERR")
		waiting := s.Connect()
		require.Empty(t, waiting.Ask(t, "%s", made(1, " WAIT 3600000")), call)
		require.NotContains(t, other.Ask(t, "%s", made(4, " SETTLE id")), "HOLD", call)
		require.True(t, strings.HasPrefix(waiting.Reply(), "[0, "), "%s: it still waits", call)
		waiting.Session.Close()
	}
}

// Only users that may take from a key may settle its holds, whoever made them. CL.HOLDS reads the key.
func TestRightsToHolds(t *testing.T) {
	s := commandstest.New(t)
	setPolicies(t, s, "{p: {limits: [{fixed: {limit: 10, period: 600s}}]}}")
	admin := s.Connect()
	for _, user := range []string{
		"taker on >x ~k* ~p:* +cl.fixed +cl.take +cl.all", "reader on >x %R~k* +cl.fixed +cl.holds +cl.all",
		"other on >x ~other* +cl.fixed +cl.holds +cl.take +cl.all", "lists on >x ~k* +cl.holds",
	} {
		require.Equal(t, "+OK\r\n", admin.Do(t, "ACL SETUSER "+user))
	}
	as := func(user, call string) string {
		c := s.Connect()
		require.Equal(t, "+OK\r\n", c.Do(t, "AUTH "+user+" x"))
		return c.Do(t, call)
	}
	for _, hold := range []string{
		"CL.FIXED k 10 60 5 HOLD a 1m", "CL.TAKE u p 5 HOLD a 1m", "CL.ALL 1 FIXED k2 10 60 5 HOLD a 1m",
	} {
		require.NotContains(t, admin.Do(t, hold), "ERR")
	}
	for call, users := range map[string][]string{
		"CL.FIXED k 10 60 2 SETTLE a":         {"reader", "other", "lists"},
		"CL.TAKE u p 2 SETTLE a":              {"reader", "other", "lists"},
		"CL.ALL 1 FIXED k2 10 60 2 SETTLE a":  {"reader", "other", "lists"},
		"CL.HOLDS k":                          {"taker", "other"},
		"CL.FIXED k 10 60 2 SETTLE a FORCE":   {"reader", "other"},
		"CL.FIXED k 10 60 2 HOLD b 1m":        {"reader", "other"},
		"CL.ALL 1 FIXED k2 10 60 2 HOLD b 1m": {"reader", "other"},
	} {
		for _, user := range users {
			require.Contains(t, as(user, call), "-NOPERM", "%s: %s", user, call)
		}
	}
	require.Contains(t, as("reader", "CL.HOLDS k"), "$1\r\na\r\n")
	require.Contains(t, as("lists", "CL.HOLDS k"), "$1\r\na\r\n")
	for _, settle := range []string{
		"CL.FIXED k 10 60 2 SETTLE a", "CL.TAKE u p 2 SETTLE a", "CL.ALL 1 FIXED k2 10 60 2 SETTLE a",
	} {
		require.Contains(t, as("taker", settle), ":-3\r\n", settle)
	}
}

// reloads are policies before HOLD and after it, and what the limits show then: when a hold of 10 is settled, and when
// both limits are there again.
var reloads = map[string]struct{ before, after, quantity, settled, left string }{
	"the second is lost": {oneOfTwo + ", " + otherOfTwo, oneOfTwo, "4", `["fixed", [0, 100, 96, -1, 600, -6]]`,
		`["fixed", [0, 100, 96, -1, 600], "throttle", [0, 100, 90, -1, 60]]`},
	"the first is lost": {oneOfTwo + ", " + otherOfTwo, otherOfTwo, "4", `["throttle", [0, 100, 96, -1, 24, -6]]`,
		`["fixed", [0, 100, 90, -1, 600], "throttle", [0, 100, 96, -1, 24]]`},
	"one is added": {oneOfTwo, oneOfTwo + ", " + otherOfTwo, "4",
		`["fixed", [0, 100, 96, -1, 600, -6], "throttle", [0, 100, 100, -1, 0, 0]]`,
		`["fixed", [0, 100, 96, -1, 600], "throttle", [0, 100, 100, -1, 0]]`},
	"one is added, and more was used": {oneOfTwo, oneOfTwo + ", " + otherOfTwo, "15",
		`["fixed", [0, 100, 85, -1, 600, 5], "throttle", [0, 100, 95, -1, 30, 5]]`,
		`["fixed", [0, 100, 85, -1, 600], "throttle", [0, 100, 95, -1, 30]]`},
	"one takes the place of the other": {oneOfTwo, otherOfTwo, "15", `["throttle", [0, 100, 95, -1, 30, 5]]`,
		`["fixed", [0, 100, 90, -1, 600], "throttle", [0, 100, 95, -1, 30]]`},
	"it is larger": {oneOfTwo, "{fixed: {limit: 200, period: 600s}}", "4", `["fixed", [0, 200, 196, -1, 600, -6]]`,
		`["fixed", [0, 100, 96, -1, 600], "throttle", [0, 100, 100, -1, 0]]`},
	"its period is shorter": {oneOfTwo, "{fixed: {limit: 100, period: 60s}}", "4", `["fixed", [0, 100, 96, -1, 600, -6]]`,
		`["fixed", [0, 100, 96, -1, 600], "throttle", [0, 100, 100, -1, 0]]`},
}

const oneOfTwo, otherOfTwo = "{fixed: {limit: 100, period: 600s}}", "{throttle: {burst: 100, rate: 1/6s}}"

// A reload between HOLD and SETTLE: a limit that the policy has lost is passed over, and of one that it has got, only
// an excess is taken. A SETTLE that is repeated after another reload gets the first decision again.
func TestSettlementsAfterReloads(t *testing.T) {
	for name, s := range map[string]*commandstest.Server{
		"in memory": commandstest.New(t), "over a store": commandstest.RemoteStage(t).(*commandstest.Server),
	} {
		c := s.Connect()
		reload := func(limits string) { setPolicies(t, s, "{p: {limits: ["+limits+"]}}") }
		for reloaded, of := range reloads {
			subject := strings.ReplaceAll(reloaded, " ", "-")
			limits := func(words string) string {
				_, rest, _ := strings.Cut(c.Ask(t, "CL.TAKE "+subject+" p "+words+" VERBOSE"), `"limits", `)
				shown, _, _ := strings.Cut(rest, `, "fields"`)
				return shown
			}
			reload(of.before)
			limits("10 HOLD a 1h")
			reload(of.after)
			require.Equal(t, of.settled, limits(of.quantity+" SETTLE a"), "%s: %s", name, reloaded)
			first := c.Ask(t, "CL.TAKE "+subject+" p "+of.quantity+" SETTLE a")
			for _, next := range []string{oneOfTwo, otherOfTwo, oneOfTwo + ", " + otherOfTwo} {
				reload(next)
				require.Equal(t, first, c.Ask(t, "CL.TAKE "+subject+" p "+of.quantity+" SETTLE a"), "%s: %s", name, reloaded)
			}
			require.Equal(t, of.left, limits("0"), "%s: %s", name, reloaded)
		}
	}
}

// The hold of a subject that is exempt by the policy is empty, also if a reload ends this before it is settled, or
// before the SETTLE is repeated; and a hold of a limit is settled without effect while its subject is exempt.
func TestSettlementsOfExemptSubjects(t *testing.T) {
	const limits = "limits: [" + oneOfTwo + "]"
	for _, s := range []*commandstest.Server{commandstest.New(t), commandstest.RemoteStage(t).(*commandstest.Server)} {
		c := s.Connect()
		exempts := func(subject string) {
			setPolicies(t, s, "{p: {"+limits+", overrides: [{subject: "+subject+", unlimited: true}]}}")
		}
		const empty = "[0, 9223372036854775807, 9223372036854775807, -1, 0, 0]"
		exempts("early")
		require.Contains(t, c.Ask(t, "CL.TAKE early p 10 HOLD a 1h"), "[0, 9223372036854775807")
		require.Contains(t, c.Ask(t, "CL.TAKE early p 10 HOLD b 1h"), "[0, 9223372036854775807")
		require.Equal(t, empty, c.Ask(t, "CL.TAKE early p 12 SETTLE a"))
		require.Equal(t, "[0, 100, 90, -1, 600]", c.Ask(t, "CL.TAKE late p 10 HOLD a 1h"))
		exempts("late")
		require.Equal(t, empty, c.Ask(t, "CL.TAKE early p 12 SETTLE a"))
		require.Equal(t, "[0, 100, 100, -1, 0, 0]", c.Ask(t, "CL.TAKE early p 12 SETTLE b"))
		require.Equal(t, empty, c.Ask(t, "CL.TAKE late p 4 SETTLE a"))
		exempts("other")
		require.Equal(t, empty, c.Ask(t, "CL.TAKE late p 4 SETTLE a"))
		require.Equal(t, "[0, 100, 90, -1, 600]", c.Ask(t, "CL.TAKE late p 0"))
	}
}

// A SETTLE of a limiter on the key that the ID of a policy's call belongs to is refused, if that call was settled with
// another number of limits than one.
func TestSettlementsOfHoldsOfPolicies(t *testing.T) {
	for _, s := range []*commandstest.Server{commandstest.New(t), commandstest.RemoteStage(t).(*commandstest.Server)} {
		const overrides = "overrides: [{subject: exempt, unlimited: true}]"
		setPolicies(t, s, "{p: {limits: ["+oneOfTwo+", "+otherOfTwo+"], "+overrides+"}}")
		c := s.Connect()
		for _, subject := range []string{"exempt", "other"} {
			c.Do(t, "CL.TAKE "+subject+" p 7 HOLD a 10m")
			c.Do(t, "CL.TAKE "+subject+" p 3 SETTLE a")
			reply := c.Do(t, "CL.FIXED p:{"+subject+"}:standing 100 600 3 SETTLE a")
			require.Equal(t, "-ERR ID was used for another call\r\n", reply, subject)
		}
	}
}

// When memory is full, a call with HOLD is refused, or limited, and takes nothing. SETTLE works: it gives back, takes
// an excess, and with FORCE charges what is not known, also from a bucket that is full again and has no state. So it
// does in a transaction.
func TestHoldsWhenMemoryIsFull(t *testing.T) {
	const oom = "-OOM command not allowed when used memory > 'maxmemory'.\r\n"
	for _, call := range []string{
		"CL.THROTTLE throttle 99 100 600 %s", "CL.FIXED fixed 100 600 %s", "CL.SLIDING sliding 100 600 %s",
		"CL.SLIDINGLOG log 100 600 %s", "CL.QUOTA quota 100 HOUR@UTC %s", "CL.TAKE user p %s",
		"CL.ALL 1 FIXED a 100 600 %s",
	} {
		f := commandstest.NewMemoryServer(t)
		setPolicies(t, f.Server, "{p: {limits: [{fixed: {limit: 100, period: 600s}}]}}")
		c := f.Connect()
		do := func(words string) string { return c.Do(t, fmt.Sprintf(call, words)) }
		for _, id := range []string{"less", "more", "zero", "queued"} {
			require.Contains(t, do("10 HOLD "+id+" 1h"), ":0\r\n:100\r\n", call)
		}
		f.Outside = 2000
		require.True(t, f.IsFull())
		require.Equal(t, oom, do("10 HOLD new 1h"), call)
		require.Equal(t, "+OK\r\n", c.Do(t, "CONFIG SET oom-decision limit"))
		require.Contains(t, do("10 HOLD new 1h"), "\r\n:1\r\n", call)
		for _, of := range []struct{ words, left, corrected string }{
			{"4 SETTLE less", ":66\r\n", ":-6\r\n"}, {"4 SETTLE less", ":66\r\n", ":-6\r\n"},
			{"15 SETTLE more", ":61\r\n", ":5\r\n"}, {"0 SETTLE zero", ":71\r\n", ":-10\r\n"},
		} {
			reply := do(of.words)
			require.Contains(t, reply, of.left, "%s: %s", call, of.words)
			require.True(t, strings.HasSuffix(reply, of.corrected), "%s: %s: %s", call, of.words, reply)
		}
		c.Do(t, "MULTI")
		require.Equal(t, "+QUEUED\r\n", do("3 SETTLE queued"), call)
		require.True(t, strings.HasSuffix(c.Do(t, "EXEC"), ":-7\r\n"), call)
		require.Contains(t, do("2 FORCE SETTLE unknown"), ":76\r\n", call)
		require.NoError(t, f.Advance(2*time.Hour))
		require.Contains(t, do("4 FORCE SETTLE later"), ":96\r\n", call)
	}
}

// What becomes of the holds of two keys, a with the hold x and b with the hold y, after a call: the holds of a and b,
// in memory and over a store, where SET and MSET end none. {a} is the payload of DUMP a.
var replacements = []struct{ call, inMemory, overStore string }{
	{"DEL b", "x;", "x;"},
	{"UNLINK b", "x;", "x;"},
	{"SET b v", "x;", "x;y"},
	{"MSET b v", "x;", "x;y"},
	{"SETNX b v", "x;y", "x;y"},
	{"RENAME a b", ";x", ";x"},
	{"RENAME b a", "y;", "y;"},
	{"RENAMENX a b", "x;y", "x;y"},
	{"COPY a b", "x;y", "x;y"},
	{"COPY a b REPLACE", "x;", "x;"},
	{"RESTORE b 0 {a}", "x;y", "x;y"},
	{"RESTORE b 0 {a} REPLACE", "x;", "x;"},
	{"RESTORE b 0 {text} REPLACE", "x;", "x;"},
	{"MULTI,RESTORE b 0 {a} REPLACE,EXEC", "x;", "x;"},
	{"MULTI,RENAME a b,EXEC", ";x", ";x"},
	{"MOVE b 1", "x;", ""},
	{"SWAPDB 0 1", ";", ""},
	{"SWAPDB 0 1,SWAPDB 0 1", "x;y", ""},
	{"MOVE b 1,SELECT 1,MOVE b 0,SELECT 0", "x;y", ""},
	{"FLUSHDB", ";", ";"},
	{"GETDEL b", "", ""}, // only CL.THROTTLE, whose state is an integer to other commands
	{"GETSET b v", "", ""},
}

// A key that is removed or replaced loses its holds, and one that is moved keeps them: they can be settled under its
// new name. DUMP and COPY carry none.
func TestHoldsOfReplacedKeys(t *testing.T) {
	for _, limiter := range []string{"CL.FIXED %s 10 600 ", "CL.THROTTLE %s 9 10 600 ", "CL.SLIDINGLOG %s 10 600 "} {
		for _, of := range replacements {
			if strings.HasPrefix(of.call, "GET") && strings.HasPrefix(limiter, "CL.THROTTLE") {
				of.inMemory, of.overStore = "x;", "x;"
			}
			for s, want := range map[*commandstest.Server]string{
				commandstest.New(t): of.inMemory, commandstest.RemoteStage(t).(*commandstest.Server): of.overStore,
			} {
				if want != "" {
					requireHoldsAfter(t, s.Connect(), limiter, of.call, want)
				}
			}
		}
	}
}

// requireHoldsAfter makes the holds, and then calls, and requires that the keys have the holds that are wanted.
func requireHoldsAfter(t *testing.T, c *sessiontest.Client, limiter, calls, want string) {
	on := func(key, words string) string { return c.Ask(t, limiter+words, key) }
	require.Equal(t, "[0, 10, 6", on("a", "4 HOLD x 1h")[:9])
	require.Equal(t, "[0, 10, 7", on("b", "3 HOLD y 1h")[:9])
	c.Ask(t, "SET text value")
	payloads := map[string]string{}
	for _, key := range []string{"a", "text"} {
		payloads["{"+key+"}"] = commandstest.ReadBulk(t, c, "DUMP", key)
	}
	for call := range strings.SplitSeq(calls, ",") {
		words := strings.Fields(call)
		for i := range words {
			words[i] = cmp.Or(payloads[words[i]], words[i])
		}
		require.NoError(t, c.Send(commandstest.Encode(words)))
	}
	c.Read()
	c.Output()
	wanted := strings.Split(want, ";")
	for i, key := range []string{"a", "b"} {
		listed := c.Ask(t, "CL.HOLDS "+key)
		require.Equal(t, wanted[i] != "", strings.HasPrefix(listed, `[["`+wanted[i]+`"`), "%s%s: %s", limiter, calls, listed)
		for id, charged := range map[string]int{"x": 4, "y": 3} {
			switch reply := on(key, "1 SETTLE "+id); {
			case id == wanted[i] && !strings.HasPrefix(reply, "-WRONGTYPE"):
				require.Contains(t, reply, fmt.Sprintf(", %d]", 1-charged), "%s%s: %s of %s", limiter, calls, id, key)
			case id != wanted[i]:
				require.Regexp(t, "^-(NOHOLD|WRONGTYPE) ", reply, "%s%s: %s of %s", limiter, calls, id, key)
			}
		}
	}
}
