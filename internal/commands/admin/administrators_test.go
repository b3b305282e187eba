package admin_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/commands/commandstest"
	"cellserver/internal/session/sessiontest"
	"cellserver/internal/store"
)

// Clients that pause, unblock, watch and reconfigure one another concurrently get one reply per
// call.
func TestConcurrentAdministrators(t *testing.T) {
	s := commandstest.NewOn(t, store.NewClock())
	watcher := s.Connect()
	require.Equal(t, "+OK\r\n", watcher.Do(t, "MONITOR"))
	require.Zero(t, runAdministrators(s, "CLIENT UNBLOCK 3"))
	watcher.Settle()
	require.NotEmpty(t, watcher.Output())
	s.Instance.UnblockAll()
	require.Zero(t, s.Instance.Blocked.Count())
}

// The test above finds an UNBLOCK that ends a wait but leaves it to the timer too, so that a client
// gets a second reply.
func TestExtraReplyIsFound(t *testing.T) {
	s := commandstest.NewOn(t, store.NewClock())
	s.AddRows((&command.Command{Name: "halfunblock", Run: func(c *command.Call) error {
		for _, other := range s.Instance.Clients.All() {
			if other.State() > client.Parked {
				other.Deliver(client.Delivery{Reply: [][]byte{[]byte(":0\r\n")}})
			}
		}
		c.Out.Status("OK")
		return nil
	}}))
	require.NotZero(t, runAdministrators(s, "HALFUNBLOCK"))
}

// runAdministrators lets eight clients make administrative calls, and one more call, concurrently.
// It returns how many calls did not get exactly one reply.
func runAdministrators(s *commandstest.Server, call string) (wrong int64) {
	calls := []string{"CLIENT PAUSE 1 WRITE", "CLIENT PAUSE 2", "CLIENT UNPAUSE", "WAIT 1 1", "WAIT 0 0", "CLIENT LIST",
		"CLIENT KILL ID 99999", "CL.THROTTLE k 15 30 60", "SET k v", "INFO ALL", "CONFIG SET timeout 5", "CONFIG GET *",
		"CONFIG RESETSTAT",
		"SLOWLOG GET", "CONFIG SET slowlog-log-slower-than 0", "CONFIG SET slowlog-log-slower-than -1", "SLOWLOG RESET",
		"LATENCY HISTOGRAM",
		"CONFIG SET latency-monitor-threshold 1", "LATENCY LATEST", "DEBUG SLEEP 0.001", "MEMORY STATS", "CLIENT SETNAME x",
		"NOSUCH", call}
	var all sync.WaitGroup
	var missed atomic.Int64
	for i := range 8 {
		c := s.Connect()
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			for range 300 {
				if !getsOneReply(c, calls[random.IntN(len(calls))]) {
					missed.Add(1)
					return
				}
			}
		})
	}
	all.Wait()
	return missed.Load()
}

// getsOneReply makes a call, waits for it to end, and reports whether there was exactly one reply.
func getsOneReply(c *sessiontest.Client, call string) bool {
	if err := c.Send([]byte(call + "\r\n")); err != nil {
		return false
	}
	for c.Session.HasUnanswered() {
		<-c.Woken
		c.Settle()
	}
	_, err := c.Receive(0)
	return err == nil && len(c.Received) == 0
}
