package client_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/background"
	"cellserver/internal/client"
	"cellserver/internal/commands"
	"cellserver/internal/commands/commandstest"
	"cellserver/internal/session/sessiontest"
)

// requireHeldBytesAddUp requires that the memory of all clients is the sum of each client's memory. Do not use it
// while several clients have the same message, which counts once for all. It waits, because a call that was made in
// the background may give its memory back after its reply.
func requireHeldBytesAddUp(t *testing.T, s *commandstest.Server) {
	t.Helper()
	commandstest.WaitUntil(t, func() bool {
		sum := int64(0)
		for _, c := range s.Instance.Clients.All() {
			sum += c.HeldBytes()
		}
		return sum == s.Instance.Clients.HeldBytes()
	})
}

// All memory that a client makes the server use is counted while it is used, and no longer.
func TestClientMemoryIsCounted(t *testing.T) {
	long := strings.Repeat("x", 60_000)
	name := strings.Repeat("n", 200)
	for what, play := range map[string]struct {
		use, free []string
		least     int64
	}{
		"a name": {[]string{"CLIENT SETNAME " + name}, []string{"CLIENT SETNAME ''"}, 200},
		"a library": {[]string{"CLIENT SETINFO LIB-NAME " + name, "CLIENT SETINFO LIB-VER " + name},
			[]string{"CLIENT SETINFO LIB-NAME ''", "CLIENT SETINFO LIB-VER ''"}, 400},
		"watched keys": {[]string{"WATCH a" + long, "WATCH b" + long}, []string{"UNWATCH"}, 240_000},
		"a subscription": {[]string{"HELLO 3", "SUBSCRIBE " + long, "SUBSCRIBE " + long, "PSUBSCRIBE a", "SSUBSCRIBE b"},
			[]string{"UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE", "HELLO 2"}, 60_000},
		"prefixes": {[]string{"HELLO 3", "CLIENT TRACKING ON BCAST PREFIX a" + long,
			"CLIENT TRACKING ON BCAST PREFIX b" + long},
			[]string{"CLIENT TRACKING OFF", "HELLO 2"}, 120_000},
		"queued calls": {[]string{"MULTI", "ECHO " + long, "ECHO " + long}, []string{"DISCARD"}, 120_000},
		"many words": {[]string{"MULTI", "EXISTS" + strings.Repeat(" k", 900)}, []string{"EXEC"},
			900 * client.WordBytes},
		"too many queued": {[]string{"MULTI", "ECHO " + long, "NOSUCH"}, []string{"EXEC"}, 60_000},
	} {
		s := commandstest.New(t)
		c := s.Connect()
		c.Do(t, "PING")
		held := func() int64 { return c.Session.HeldBytes() - int64(client.BufferBytes(c.Session.BufferSizes.Load())) }
		before := held()
		for _, line := range play.use {
			c.Do(t, line)
		}
		require.GreaterOrEqual(t, held()-before, play.least, what)
		require.Less(t, held()-before, 3*play.least+4096, what)
		requireHeldBytesAddUp(t, s)
		for _, line := range play.free {
			c.Do(t, line)
		}
		require.Equal(t, before, held(), what)
		for _, line := range play.use {
			c.Do(t, line)
		}
		c.Session.Close()
		require.Zero(t, s.Instance.Clients.HeldBytes(), what)
	}
}

