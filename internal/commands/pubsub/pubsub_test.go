package pubsub_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/commands"
	"cellserver/internal/commands/commandstest"
	"cellserver/internal/commands/pubsub"
	"cellserver/internal/session/sessiontest"
	"cellserver/internal/transcript"
)

// A long message, or one for many clients, is published outside the event loop. The publisher waits
// for the reply; other clients do not wait.
func TestPublishToManyRunsInBackground(t *testing.T) {
	s := commandstest.New(t)
	listening := commandstest.Subscribers(t, s, 1000, "news")
	c := s.Connect()
	c.Session.Feed([]byte("PUBLISH news hello\r\nPING\r\n"))
	require.True(t, c.Session.HasUnanswered())
	<-c.Woken
	c.Session.Resume()
	require.Equal(t, ":1000\r\n+PONG\r\n", c.Output())
	for _, l := range listening {
		require.Equal(t, "*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$5\r\nhello\r\n", commandstest.Pushed(l))
	}
	c.Session.Feed([]byte("PUBLISH other hello\r\n"))
	require.False(t, c.Session.HasUnanswered(), "a message without subscribers must not be published in the background")
}

// Matching many patterns counts as work of PUBLISH, even if none matches.
func TestPublishPastManyPatternsRunsInBackground(t *testing.T) {
	s := commandstest.New(t)
	l, c := s.Connect(), s.Connect()
	for i := range 100 {
		l.Do(t, fmt.Sprintf("PSUBSCRIBE %d*%s", i, strings.Repeat("x*", 100)))
	}
	c.Session.Feed([]byte("PUBLISH some:channel hello\r\n"))
	require.True(t, c.Session.HasUnanswered())
	<-c.Woken
	c.Session.Resume()
	require.Equal(t, ":0\r\n", c.Output())
}

// A transaction publishes its messages after its keys are unlocked, and its reply has the numbers
// of receivers in their places, even if the messages are published outside the event loop.
func TestPublishInATransaction(t *testing.T) {
	for _, many := range []int{3, 500} {
		s := commandstest.New(t)
		listening := commandstest.Subscribers(t, s, many, "news")
		c := s.Connect()
		require.NoError(t, c.Send([]byte("MULTI\r\nPUBLISH news one\r\nINCR a\r\nPUBLISH other x\r\nPUBLISH news two\r\nGET a\r\nEXEC\r\nPING\r\n")))
		out := c.Output()
		require.Equal(t, fmt.Sprintf("*5\r\n:%d\r\n:1\r\n:0\r\n:%d\r\n$1\r\n1\r\n+PONG\r\n", many, many),
			out[strings.Index(out, "*5"):])
		for _, l := range listening {
			heard := commandstest.Pushed(l)
			require.Equal(t, 2, strings.Count(heard, "message"))
			require.Less(t, strings.Index(heard, "one"), strings.Index(heard, "two"))
		}
	}
}

// A message that arrives while a transaction ends the subscription is written before the reply to
// EXEC.
func TestUnsubscribeInATransaction(t *testing.T) {
	var channels *pubsub.Channels
	s := commandstest.NewWithRow(t, &command.Command{Name: "meanwhile", Run: func(c *command.Call) error {
		channels.Publish(pubsub.Message{Channel: []byte("news"), Payload: []byte("hello")}, func() {})
		c.Out.Status("OK")
		return nil
	}})
	channels = s.Instance.Notifier.Channels
	c := s.Connect()
	c.Do(t, "HELLO 3")
	c.Do(t, "SUBSCRIBE news")
	c.Do(t, "MULTI\r\nMEANWHILE\r\nUNSUBSCRIBE\r\nMEANWHILE")
	require.Equal(t, ">3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$5\r\nhello\r\n"+
		"*3\r\n+OK\r\n>3\r\n$11\r\nunsubscribe\r\n$4\r\nnews\r\n:0\r\n+OK\r\n", c.Do(t, "EXEC"))
	require.Empty(t, commandstest.Pushed(c))
}

