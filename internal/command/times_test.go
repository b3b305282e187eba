package command_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/command"
	"cellserver/internal/commands/commandstest"
	"cellserver/internal/session/sessiontest"
	"cellserver/internal/stats"
	"cellserver/internal/store"
)

// nsOfAll returns the time of the calls of all commands, in nanoseconds.
func nsOfAll(s *commandstest.Server) (sum int64) {
	s.Instance.EachCalled(func(_ *command.Command, r *stats.Calls) { sum += r.Ns.Load() })
	return sum
}

// The times of all commands together never exceed the time that has passed, and every command that was called
// has some time. This is true for quick and for slow commands, in pipelines, in transactions, and if each
// call is timed.
func TestTimesAreShares(t *testing.T) {
	calls := []string{"PING", "GET n", "INCR n", "TTL n", "CL.THROTTLE k 0 1 1000", "TIME", "MGET a b", "ECHO x",
		"MULTI\r\nSTRLEN n\r\nMGET a b\r\nEXISTS n\r\nEXEC", "INFO commandstats", "nosuch", "MULTI\r\nSCAN 0\r\nEXEC"}
	for _, slower := range []string{"10000", "0"} { // microseconds: with 0, every call is timed
		clock := &sessiontest.TickingClock{Start: commandstest.Start}
		s := commandstest.NewOn(t, clock)
		c := s.Connect()
		c.Do(t, "CONFIG SET slowlog-log-slower-than "+slower)
		c.Do(t, "CONFIG RESETSTAT")
		random := rand.New(rand.NewPCG(1, 1))
		for range 300 {
			before, began := nsOfAll(s), clock.Readings.Load()
			var pipeline strings.Builder
			for range 1 + random.IntN(40) {
				pipeline.WriteString(calls[random.IntN(len(calls))] + "\r\n")
			}
			require.NoError(t, c.Send([]byte(pipeline.String())))
			c.Output()
			took := (clock.Readings.Load() - began) * int64(time.Second)
			require.LessOrEqual(t, nsOfAll(s)-before, took, pipeline.String())
		}
		s.Instance.EachCalled(func(row *command.Command, r *stats.Calls) {
			assert.True(t, r.Calls.Load() == 0 || r.Ns.Load() > 0, row.Name)
		})
	}
}

// A call that takes long counts once, whether it is the first call of its command or a later call that is
// timed. Here 6,400 calls take a microsecond each, except for two calls that take a second.
func TestSlowCallsAreNotMultiplied(t *testing.T) {
	clock := store.NewStillClock(commandstest.Start)
	s, made := commandstest.NewOn(t, clock), 0
	s.AddRows(&command.Command{Name: "work", Flags: command.Fast, Cost: command.Constant,
		Run: func(c *command.Call) error {
			clock.Advance(time.Microsecond)
			if made++; made == 1 || c.Session.OnSlowPath() && made > 3000 && made <= 3128 {
				clock.Advance(time.Second)
			}
			c.Out.Status("OK")
			return nil
		}})
	c := s.Connect()
	for range 6400 {
		c.Do(t, "WORK")
	}
	r := s.Instance.Stats.Of(s.Instance.Table.ByName["work"].Number)
	assert.Equal(t, int64(6400), r.Calls.Load())
	assert.Equal(t, int64(2*time.Second+6400*time.Microsecond), r.Ns.Load())
	timed, pairs := r.Histogram()
	assert.Equal(t, []int64{2, timed - 2, 1 << 20, timed}, pairs, "the histogram has what was timed, each call once")
	assert.Contains(t, c.Do(t, "INFO commandstats"),
		"cmdstat_work:calls=6400,usec=2006400,usec_per_call=313.50,rejected_calls=0,failed_calls=0")
	assert.NotContains(t, c.Do(t, "INFO latencystats"), "usec_work", "fewer than 100 calls were timed")
	for range 6400 {
		c.Do(t, "WORK")
	}
	assert.Contains(t, c.Do(t, "INFO latencystats"), "latency_percentiles_usec_work:p50=2.000,p99=1048576.000\r\n",
		"of some 100 calls, two were slow; nothing is known of one in a thousand")
}

// Some calls are timed even if each client makes one call and leaves.
func TestShortSessionsAreSampled(t *testing.T) {
	s := commandstest.New(t)
	for range 1000 {
		c := s.Connect()
		c.Do(t, "GET k")
		c.Close()
	}
	timed, _ := s.Instance.Stats.Of(s.Instance.Table.ByName["get"].Number).Histogram()
	assert.Greater(t, timed, int64(5))
}

// The calls of a pipeline share the time of its turn.
func TestPipelineSharesItsTurn(t *testing.T) {
	clock := &sessiontest.TickingClock{Start: commandstest.Start}
	s := commandstest.NewOn(t, clock)
	c := s.Connect()
	c.Do(t, "GET k")
	c.Do(t, "TTL k") // the first call of a command is timed
	c.Do(t, "CONFIG RESETSTAT")
	for _, row := range []string{"get", "ttl"} {
		s.Instance.Stats.Of(s.Instance.Table.ByName[row].Number).Observe(1)
	}
	c.Do(t, "GET k\r\nGET k\r\nTTL k\r\nGET k") // the clock is read before and after
	of := func(row string) int64 { return s.Instance.Stats.Of(s.Instance.Table.ByName[row].Number).Ns.Load() }
	assert.Equal(t, int64(750*time.Millisecond), of("get"))
	assert.Equal(t, int64(250*time.Millisecond), of("ttl"))
}