// Input that is not answered, replies of every kind, and messages are counted too.
func TestUnsentMemoryIsCounted(t *testing.T) {
	s := commandstest.New(t)
	s.Fill(t, 50_000)
	in := s.Instance
	keysCaller, cut, l := s.Connect(), s.Connect(), s.Connect()
	base := in.Clients.HeldBytes()
	keysCaller.Session.Feed([]byte("KEYS *\r\n"))
	<-keysCaller.Woken
	commandstest.WaitUntil(t, func() bool { return in.Background.Busy.Load() == 0 })
	require.Greater(t, keysCaller.Session.HeldBytes(), int64(400_000), "the session has not taken the reply")
	keysCaller.Session.Resume()
	require.Greater(t, keysCaller.Session.HeldBytes(), int64(400_000), "the client has not read the reply")
	requireHeldBytesAddUp(t, s)
	keysCaller.Read()
	cut.Session.Feed(fmt.Appendf(nil, "*2\r\n$4\r\nECHO\r\n$1000000\r\n%s", strings.Repeat("x", 300_000)))
	require.Greater(t, cut.Session.HeldBytes(), int64(300_000), "a part of a call")
	cut.Session.Feed([]byte(strings.Repeat("x", 700_000) + "\r\n"))
	require.Greater(t, cut.Session.HeldBytes(), int64(1_000_000), "its reply")
	cut.Read()
	l.Do(t, "SUBSCRIBE news")
	for range 1000 {
		l.Session.Push([]byte(strings.Repeat("x", 1000)))
	}
	require.Greater(t, l.Session.HeldBytes(), int64(1_000_000), "messages")
	requireHeldBytesAddUp(t, s)
	require.Len(t, commandstest.Pushed(l)[len("x"):], 1_000_000-1)
	l.Do(t, "UNSUBSCRIBE")
	keysCaller.Do(t, "PING")
	cut.Do(t, "PING")
	require.Less(t, in.Clients.HeldBytes()-base, int64(100_000), "memory is still counted after it was freed")
	requireHeldBytesAddUp(t, s)
}

// The memory to which unwanted replies were written counts too.
func TestUnwantedRepliesAreCounted(t *testing.T) {
	s := commandstest.New(t)
	c := s.Connect()
	c.Do(t, "SET k "+strings.Repeat("x", 50_000))
	before := c.Session.HeldBytes()
	c.Session.Feed([]byte("CLIENT REPLY OFF\r\nGET k\r\n"))
	require.Greater(t, c.Session.HeldBytes()-before, int64(50_000))
	requireHeldBytesAddUp(t, s)
	c.Session.Close()
	require.Zero(t, s.Instance.Clients.HeldBytes())
}

// A message for many clients is in memory once, and counts once for all clients together. For the
// limit of each client it counts in full.
func TestSharedMessageIsStoredOnce(t *testing.T) {
	const listeners, messages, size = 50, 100, 60_000
	s := commandstest.New(t)
	listening := commandstest.Subscribers(t, s, listeners, "news")
	c := s.Connect()
	before := s.Instance.Clients.HeldBytes()
	payload := strings.Repeat("x", size)
	for range messages {
		c.Do(t, "PUBLISH news "+payload)
	}
	commandstest.WaitUntil(t, func() bool { return s.Instance.Background.Busy.Load() == 0 })
	kept := s.Instance.Clients.HeldBytes() - before
	require.Greater(t, kept, int64(messages*size))
	require.Less(t, kept, int64(messages*(size+1000)))
	for _, l := range listening {
		require.Greater(t, l.Session.PushedBytes(), messages*size)
		l.Session.Resume()
		require.GreaterOrEqual(t, l.Session.HeldBytes(), int64(messages*size))
	}
	require.Less(t, s.Instance.Clients.HeldBytes()-before, int64(messages*(size+1000)),
		"the message was copied to be sent")
	first := &listening[0].Session.Output()[100]
	for _, l := range listening {
		require.Same(t, first, &l.Session.Output()[100])
		l.Read()
		require.Equal(t, messages, strings.Count(l.Output(), payload))
	}
	for _, l := range listening[:listeners/2] {
		l.Session.Close()
	}
	c.Do(t, "PING")
	require.Less(t, s.Instance.Clients.HeldBytes()-before, int64(100_000))
	requireHeldBytesAddUp(t, s)
}

// If clients together use more than maxmemory-clients, the largest are disconnected first, except
// those with CLIENT NO-EVICT.
func TestTheLargestClientsAreEvicted(t *testing.T) {
	s := commandstest.New(t)
	in := s.Instance
	var all []*sessiontest.Client
	for range 10 {
		all = append(all, s.Connect())
	}
	all[9].Do(t, "CLIENT NO-EVICT on")
	in.Clients.SetMaxMemory(client.MemoryLimit{Bytes: 4 << 20})
	in.Clients.UpdateLimits(in.Memory.Limit(), in.Memory.Available)
	for i, c := range all {
		c.Session.Push(make([]byte, (i+1)*100_000))
	}
	commandstest.WaitUntil(t, func() bool { return in.Clients.Eviction().Evicted > 0 && !in.Clients.Eviction().Running })
	require.EqualValues(t, 2, in.Clients.Eviction().Evicted, "5.5 MB, less 0.9, less 0.8")
	for i, c := range all {
		require.Equal(t, i == 7 || i == 8, c.IsDisconnected(), i)
	}
	require.Contains(t, all[0].Do(t, "INFO stats"), "\r\nevicted_clients:2\r\n")
	all[7].Session.Close()
	all[8].Session.Close()
	require.Zero(t, in.Clients.Eviction().Leaving)

	for _, c := range all[:7] {
		c.Session.Close()
	}
	all[9].Session.Push(make([]byte, 5<<20))
	commandstest.WaitUntil(t, func() bool { return in.Clients.Eviction().Exhausted && !in.Clients.Eviction().Running })
	require.False(t, all[9].IsDisconnected())
	commandstest.Pushed(all[9])
	require.Equal(t, "+OK\r\n", all[9].Do(t, "CLIENT NO-EVICT off"))
	all[9].Session.Push(make([]byte, 5<<20))
	in.Sample()
	<-all[9].Disconnected
}

