package commands_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"cellserver/internal/command"
	"cellserver/internal/commands/commandstest"
	policies "cellserver/internal/policy"
	"cellserver/internal/racetest"
	"cellserver/internal/session/sessiontest"
	"cellserver/internal/store"
)

// explained are calls about a few keys and subjects. The mode of a call may follow.
var explained = []string{
	"CL.THROTTLE a 4 3 2 %d", "CL.FIXED b 5 4 %d", "CL.SLIDING c 5 4 %d", "CL.SLIDINGLOG d 5 4 %d", "CL.QUOTA e 5 hour %d",
	"CL.TAKE alice api %d", "CL.TAKE mallory guarded %d", "CL.TAKE evil api %d", "CL.TAKE bob new-plan %d",
	"CL.ALL 2 FIXED b 5 4 %[1]d TAKE alice pair %[1]d", "CL.ALL 2 TAKE alice new-plan %[1]d FIXED g 3 4 1", "GCRA a 4 3 2",
	"CL.ALL 1 FIXED h 5 4 1 ID x", "CL.FIXED i 5 4 1 ID x",
	"CL.ACQUIRE j 4 2 h1 %d", "CL.ACQUIRE j 4 2 h2 %d", "CL.ALL 2 ACQUIRE j 4 2 h3 %[1]d FIXED b 5 4 %[1]d",
	"CL.FIXED b 5 4 %d HOLD h 1s", "CL.FIXED b 5 4 %d HOLD i%[1]d 1s", "CL.SLIDING c 5 4 %d HOLD h 2s",
	"CL.TAKE alice api %d HOLD h 1s", "CL.TAKE evil api %d HOLD h 1s", "CL.TAKE bob new-plan %d HOLD h 1s",
	"CL.ALL 2 FIXED b 5 4 %[1]d TAKE alice pair %[1]d HOLD h 1s", "CL.FIXED b 5 4 1 SETTLE h", "CL.FIXED i 5 4 %d ID x",
}

// modes are options that may follow a call.
var modes = []string{"", "", " UPTO", " FORCE", " PEEK"}

// takesModes reports whether a mode may follow a call.
func takesModes(line string) bool {
	for _, part := range []string{"CL.ALL", "GCRA", " ID", "HOLD", "SETTLE", "CL.ACQUIRE"} {
		if strings.Contains(line, part) {
			return false
		}
	}
	return true
}

var (
	allowedField  = regexp.MustCompile(`"allowed", ([01]), "retry_after_ms", (-?\d+)`)
	firstIntegers = regexp.MustCompile(`^\[([01]), `)
)

// The call gets the reply that CL.EXPLAIN has predicted, whatever was called before, and the explanation changes
// neither keys nor counts.
func TestExplanationsAgreeWithCalls(t *testing.T) {
	racetest.HasOneGoroutine(t)
	for name, stage := range map[string]func(t *testing.T) *commandstest.Server{
		"memory": func(t *testing.T) *commandstest.Server { return commandstest.New(t) },
		"remote": func(t *testing.T) *commandstest.Server { return commandstest.RemoteStage(t).(*commandstest.Server) },
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(r *rapid.T) {
				s := stage(t)
				c := s.Connect()
				for range rapid.IntRange(1, 6).Draw(r, "calls") {
					line := rapid.SampledFrom(explained).Draw(r, "call")
					if strings.Contains(line, "%") {
						line = fmt.Sprintf(line, rapid.IntRange(1, 4).Draw(r, "quantity"))
					}
					if takesModes(line) {
						line += rapid.SampledFrom(modes).Draw(r, "mode")
					}
					agrees(r, c, line)
					require.NoError(r, s.Advance(time.Duration(rapid.IntRange(0, 3000).Draw(r, "ms"))*time.Millisecond))
				}
			})
		})
	}
}

func agrees(t *rapid.T, c *sessiontest.Client, line string) {
	said := c.Ask(t, "CL.EXPLAIN "+line)
	again := c.Ask(t, "CL.EXPLAIN "+line)
	require.Equal(t, said, again, "the explanation of %s has changed something", line)
	answer := c.Ask(t, line)
	if strings.Contains(line, "SETTLE") {
		require.Contains(t, said, "ERR a call with SETTLE is not decided")
		return
	}
	fields := allowedField.FindStringSubmatch(said)
	if fields == nil {
		require.Equal(t, said, answer, "an explanation fails as its call fails")
		return
	}
	limited := firstIntegers.FindStringSubmatch(answer)
	require.NotNil(t, limited, answer)
	forced := strings.HasSuffix(line, " FORCE") // taken, although the reply says that it exceeds the limit
	if forced && !strings.Contains(line, "evil") && !strings.Contains(said, `"ban"`) {
		require.Equal(t, "1", fields[1], said)
		return
	}
	require.NotEqual(t, limited[1], fields[1], "%s: %s: %s", line, said, answer)
}