// The subscriptions of a session are bounded in number and in bytes. A call that exceeds a bound
// changes nothing.
func TestSubscriptionsAreBounded(t *testing.T) {
	s := commandstest.New(t)
	c := s.Connect()
	for i := range pubsub.MaxSubscriptions / 64 {
		names := ""
		for n := range 64 {
			names += fmt.Sprintf(" %d", i*64+n)
		}
		require.NotContains(t, c.Do(t, "SUBSCRIBE"+names), "-ERR")
	}
	require.Equal(t, "-ERR too many subscriptions\r\n", c.Do(t, "PSUBSCRIBE x"))
	c.Do(t, "UNSUBSCRIBE 0")
	require.Equal(t, "-ERR too many subscriptions\r\n", c.Do(t, "SSUBSCRIBE x y"))
	require.NotContains(t, c.Do(t, "SSUBSCRIBE x"), "-ERR")

	c = s.Connect()
	longest := commands.NewSettings().MaxKeySize
	name := strings.Repeat("n", longest)
	for i := range pubsub.MaxSubscribedBytes / longest {
		c.Send(commandstest.Encode([]string{"SUBSCRIBE", fmt.Sprint(i) + name[len(fmt.Sprint(i)):]}))
		require.NotContains(t, c.Output(), "-ERR")
	}
	require.Equal(t, "-ERR too many subscriptions\r\n", c.Do(t, "SUBSCRIBE x"))

	c = s.Connect()
	c.Send(commandstest.Encode([]string{"SUBSCRIBE", name + "x"}))
	require.Equal(t, "-ERR channel is longer than max-key-size (65536 bytes)\r\n", c.Output())
	c.Send(commandstest.Encode([]string{"PSUBSCRIBE", "a", name[:1025]}))
	require.Equal(t, "-ERR pattern is longer than 1024 bytes\r\n", c.Output())
	require.False(t, c.Session.IsSubscribed())
	require.Equal(t, "-ERR wrong number of arguments for 'subscribe' command\r\n",
		c.Do(t, "SUBSCRIBE"+strings.Repeat(" c", pubsub.ManyChannels+1)))
}

// A client that disconnects leaves no subscription.
func TestCloseUnsubscribesFromAll(t *testing.T) {
	s := commandstest.New(t)
	for range 3 {
		c := s.Connect()
		c.Do(t, "SUBSCRIBE a b")
		c.Do(t, "PSUBSCRIBE a* b*")
		c.Do(t, "SSUBSCRIBE a b")
		c.Session.Close()
	}
	cs := s.Instance.Notifier.Channels
	for kind := range client.SubscriptionKinds {
		require.Zero(t, cs.Count(kind))
		require.Empty(t, cs.Topics[kind].All.Entries)
	}
	require.Zero(t, cs.PatternBytes)
	require.Zero(t, cs.PatternSubscriptions)
	require.Zero(t, cs.Clients.Load())
}

// A subscriber that does not read its messages is disconnected when they exceed the limit. Until its
// connection is closed, CLIENT LIST shows them.
func TestSlowSubscriberIsDisconnected(t *testing.T) {
	s := commandstest.New(t)
	s.Instance.BoundPushes(1000)
	l, c := s.Connect(), s.Connect()
	l.Do(t, "SUBSCRIBE news")
	for range 1000 {
		c.Do(t, "PUBLISH news "+strings.Repeat("x", 100))
	}
	<-l.Disconnected
	require.LessOrEqual(t, l.Session.PushedBytes(), 1000)
	require.Greater(t, l.Session.Memory(nil).PiecesAndMail, int64(800))
	l.Session.CountOutputCut() // its loop notices it, too
	require.Equal(t, int64(1), s.Instance.Clients.OutputCut())
	l.Session.Resume()
	require.True(t, l.Session.Closing())
}

// While some clients publish, others subscribe and unsubscribe. Each receives only messages between
// the two confirmations, and all of them, in each publisher's order.
func TestMessagesComeBetweenSubscribeAndUnsubscribe(t *testing.T) {
	s := commandstest.New(t)
	stop := make(chan struct{})
	var publishing sync.WaitGroup
	defer publishing.Wait()
	defer close(stop)
	for p := range 2 {
		publishing.Go(func() {
			c := s.Connect()
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
					c.Do(t, fmt.Sprintf("PUBLISH news %d:%06d", p, n))
				}
			}
		})
	}
	random := rand.New(rand.NewPCG(1, 1))
	c := s.Connect()
	for range 2000 {
		heard := c.Do(t, "SUBSCRIBE news")
		for range random.IntN(30) {
			heard += commandstest.Pushed(c)
		}
		heard += c.Do(t, "UNSUBSCRIBE news")
		require.Empty(t, findWrongMessage(heard))
		require.Equal(t, "+PONG\r\n", c.Do(t, "PING"))
	}
}

// findWrongMessage returns a line that a subscriber must not have received; "" if there is none.
func findWrongMessage(heard string) string {
	var lines []string
	for rest := []byte(heard); len(rest) > 0; {
		line, after, err := transcript.NextReply(rest)
		if err != nil {
			return err.Error()
		}
		lines, rest = append(lines, line), after
	}
	last := map[byte]int{}
	for i, line := range lines {
		var publisher byte
		var n int
		_, err := fmt.Sscanf(line, `["message", "news", "%c:%d"]`, &publisher, &n)
		before, known := last[publisher]
		switch {
		case i == 0 && line == `["subscribe", "news", 1]`, i == len(lines)-1 && line == `["unsubscribe", "news", 0]`:
		case i == 0, i == len(lines)-1, err != nil, known && n != before+1:
			return line
		default:
			last[publisher] = n
		}
	}
	return ""
}