// requireWeightsAddUp requires that the weights of all clients add up to their memory, except for
// rounding.
func requireWeightsAddUp(t *testing.T, in *commands.Instance, rounding float64) {
	t.Helper()
	sum := int64(0)
	for _, c := range in.Clients.All() {
		sum += c.Weight()
	}
	require.InDelta(t, in.Clients.HeldBytes(), sum, rounding, "weights do not add up, except for rounding")
}

// closeEvicted closes the sessions of clients that are evicted, until no more are. Memory that clients
// share is freed only when all of them have disconnected.
func closeEvicted(t *testing.T, in *commands.Instance, clients []*sessiontest.Client) {
	t.Helper()
	for closed := true; closed; {
		commandstest.WaitUntil(t, func() bool { return !in.Clients.Eviction().Running })
		closed = false
		for _, c := range clients {
			if c.IsDisconnected() && in.Clients.Get(c.Session.ID) != nil {
				c.Session.Close()
				closed = true
			}
		}
	}
}

// A message for many clients adds its share to the weight of each. So the weights add up to the
// memory of all clients, wherever the message is, and a client with much memory of its own is
// evicted before clients that have more, but share it.
func TestSharedMessageWeightIsDivided(t *testing.T) {
	const listeners, messages, size = 50, 20, 60_000
	s := commandstest.New(t)
	in, listening, c, own := s.Instance, commandstest.Subscribers(t, s, listeners, "news"), s.Connect(), s.Connect()
	for range messages {
		c.Do(t, "PUBLISH news "+strings.Repeat("x", size))
	}
	commandstest.WaitUntil(t, func() bool { return in.Background.Busy.Load() == 0 })
	own.Session.Push(make([]byte, 15*size))
	const rounding = listeners * messages // bytes
	requireWeightsAddUp(t, in, rounding)
	for i, l := range listening[:listeners/2] {
		l.Session.Resume() // its messages wait to be sent
		if i%2 == 0 {
			l.Session.Sent() // the first message has been sent, and the next is being sent
		}
	}
	requireWeightsAddUp(t, in, rounding)
	require.Greater(t, listening[0].Session.HeldBytes(), own.Session.HeldBytes())
	require.Less(t, listening[0].Session.Weight(), own.Session.Weight()/10)

	in.Clients.SetMaxMemory(client.MemoryLimit{Bytes: in.Clients.HeldBytes() - 1})
	in.Clients.UpdateLimits(in.Memory.Limit(), in.Memory.Available)
	c.Do(t, "PING")
	own.Session.Push([]byte("x"))
	<-own.Disconnected
	commandstest.WaitUntil(t, func() bool { return !in.Clients.Eviction().Running })
	require.EqualValues(t, 1, in.Clients.Eviction().Evicted)
	own.Session.Close()
	require.Zero(t, in.Clients.Eviction().Leaving)
	requireWeightsAddUp(t, in, rounding)

	in.Clients.SetMaxMemory(client.MemoryLimit{Bytes: 1 << 20})
	in.Clients.UpdateLimits(in.Memory.Limit(), in.Memory.Available)
	c.Session.Push([]byte("x"))
	closeEvicted(t, in, listening)
	require.LessOrEqual(t, in.Clients.HeldBytes(), int64(1<<20))
	require.False(t, c.IsDisconnected())
	requireWeightsAddUp(t, in, rounding)
}

