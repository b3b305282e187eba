package commands

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/client"
	"cellserver/internal/command"
	memstore "cellserver/internal/store/memory"
)

// eventPush is how an event is pushed to a client in RESP2 that listens to the events' channel.
func eventPush(name, key string) string {
	return fmt.Sprintf("*3\r\n$7\r\nmessage\r\n$%d\r\n__keyevent@0__:%s\r\n$%d\r\n%s\r\n", len("__keyevent@0__:"+name),
		name, len(key), key)
}

// notifying has events published, and somebody listen to one of them.
func (s *still) notifying(t *testing.T, letters, name string) (c, listener *caller) {
	c, listener = s.dial(), s.dial()
	require.Equal(t, "+OK\r\n", c.say(t, "CONFIG SET notify-keyspace-events "+letters))
	listener.say(t, "SUBSCRIBE __keyevent@0__:"+name)
	return c, listener
}

// While nothing is published the store tells nobody, and no session looks; nor when only the way or
// only the class is chosen.
func TestNoNotificationsCostNothing(t *testing.T) {
	s := newStill(t)
	c, _ := s.notifying(t, "KEA", "set")
	require.NotZero(t, s.instance.hooks.Load()&notifying)
	require.NotNil(t, s.instance.notifier.unsubscribe)
	for _, letters := range []string{`""`, "A", "KE", "g$"} {
		require.Equal(t, "+OK\r\n", c.say(t, "CONFIG SET notify-keyspace-events "+letters))
		require.Zero(t, s.instance.hooks.Load()&notifying, letters)
		require.Nil(t, s.instance.notifier.unsubscribe, letters)
	}
}

// While nobody listens to anything, nothing is noted.
func TestNothingIsNotedForNobody(t *testing.T) {
	s := newStill(t)
	c, listener := s.notifying(t, "KEA", "set")
	listener.say(t, "UNSUBSCRIBE")
	s.instance.notifier.sender.Lock() // so that nothing would be sent
	defer s.instance.notifier.sender.Unlock()
	c.say(t, "SET k v")
	require.Empty(t, s.instance.notifier.notices)
}

// A key that has expired is told when the sweep comes by.
func TestSweptKeysAreNotified(t *testing.T) {
	s := newStill(t)
	c, listener := s.notifying(t, "Ex", command.ExpiredEvent)
	c.say(t, "SET k 1 PX 1000\r\nCL.FIXED window 10 1")
	s.clock.Advance(time.Minute)
	removed := 0
	for range 2 * int(5*time.Second/memstore.SweepInterval) {
		removed += s.instance.store.(*memstore.Store).Sweep()
	}
	require.Equal(t, 2, removed)
	heard := listener.hears()
	for !strings.Contains(heard, eventPush(command.ExpiredEvent, "k")) ||
		!strings.Contains(heard, eventPush(command.ExpiredEvent, "window")) {
		heard += listener.hears()
	}
	require.Len(t, heard, len(eventPush(command.ExpiredEvent, "k")+eventPush(command.ExpiredEvent, "window")), "each once")
}

// Events for many go beside the loop: the client that has caused them waits for them, others for
// nothing; and nothing is lost of a call that runs beside the loop itself, nor out of order.
func TestNotifyingManyIsParked(t *testing.T) {
	s := newStill(t)
	c, first := s.notifying(t, "E$", "set")
	listening := append(subscribers(t, s, 1000, "__keyevent@0__:set"), first)
	c.session.Feed([]byte("MSET a 1 b 2 c 3\r\nPING\r\n"))
	require.True(t, c.session.Owing())
	c.settle()
	require.Equal(t, "+OK\r\n+PONG\r\n", c.output())
	for _, l := range listening {
		require.Equal(t, eventPush("set", "a")+eventPush("set", "b")+eventPush("set", "c"), l.listen())
	}
}

