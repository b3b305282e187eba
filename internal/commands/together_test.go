package commands

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/store"
)

// Clients that pause, unblock, watch and reconfigure one another at once all get their replies in the end, one a call.
func TestAdministratorsAtOnce(t *testing.T) {
	s := newStillOn(t, store.NewClock())
	calls := []string{"CLIENT PAUSE 1 WRITE", "CLIENT PAUSE 2", "CLIENT UNPAUSE", "WAIT 1 1", "WAIT 0 0", "CLIENT UNBLOCK 3", "CLIENT LIST",
		"CLIENT KILL ID 99999", "CL.THROTTLE k 15 30 60", "SET k v", "INFO ALL", "CONFIG SET timeout 5", "CONFIG GET *", "CONFIG RESETSTAT",
		"SLOWLOG GET", "CONFIG SET slowlog-log-slower-than 0", "CONFIG SET slowlog-log-slower-than -1", "SLOWLOG RESET", "LATENCY HISTOGRAM",
		"CONFIG SET latency-monitor-threshold 1", "LATENCY LATEST", "DEBUG SLEEP 0.001", "MEMORY STATS", "CLIENT SETNAME x", "NOSUCH"}
	var all sync.WaitGroup
	callers := make([]*caller, 8)
	for i := range callers {
		callers[i] = s.dial()
	}
	watcher := s.dial()
	require.Equal(t, "+OK\r\n", watcher.say(t, "MONITOR"))
	for i, c := range callers {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			for range 300 {
				if !c.answers(calls[random.IntN(len(calls))]) {
					t.Error("a call was not answered once")
					return
				}
			}
		})
	}
	all.Wait()
	watcher.settle()
	require.NotEmpty(t, watcher.output())
	s.instance.EndWaits()
	require.Zero(t, s.instance.waits.count())
}

// answers says a call, waits as long as that takes, and says whether there was one reply.
func (c *caller) answers(call string) bool {
	if err := c.Send([]byte(call + "\r\n")); err != nil {
		return false
	}
	for c.session.Owing() {
		<-c.woken
		c.settle()
	}
	_, err := c.Receive(0)
	return err == nil && len(c.heard) == 0
}