// The reply of CLIENT LIST counts while it is made, and only one long reply is made at a time.
func TestClientListReplyIsCounted(t *testing.T) {
	s := commandstest.New(t)
	in, c := s.Instance, s.Connect()
	for range 2000 {
		s.Connect()
	}
	require.True(t, in.Background.AcquireLong(t.Context())) // another call makes a long reply
	c.Session.Feed([]byte("CLIENT LIST\r\n"))
	commandstest.WaitUntil(
		t,
		func() bool { return in.Background.Busy.Load() == 1 && in.Background.Free() == background.MaxSlots() },
	)
	require.Greater(t, c.Session.HeldBytes(), int64(background.LongReply))
	in.Background.ReleaseLong()
	c.Settle()
	require.Equal(t, 2001, strings.Count(c.Output(), "id="))
	c.Do(t, "PING")
	requireHeldBytesAddUp(t, s)
}

// The reply of MGET counts while it is made, and only one long reply is made at a time.
func TestMGETReplyIsCounted(t *testing.T) {
	s := commandstest.New(t)
	in, c := s.Instance, s.Connect()
	c.Do(t, "SET k "+strings.Repeat("v", 1000))
	require.True(t, in.Background.AcquireLong(t.Context())) // another call makes a long reply
	c.Session.Feed([]byte("MGET" + strings.Repeat(" k", 2000) + "\r\n"))
	commandstest.WaitUntil(
		t,
		func() bool { return in.Background.Busy.Load() == 1 && in.Background.Free() == background.MaxSlots() },
	)
	require.Greater(t, c.Session.HeldBytes(), int64(background.LongReply))
	in.Background.ReleaseLong()
	c.Settle()
	require.Equal(t, 2000, strings.Count(c.Output(), "$1000\r\n"))
	c.Do(t, "PING")
	requireHeldBytesAddUp(t, s)
}

// Only one long reply is made at a time. The calls that wait for their turn use little memory.
func TestLongRepliesAreMadeOneAtATime(t *testing.T) {
	s := commandstest.New(t)
	s.Fill(t, 100_000) // a reply of 1.6 MB
	in := s.Instance
	require.True(t, in.Background.AcquireLong(t.Context())) // another call makes a long reply
	var all []*sessiontest.Client
	for range 20 {
		c := s.Connect()
		c.Session.Feed([]byte("KEYS *\r\n"))
		all = append(all, c)
	}
	commandstest.WaitUntil(
		t,
		func() bool { return in.Background.Busy.Load() == 20 && in.Background.Free() == background.MaxSlots() },
	)
	for _, c := range all {
		require.Less(t, c.Session.HeldBytes(), int64(1<<20))
		require.Greater(t, c.Session.HeldBytes(), int64(background.LongReply))
	}
	require.Equal(t, "+PONG\r\n", s.Connect().Do(t, "PING"))
	require.Equal(t, "*2\r\n", s.Connect().Do(t, "SCAN 0")[:4], "a short reply must not wait")
	all[0].Session.Close()
	commandstest.WaitUntil(t, func() bool { return in.Background.Busy.Load() == 19 })
	in.Background.ReleaseLong()
	for _, c := range all[1:] {
		c.Settle()
		require.Equal(t, 100_000, strings.Count(c.Output(), "$"))
	}
	commandstest.WaitUntil(t, func() bool { return in.Background.Busy.Load() == 0 })
	requireHeldBytesAddUp(t, s)
}

// Requests on ports whose clients are not evicted may hold half of maxmemory-clients. If that is 0, memory is bounded
// nevertheless.
func TestRequestLimit(t *testing.T) {
	for _, c := range []struct{ clients, maxMemory, system, want int64 }{
		{clients: 10 << 20, maxMemory: 100 << 20, want: 5 << 20},
		{clients: 10 << 30, want: 5 << 30},
		{maxMemory: 64 << 20, system: 1 << 40, want: 32 << 20},
		{system: 100 << 20, want: 50 << 20},
		{system: 1 << 40, want: 256 << 20},
		{maxMemory: 1, want: 2 << 20},
		{want: 256 << 20},
	} {
		clients := commandstest.New(t).Instance.Clients
		clients.SetMaxMemory(client.MemoryLimit{Bytes: c.clients})
		clients.UpdateLimits(c.maxMemory, c.system)
		require.Equal(t, c.want, clients.RequestLimit(), "%+v", c)
	}
}
