package commands_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"cellserver/internal/commands/commandstest"
	"cellserver/internal/racetest"
	"cellserver/internal/session/sessiontest"
)

// crowd is a number of clients. Each makes a call with WAIT, and makes it again as soon as it is
// admitted.
type crowd struct {
	server  *commandstest.Server
	clients []*sessiontest.Client
	calls   []string
	since   []int64 // when the call was sent
	rounds  []int   // how often the call was admitted
	ends    bool    // clients make no further calls
}

func newCrowd(s *commandstest.Server) *crowd { return &crowd{server: s} }

// join adds a client, and makes its call.
func (c *crowd) join(t require.TestingT, format string, words ...any) {
	c.clients = append(c.clients, c.server.Connect())
	c.calls = append(c.calls, fmt.Sprintf(format, words...)+" WAIT 3600000")
	c.since, c.rounds = append(c.since, 0), append(c.rounds, 0)
	c.call(t, len(c.clients)-1)
}

// call makes the call of a client, until it waits.
func (c *crowd) call(t require.TestingT, i int) {
	for c.since[i] = c.server.Clock.Now(); ; c.rounds[i]++ {
		line := c.clients[i].Ask(t, "%s", c.calls[i])
		if line == "" {
			return
		}
		require.True(t, strings.HasPrefix(line, "[0, "), "%s: %s", c.calls[i], line)
	}
}

// pass lets time pass, and lets clients that are admitted call again.
func (c *crowd) pass(t require.TestingT, d time.Duration) {
	require.NoError(t, c.server.Advance(d))
	for i, client := range c.clients {
		line := client.Reply()
		if line == "" {
			continue
		}
		require.True(t, strings.HasPrefix(line, "[0, "), "%s: %s", c.calls[i], line)
		if c.rounds[i]++; c.ends {
			c.since[i] = -1
		} else {
			c.call(t, i)
		}
	}
}

// longest returns how long the client has waited that has waited longest.
func (c *crowd) longest() (longest time.Duration) {
	for _, since := range c.since {
		if since >= 0 {
			longest = max(longest, time.Duration(c.server.Clock.Now()-since))
		}
	}
	return longest
}

// close disconnects the clients.
func (c *crowd) close() {
	for _, client := range c.clients {
		client.Session.Close()
	}
}

// starving has a CL.ALL on keys that others use.
type starving struct {
	take   []string      // the words of the limiter on each key, between the key and the quantity
	kind   []string      // of these limiters
	apart  time.Duration // each key is first used so long after the one before
	others int           // other clients for each key
	within time.Duration // the time within which the CL.ALL is admitted
}

// A CL.ALL is admitted even if other waiting calls use its keys, and the keys have enough tokens at different
// instants. Once it was not admitted within 10 minutes.
var starvings = map[string]starving{
	"one a second, half a second apart": {kind: []string{"THROTTLE", "THROTTLE"}, take: []string{"0 1 1", "0 1 1"},
		apart: 500 * time.Millisecond, others: 2, within: 15 * time.Second},
	"longer lines": {kind: []string{"THROTTLE", "THROTTLE"}, take: []string{"0 1 1", "0 1 1"},
		apart: 300 * time.Millisecond, others: 9, within: 60 * time.Second},
	"three keys": {kind: []string{"THROTTLE", "THROTTLE", "THROTTLE"}, take: []string{"0 1 1", "0 1 1", "0 1 1"},
		apart: 300 * time.Millisecond, others: 1, within: 30 * time.Second},
	"one key is slower": {kind: []string{"THROTTLE", "THROTTLE"}, take: []string{"0 1 1", "0 1 7"},
		apart: 500 * time.Millisecond, others: 2, within: 100 * time.Second},
	"windows of several": {kind: []string{"FIXED", "SLIDINGLOG"}, take: []string{"4 8", "4 8"},
		apart: 4 * time.Second, others: 5, within: 200 * time.Second},
	"a window and a rate": {kind: []string{"FIXED", "THROTTLE"}, take: []string{"2 8", "0 1 1"},
		apart: 500 * time.Millisecond, others: 3, within: 200 * time.Second},
}

