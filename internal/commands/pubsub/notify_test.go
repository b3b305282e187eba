package pubsub

import (
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/store"
)

// notifying is a notifier that publishes events of expired keys, and the registry of its clients.
func notifying() (*Notifier, *client.Registry) {
	n := &Notifier{
		Channels: new(Channels), Hooks: new(command.Hooks), Busy: new(atomic.Int32),
		Running: func(int64) *command.Call { return nil },
	}
	n.events.Store(uint32(eventsIn("Ex")))
	return n, client.NewRegistry(slog.New(slog.NewTextHandler(io.Discard, nil)))
}

// subscribe connects a client with one subscription, and returns a flag that is set when the client
// is disconnected.
func subscribe(n *Notifier, r *client.Registry, kind client.SubscriptionKind, name string) (disconnected *bool) {
	disconnected = new(bool)
	c := r.New(client.Peer{Wake: func() {}, Cut: func() { *disconnected = true }})
	r.Add(c)
	n.Channels.subscribe(c, kind, name)
	return disconnected
}

// Without subscribers no event is recorded.
func TestNoEventIsNotedWithoutSubscribers(t *testing.T) {
	n, r := notifying()
	n.sender.Lock() // nothing is published
	defer n.sender.Unlock()
	n.noteChange(0, []byte("k"), store.Expired, 0)
	require.False(t, n.Waiting())
	subscribe(n, r, client.ToChannel, "any")
	n.noteChange(0, []byte("k"), store.Expired, 0)
	require.True(t, n.Waiting())
}

// The notices are bounded. When some are lost, the clients that might have received them
// are disconnected, and no others.
func TestNoticesAreBounded(t *testing.T) {
	n, r := notifying()
	r.SetMaxPushes(2 * maxNoticeBytes) // so that the bound of pushes is not reached first
	channel := subscribe(n, r, client.ToChannel, "__keyevent@0__:expired")
	all := subscribe(n, r, client.ToPattern, "*")
	other := subscribe(n, r, client.ToChannel, "news")
	others := subscribe(n, r, client.ToPattern, "news*")
	n.sender.Lock() // publishing does not keep up
	key := []byte(strings.Repeat("k", 60_000))
	for range maxNoticeBytes/len(key) + 100 {
		n.note(0, key, command.ExpiredEvent)
	}
	require.Less(t, n.bytes, maxNoticeBytes+2*len(key))
	require.False(t, *channel)
	n.publish(command.MaxInt, func() {})
	n.sender.Unlock()
	require.True(t, *channel)
	require.True(t, *all)
	require.False(t, *other)
	require.False(t, *others)
}

func TestMayMatchEvents(t *testing.T) {
	for name, matches := range map[string]bool{
		"__keyevent@0__:set": true, "__keyspace@1__:k": true, "news": false, "_": false, "*": false,
	} {
		require.Equal(t, matches, mayMatchEvents(name, false), name)
	}
	for pattern, matches := range map[string]bool{
		"*": true, "__key*": true, "_*": true, "__keyevent@0__:*": true, "?_keyevent*": true, `\__keyspace*`: true,
		"[_]_key*": true, "news*": false, "__kex*": false, "__key": true, "_": false, "__keyevent@0__:set": true,
	} {
		require.Equal(t, matches, mayMatchEvents(pattern, true), pattern)
	}
}