func TestSlowCallsAreNotified(t *testing.T) {
	const keys = 5000
	s := newStill(t)
	c, listener := s.notifying(t, "Eg", command.DeletedEvent)
	var set, del, want strings.Builder
	for i := range keys {
		fmt.Fprintf(&set, "SET %d v\r\n", i)
		fmt.Fprintf(&del, " %d", i)
	}
	require.NoError(t, c.Send([]byte(set.String())))
	c.output()
	require.Equal(t, ":5000\r\n", c.say(t, "DEL"+del.String()))
	for i := range keys {
		want.WriteString(eventPush(command.DeletedEvent, fmt.Sprint(i)))
	}
	require.Equal(t, want.String(), listener.listen())
}

// What waits to be published is bounded. Those who might have heard of what is lost are cut off;
// others are not.
func TestNoticesAreBounded(t *testing.T) {
	s := newStill(t)
	s.instance.BoundPushes(2 * maxNoticeBytes) // so that it is not this bound that is met
	c, listener := s.notifying(t, "E$", "set")
	patterns, other, others := s.dial(), s.dial(), s.dial()
	patterns.say(t, "PSUBSCRIBE *")
	other.say(t, "SUBSCRIBE news")
	others.say(t, "PSUBSCRIBE news*")
	n := &s.instance.notifier
	n.sender.Lock() // publishing does not keep up
	key := strings.Repeat("k", 60_000)
	for i := range maxNoticeBytes/len(key) + 100 {
		require.Equal(t, "+OK\r\n", c.say(t, fmt.Sprintf("SET %d%s v", i, key)))
	}
	require.Less(t, n.bytes, maxNoticeBytes+2*len(key))
	n.sender.Unlock()
	require.False(t, listener.isCut())
	c.say(t, "SET last v")
	n.sender.Lock() // until all is sent that waits
	defer n.sender.Unlock()
	if n.waiting.Load() {
		n.publish(command.MaxInt, func() {})
	}
	require.True(t, listener.isCut())
	require.True(t, patterns.isCut())
	require.False(t, other.isCut())
	require.False(t, others.isCut())
}

// Which names notifications may come by.
func TestHearsKeys(t *testing.T) {
	for name, hears := range map[string]bool{
		"__keyevent@0__:set": true, "__keyspace@1__:k": true, "news": false, "_": false, "*": false,
	} {
		require.Equal(t, hears, hearsKeys(name, false), name)
	}
	for pattern, hears := range map[string]bool{
		"*": true, "__key*": true, "_*": true, "__keyevent@0__:*": true, "?_keyevent*": true, `\__keyspace*`: true,
		"[_]_key*": true,
		"news*":    false, "__kex*": false, "__key": true, "_": false, "__keyevent@0__:set": true,
	} {
		require.Equal(t, hears, hearsKeys(pattern, true), pattern)
	}
}

// What a call does after one that was made beside the loop is its own event, although the goroutine
// of the other has not ended yet.
func TestTheCallAfterOneBesideTheLoopHasItsOwnEvents(t *testing.T) {
	s := newStill(t)
	s.instance.inTurn = -1 // transactions are made beside the loop
	listener, ended := s.dial(), make(chan struct{})
	c := &caller{woken: make(chan struct{}, 1), wasCut: make(chan struct{})}
	c.session = s.instance.Open(client.Peer{Wake: func() { c.wake(); <-ended }, Cut: func() {}})
	defer close(ended)
	listener.say(t, "CONFIG SET notify-keyspace-events EA")
	listener.say(t, "PSUBSCRIBE *")
	require.NoError(t, c.Send([]byte("MULTI\r\nDEL k\r\nEXEC\r\n")))
	require.NoError(t, c.Send([]byte("SET k v\r\n")))
	line, err := listener.Receive(0)
	require.NoError(t, err)
	require.Equal(t, `["pmessage", "*", "__keyevent@0__:set", "k"]`, line)
}