// start makes the calls of a starving CL.ALL and of the others. The CL.ALL is the last client.
func (s *starving) start(t require.TestingT, server *commandstest.Server) *crowd {
	c := newCrowd(server)
	call := fmt.Sprintf("CL.ALL %d", len(s.take))
	for i, take := range s.take {
		for range s.others {
			c.join(t, "CL.%s key:%d %s 1", s.kind[i], i, take)
		}
		call += fmt.Sprintf(" %s key:%d %s 1", s.kind[i], i, take)
		c.pass(t, s.apart)
	}
	c.join(t, "%s", call)
	return c
}

func TestAllIsAdmitted(t *testing.T) {
	for name, s := range starvings {
		t.Run(name, func(t *testing.T) {
			server := commandstest.New(t)
			c := s.start(t, server)
			defer c.close()
			last := len(c.clients) - 1
			require.Zero(t, c.rounds[last])
			for begin := server.Clock.Now(); c.rounds[last] == 0; c.pass(t, 100*time.Millisecond) {
				require.Less(t, time.Duration(server.Clock.Now()-begin), s.within, "others: %v", c.rounds)
			}
			before := append([]int(nil), c.rounds...)
			c.pass(t, s.within)
			for i, rounds := range c.rounds[:last] {
				require.Greater(t, rounds, before[i], "%s has no more turns", c.calls[i])
			}
			c.ends = true
			for range 600 {
				c.pass(t, time.Second)
			}
			require.Zero(t, c.longest(), "a call is forgotten")
		})
	}
}

// Over a store, a starving CL.ALL is admitted too, among the calls of one server.
func TestAllIsAdmittedOverStore(t *testing.T) {
	server := commandstest.RemoteStage(t).(*commandstest.Server)
	s := starvings["one a second, half a second apart"]
	c := s.start(t, server)
	defer c.close()
	for range 200 {
		c.pass(t, 100*time.Millisecond)
	}
	require.Positive(t, c.rounds[len(c.clients)-1], c.rounds)
}

// manyCalls lets clients call limiters and CL.ALL on a few keys. It returns the longest wait, and whether a client
// still waits some time after the last calls were made.
func manyCalls(r *rapid.T, t *testing.T) (longest time.Duration, forgotten bool) {
	c := newCrowd(commandstest.New(t))
	defer c.close()
	takes := []string{"THROTTLE a 1 2 2", "THROTTLE b 1 2 3", "FIXED c 3 4", "SLIDINGLOG d 2 5"}
	for i := range rapid.IntRange(2, 9).Draw(r, "clients") {
		of := rapid.Permutation(takes).Draw(r, "order")[:rapid.IntRange(1, 4).Draw(r, "keys")]
		if i%2 == 0 {
			of = of[:1]
		}
		call := fmt.Sprintf("CL.ALL %d", len(of))
		for _, take := range of {
			call += fmt.Sprintf(" %s %d", take, rapid.IntRange(1, 2).Draw(r, "quantity"))
		}
		c.join(t, "%s", call)
		c.pass(t, time.Duration(rapid.IntRange(0, 30).Draw(r, "tenths"))*time.Second/10)
	}
	for range 1500 {
		c.pass(t, 300*time.Millisecond)
		longest = max(longest, c.longest())
	}
	c.ends = true
	for range 200 {
		c.pass(t, time.Second)
	}
	return longest, c.longest() > 0
}

// If many clients call limiters and CL.ALL on a few keys, each client is admitted again and again, and none
// is forgotten.
func TestManyCallsOfAll(t *testing.T) {
	racetest.HasOneGoroutine(t)
	type outcome struct {
		longest   time.Duration
		forgotten bool
	}
	calls := rapid.Custom(func(r *rapid.T) (o outcome) {
		o.longest, o.forgotten = manyCalls(r, t)
		return o
	})
	for seed := range 20 {
		o := calls.Example(seed)
		require.False(t, o.forgotten, "seed %d", seed)
		require.Less(t, o.longest, 300*time.Second, "seed %d", seed)
	}
}