// An explanation lists at most ten open holds and ten waiting calls of a limit, the first ones, and says that there are
// more.
func TestExplanationsListAtMostTen(t *testing.T) {
	s := commandstest.New(t)
	c := s.Connect()
	listed := func(name string) int {
		said := c.Ask(t, "CL.EXPLAIN CL.FIXED k 22 60")
		list := regexp.MustCompile(`"` + name + `", \[((?:\[[^]]*\](?:, )?)*)\]`).FindStringSubmatch(said)
		require.NotNil(t, list, said)
		return strings.Count(list[1], "[")
	}
	for n := 1; n <= 12; n++ {
		c.Do(t, fmt.Sprintf("CL.FIXED k 22 60 1 HOLD h%02d 50s", n))
		require.Equal(t, min(n, 10), listed("holds"))
	}
	require.Contains(t, c.Ask(t, "CL.EXPLAIN CL.FIXED k 22 60"), "open holds may give some back (the first 10 listed)")
	c.Do(t, "CL.FIXED k 22 60 10")
	for n := 1; n <= 12; n++ {
		waiting := s.Connect()
		require.NoError(t, waiting.Send([]byte("CL.FIXED k 22 60 1 WAIT 61000\r\n")))
		waiting.Settle()
		require.Equal(t, min(n, 10), listed("waiting"))
	}
}

// An explanation writes nothing, announces nothing and counts nothing.
func TestExplanationsLeaveNoTrace(t *testing.T) {
	s := commandstest.New(t)
	c, listener := s.Connect(), s.Connect()
	c.Do(t, "CONFIG SET notify-keyspace-events KEAmno")
	listener.Do(t, "PSUBSCRIBE *")
	before, top := c.Ask(t, "INFO cell"), c.Ask(t, "CL.TOP SEEN")
	for _, line := range explained {
		if strings.Contains(line, "%") {
			line = fmt.Sprintf(line, 3)
		}
		want := "why"
		if strings.Contains(line, "SETTLE") {
			want = "ERR"
		}
		require.Contains(t, c.Ask(t, "CL.EXPLAIN "+line), want, line)
	}
	require.Equal(t, "0", c.Ask(t, "DBSIZE"))
	require.Equal(t, before, c.Ask(t, "INFO cell"))
	require.Equal(t, top, c.Ask(t, "CL.TOP SEEN"))
	require.Empty(t, listener.Output())
}

// While the store does not answer, the explanation says which reply calls get instead.
func TestExplanationWhileStoreFails(t *testing.T) {
	for answer, allowed := range map[string]string{"allow": "1", "deny": "0", "error": "0", "local": "0"} {
		s := newFailingServer(t, answer)
		c := s.Connect()
		*s.fails = store.ErrDown
		said := c.Ask(t, "CL.EXPLAIN CL.FIXED k 1 60")
		require.Contains(t, said, "--store-fails says "+answer)
		require.Equal(t, allowed, allowedField.FindStringSubmatch(said)[1])
		require.Contains(t, c.Ask(t, "INFO store"), "store_failing:0", "it is not counted")
		*s.fails = nil
		require.Contains(t, c.Ask(t, "CL.EXPLAIN CL.FIXED k 1 60"), "0 of 1 used")
	}
}

// An explanation uses the policies with which its rights were checked, even if others come into force
// meanwhile.
func TestExplanationDuringReload(t *testing.T) {
	s := commandstest.New(t)
	file := t.TempDir() + "/policies.yaml"
	s.Policies.Read = func() ([]policies.File, error) {
		text, err := os.ReadFile(file)
		return []policies.File{{Name: "p.yaml", Text: text}}, err
	}
	reload := func(text string) {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		_, err := s.Policies.Reload()
		require.NoError(t, err)
	}
	reload("policies: {p: {limits: [{fixed: {limit: 2, period: 60s}}]}}")
	s.Plant("cl.explain", func(c *command.Call, run func(*command.Call) error) error {
		reload("policies: {p: {limits: [{quota: {limit: 9, per: day}}]}, q: {limits: [{fixed: {limit: 1, period: 1s}}]}}")
		return run(c)
	})
	c := s.ConnectAs(t, "+@ratelimit ~p:*")
	require.Contains(t, c.Ask(t, "CL.EXPLAIN CL.TAKE alice p"), "p.fixed: 0 of 2 used")
	require.Contains(t, c.Ask(t, "CL.EXPLAIN CL.TAKE alice p"), "p.quota-day: 0 of 9 used")
	require.Contains(t, c.Ask(t, "CL.EXPLAIN CL.TAKE alice q"), "NOPERM")
}
