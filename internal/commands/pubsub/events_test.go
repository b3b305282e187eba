package pubsub_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/commands/commandstest"
	"cellserver/internal/session/sessiontest"
	memstore "cellserver/internal/store/memory"
)

// eventPush returns an event as it is pushed to a RESP2 client that is subscribed to the events'
// channel.
func eventPush(name, key string) string {
	return fmt.Sprintf("*3\r\n$7\r\nmessage\r\n$%d\r\n__keyevent@0__:%s\r\n$%d\r\n%s\r\n", len("__keyevent@0__:"+name),
		name, len(key), key)
}

// dialNotified turns events on, and subscribes a client to one of them.
func dialNotified(s *commandstest.Server, t *testing.T, letters, name string) (c, listener *sessiontest.Client) {
	c, listener = s.Connect(), s.Connect()
	require.Equal(t, "+OK\r\n", c.Do(t, "CONFIG SET notify-keyspace-events "+letters))
	listener.Do(t, "SUBSCRIBE __keyevent@0__:"+name)
	return c, listener
}

// While no events are published, the store does not notify and no hook is set. That is also so if
// only the channels or only the classes are chosen.
func TestDisabledNotificationsCostNothing(t *testing.T) {
	s := commandstest.New(t)
	c, _ := dialNotified(s, t, "KEA", "set")
	require.True(t, s.Instance.Hooks.Has(command.Notifying))
	for _, letters := range []string{`""`, "A", "KE", "g$"} {
		require.Equal(t, "+OK\r\n", c.Do(t, "CONFIG SET notify-keyspace-events "+letters))
		require.False(t, s.Instance.Hooks.Has(command.Notifying), letters)
	}
}

// An expired key is announced when the sweep finds it.
func TestSweptKeysAreNotified(t *testing.T) {
	s := commandstest.New(t)
	c, listener := dialNotified(s, t, "Ex", command.ExpiredEvent)
	c.Do(t, "SET k 1 PX 1000\r\nCL.FIXED window 10 1")
	s.Clock.Advance(time.Minute)
	removed := 0
	for range 2 * int(5*time.Second/memstore.SweepInterval) {
		removed += s.Instance.Store.(*memstore.Store).Sweep()
	}
	require.Equal(t, 2, removed)
	require.Contains(t, c.Do(t, "INFO stats"), "\r\nexpired_keys:2\r\nexpired_keys_active:2\r\n")
	require.Contains(t, c.Do(t, "CONFIG RESETSTAT\r\nINFO stats"), "\r\nexpired_keys:0\r\nexpired_keys_active:0\r\n")
	heard := commandstest.WaitForPush(listener)
	for !strings.Contains(heard, eventPush(command.ExpiredEvent, "k")) ||
		!strings.Contains(heard, eventPush(command.ExpiredEvent, "window")) {
		heard += commandstest.WaitForPush(listener)
	}
	require.Len(t, heard, len(eventPush(command.ExpiredEvent, "k")+eventPush(command.ExpiredEvent, "window")), "each once")
}

// Events for many clients are sent outside the event loop. The client that has caused them waits
// until they are sent; others do not. The events of calls outside the event loop are sent too, in
// order.
func TestManyNotificationsAreSentInBackground(t *testing.T) {
	s := commandstest.New(t)
	c, first := dialNotified(s, t, "E$", "set")
	listening := append(commandstest.Subscribers(t, s, 1000, "__keyevent@0__:set"), first)
	c.Session.Feed([]byte("MSET a 1 b 2 c 3\r\nPING\r\n"))
	require.True(t, c.Session.HasUnanswered())
	c.Settle()
	require.Equal(t, "+OK\r\n+PONG\r\n", c.Output())
	for _, l := range listening {
		require.Equal(t, eventPush("set", "a")+eventPush("set", "b")+eventPush("set", "c"), commandstest.Pushed(l))
	}
}

func TestBackgroundCallsAreNotified(t *testing.T) {
	const keys = 5000
	s := commandstest.New(t)
	c, listener := dialNotified(s, t, "Eg", command.DeletedEvent)
	var set, del, want strings.Builder
	for i := range keys {
		fmt.Fprintf(&set, "SET %d v\r\n", i)
		fmt.Fprintf(&del, " %d", i)
	}
	require.NoError(t, c.Send([]byte(set.String())))
	c.Output()
	require.Equal(t, ":5000\r\n", c.Do(t, "DEL"+del.String()))
	for i := range keys {
		want.WriteString(eventPush(command.DeletedEvent, fmt.Sprint(i)))
	}
	require.Equal(t, want.String(), commandstest.Pushed(listener))
}

// The changes of a call are not taken for changes of an earlier background call, even if that
// call's goroutine has not ended.
func TestCallAfterBackgroundCallHasItsOwnEvents(t *testing.T) {
	s := commandstest.New(t)
	s.Instance.MaxTurnTransaction = -1 // every transaction runs outside the event loop
	listener, ended := s.Connect(), make(chan struct{})
	c := &sessiontest.Client{Woken: make(chan struct{}, 1), Disconnected: make(chan struct{})}
	c.Session = s.Instance.Open(client.Peer{Wake: func() { c.Wake(); <-ended }, Cut: func() {}})
	defer close(ended)
	listener.Do(t, "CONFIG SET notify-keyspace-events EA")
	listener.Do(t, "PSUBSCRIBE *")
	require.NoError(t, c.Send([]byte("MULTI\r\nDEL k\r\nEXEC\r\n")))
	require.NoError(t, c.Send([]byte("SET k v\r\n")))
	line, err := listener.Receive(0)
	require.NoError(t, err)
	require.Equal(t, `["pmessage", "*", "__keyevent@0__:set", "k"]`, line)
}