func TestWrongMessagesAreFound(t *testing.T) {
	const (
		begin, end = "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n", "*3\r\n$11\r\nunsubscribe\r\n$4\r\nnews\r\n:0\r\n"
		one, two   = "*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$3\r\n0:1\r\n",
			"*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$3\r\n0:2\r\n"
	)
	require.Empty(t, findWrongMessage(begin+one+two+end))
	for _, planted := range []string{one + begin + end, begin + end + one, begin + two + one + end,
		begin + one + one + end, begin + one} {
		require.NotEmpty(t, findWrongMessage(planted), planted)
	}
}

// Messages for clients that do not read are stored once for all of them: 400 messages of 60 KB for
// 50 clients use 24 MB, not 1.2 GB.
func TestUnreadMessagesAreStoredOnce(t *testing.T) {
	const clients, messages, size = 50, 400, 60_000
	s := commandstest.New(t)
	var idle []*sessiontest.Client
	for range clients {
		c := s.Connect()
		c.Do(t, "SUBSCRIBE ch")
		idle = append(idle, c)
	}
	before := s.Instance.Clients.HeldBytes()
	var first, last runtime.MemStats
	runtime.ReadMemStats(&first)
	publisher, call := s.Connect(), commandstest.Encode([]string{"PUBLISH", "ch", strings.Repeat("x", size)})
	for range messages {
		require.NoError(t, publisher.Send(call))
		require.Equal(t, ":50\r\n", publisher.Output())
	}
	runtime.ReadMemStats(&last)
	for _, c := range idle {
		require.Greater(t, c.Session.PushedBytes(), messages*size)
	}
	kept := s.Instance.Clients.HeldBytes() - before
	require.Greater(t, kept, int64(messages*size))
	require.Less(t, kept, int64(messages*size*11/10))
	require.Less(t, last.TotalAlloc-first.TotalAlloc, uint64(clients/5*messages*size))
}

// A call with many names subscribes in pieces, one in each turn. Messages and other calls come
// after its whole reply.
func TestManySubscriptionsTakeSeveralTurns(t *testing.T) {
	s := commandstest.New(t)
	words, want := []string{"SUBSCRIBE"}, ""
	for i := range pubsub.ManyChannels {
		name := fmt.Sprintf("%04d%s", i, strings.Repeat("n", 1020))
		words = append(words, name)
		want += fmt.Sprintf(">3\r\n$9\r\nsubscribe\r\n$1024\r\n%s\r\n:%d\r\n", name, i+1)
	}
	c, other := s.Connect(), s.Connect()
	c.Do(t, "HELLO 3")
	input := append(commandstest.Encode(words), "PING\r\n"...)
	for len(input) > 16<<10 {
		c.Session.Feed(input[:16<<10])
		input = input[16<<10:]
	}
	c.Session.Feed(input)
	turns, before := 0, 0
	for ; c.Session.More(); turns++ {
		if turns == 2 {
			require.NoError(t, other.Send(commandstest.Encode([]string{"PUBLISH", words[1], "hello"})))
			require.Equal(t, ":1\r\n", other.Output())
		}
		c.Session.Resume()
		require.LessOrEqual(t, pubsub.SubscriptionsOf(c.Session.Client).Total()-before, pubsub.NamesPerPiece)
		require.LessOrEqual(t, (pubsub.SubscriptionsOf(c.Session.Client).Total()-before)*1024, pubsub.NameBytesPerPiece)
		if turns == 5 { // the client does not read
			for range 100 {
				c.Session.Resume()
			}
			require.Less(t, len(c.Session.Output()), command.TurnOutput+2*pubsub.NameBytesPerPiece)
		}
		before = pubsub.SubscriptionsOf(c.Session.Client).Total()
		c.Read()
	}
	require.LessOrEqual(t, turns, 16)
	c.Settle()
	want += fmt.Sprintf(">3\r\n$7\r\nmessage\r\n$1024\r\n%s\r\n$5\r\nhello\r\n+PONG\r\n", words[1])
	require.Equal(t, want, c.Output())
	names := client.SubscriptionBytes + 1024
	c.Session.Sent()
	require.Less(t, int(c.Session.HeldBytes())-pubsub.ManyChannels*names, 128<<10, "the words are still counted")
}

// The same holds for short names, and a client may disconnect between two pieces.
func TestClientDisconnectsWhileItSubscribes(t *testing.T) {
	s := commandstest.New(t)
	c := s.Connect()
	words := []string{"SUBSCRIBE"}
	for i := range 300 {
		words = append(words, fmt.Sprint("c", i))
	}
	c.Session.Feed(commandstest.Encode(words))
	c.Session.Resume()
	require.Equal(t, pubsub.NamesPerPiece, pubsub.SubscriptionsOf(c.Session.Client).Total())
	require.Equal(t, ":0\r\n", s.Connect().Do(t, "PUBLISH c200 x"))
	c.Session.Close()
	require.Equal(t, "*0\r\n", s.Connect().Do(t, "PUBSUB CHANNELS"))
	require.Zero(t, c.Session.HeldBytes())
}
