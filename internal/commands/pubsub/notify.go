package pubsub

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/limit"
	"cellserver/internal/store"
)

// Notifier publishes keyspace notifications, while the setting notify-keyspace-events selects any.
// Otherwise the store announces nothing to it, and sessions do not call it.
//
// The store announces a change with the key locked, so the event is only recorded then. It is published
// after the call by the call's session, or by a goroutine if the store has made the change by itself.
// As for PUBLISH, what takes long is published outside the event loop, with the session parked
// meanwhile, and a subscriber that reads too slowly is disconnected.
type Notifier struct {
	Channels *Channels
	Changes  store.Notifier // nil if the store announces no changes
	Hooks    *command.Hooks
	Busy     *atomic.Int32 // counts goroutines that need the event loops to yield
	// Running returns the current call of a client, nil if it is not known. Running is called on
	// the goroutine that makes the call.
	Running func(client int64) *command.Call

	events atomic.Uint32 // the events that are published
	// unsubscribe ends the subscription to the store; nil while no events are published. The lock of
	// the options guards it.
	unsubscribe func()

	sender  sync.Mutex  // held while events are published, so that they keep their order
	sending atomic.Bool // a goroutine publishes notices

	mu      sync.Mutex // guards the fields below; taken with a key locked, so it is held for microseconds
	notices []notice
	bytes   int
	lost    bool // notices were dropped, because there were too many
	waiting atomic.Bool
}

// notice is an event that is to be published.
type notice struct {
	database int
	key      []byte
	event    string
}

// The bound of the notices. It is exceeded only if publishing does not keep up. Then the notices
// are dropped, and the subscribers are disconnected as if they had read too slowly, because they
// must not believe that they have received all events.
const (
	maxNoticeBytes = 32 << 20
	noticeBytes    = 64 // the size of a notice, without its key
)

// Set selects the events that are published, by letters as in redis.conf.
func (n *Notifier) Set(letters string) error {
	chosen := eventsIn(letters)
	if chosen.published() && n.Changes == nil {
		return fmt.Errorf("notify-keyspace-events: %s", command.MissingAbility(store.Notifies))
	}
	n.events.Store(uint32(chosen))
	switch publishes := n.unsubscribe != nil; {
	case chosen.published() && !publishes:
		n.unsubscribe = n.Changes.Subscribe(n.noteChange)
		n.Hooks.Set(command.Notifying, true)
	case !chosen.published() && publishes:
		n.unsubscribe()
		n.unsubscribe = nil
		n.Hooks.Set(command.Notifying, false)
	}
	return nil
}

// noteChange records the events of a change. The store calls it with the key locked, on the goroutine of
// the call that has made the change; by is the ID of that call's client.
func (n *Notifier) noteChange(database int, key []byte, why store.Event, by int64) {
	if why == store.Flushed || n.Channels.Clients.Load() == 0 {
		return
	}
	c := n.Running(by)
	if c == nil {
		if why == store.Expired {
			n.note(database, key, command.ExpiredEvent)
		}
		n.SendInBackground()
		return
	}
	for _, event := range c.EventNames(why) {
		n.note(database, key, event)
	}
	if c.Session != nil && !c.Session.OnSlowPath() {
		n.SendInBackground() // the turn began before events were selected, so the session will not send them
	}
}

// note adds an event to the notices, if its class is published.
func (n *Notifier) note(database int, key []byte, event string) {
	if events(n.events.Load())&eventClass(event) == 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waiting.Store(true)
	if n.bytes > maxNoticeBytes {
		n.lost = true
		return
	}
	n.notices = append(n.notices, notice{database, slices.Clone(key), event})
	n.bytes += len(key) + noticeBytes
}

// take removes and returns all notices.
func (n *Notifier) take() (notices []notice, lost bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	notices, lost = n.notices, n.lost
	n.notices, n.bytes, n.lost = nil, 0, false
	n.waiting.Store(false)
	return notices, lost
}

// putBack returns unpublished notices to the front of the queue.
func (n *Notifier) putBack(notices []notice, lost bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, one := range notices {
		n.bytes += len(one.key) + noticeBytes
	}
	n.notices, n.lost = append(notices, n.notices...), n.lost || lost
	n.waiting.Store(true)
}

// publish publishes notices until the work reaches most, and returns the work (see command.Call). The
// caller holds sender.
func (n *Notifier) publish(most int, yield func()) (work int) {
	channels, wanted := n.Channels, events(n.events.Load())
	notices, lost := n.take()
	for i, one := range notices {
		for _, m := range one.messages(wanted) {
			work += channels.Work(m)
			channels.Publish(m, yield)
		}
		if work > most && i < len(notices)-1 {
			n.putBack(notices[i+1:], lost)
			return work
		}
	}
	if lost {
		n.disconnectSubscribers(yield)
	}
	return work
}

// messages returns the messages that publish an event: the first to the channel of the key, the
// second to the channel of the event.
func (one *notice) messages(wanted events) (list []Message) {
	if wanted&toKeyspace != 0 {
		channel := fmt.Appendf(nil, "%s%d__:%s", keyspaceChannels, one.database, one.key)
		list = append(list, Message{Kind: client.ToChannel, Channel: channel, Payload: []byte(one.event)})
	}
	if wanted&toKeyevent != 0 {
		channel := fmt.Appendf(nil, "%s%d__:%s", keyeventChannels, one.database, one.event)
		list = append(list, Message{Kind: client.ToChannel, Channel: channel, Payload: one.key})
	}
	return list
}

// The prefixes of the channels' names, before the number of the database.
const (
	keyspaceChannels = "__keyspace@"
	keyeventChannels = "__keyevent@"
)

// disconnectSubscribers disconnects the clients that may have missed events.
func (n *Notifier) disconnectSubscribers(yield func()) {
	for _, kind := range []client.SubscriptionKind{client.ToChannel, client.ToPattern} {
		n.Channels.Each(kind, func(t *Topic) bool {
			if mayMatchEvents(t.Name, kind == client.ToPattern) {
				n.Channels.EachSubscriber(t, (*client.Client).DisconnectAfterLoss)
			}
			return true
		}, yield)
	}
}

// mayMatchEvents reports whether a subscription, to a channel or a pattern, may receive keyspace
// notifications.
func mayMatchEvents(name string, isPattern bool) bool {
	const common = "__key"
	if !isPattern {
		return strings.HasPrefix(name, common)
	}
	literal := name
	if at := strings.IndexAny(name, `*?[\`); at >= 0 {
		literal = name[:at]
	}
	return strings.HasPrefix(literal, common) || strings.HasPrefix(common, literal) && literal != name
}

// SendInBackground starts a goroutine that publishes all notices, including notices that are added meanwhile.
func (n *Notifier) SendInBackground() {
	if n.sending.CompareAndSwap(false, true) {
		go n.sendAll()
	}
}

// sendAll publishes notices until there are no more.
func (n *Notifier) sendAll() {
	n.Busy.Add(1)
	defer n.Busy.Add(-1)
	for {
		for n.waiting.Load() {
			n.sender.Lock()
			n.publish(command.MaxInt, func() {})
			n.sender.Unlock()
		}
		n.sending.Store(false)
		if !n.waiting.Load() || !n.sending.CompareAndSwap(false, true) {
			return
		}
	}
}

// Send publishes all notices before it returns. It may wait for another goroutine that publishes,
// so only calls outside the event loops use it, which keep their slots meanwhile.
func (n *Notifier) Send() {
	n.sender.Lock()
	n.publish(command.MaxInt, func() {})
	n.sender.Unlock()
	if n.waiting.Load() {
		n.SendInBackground()
	}
}

// TrySend publishes notices until the work reaches most, and returns the work (see command.Call). It
// returns false if another goroutine publishes, which then publishes these notices too.
func (n *Notifier) TrySend(most int) (work int, ok bool) {
	if !n.sender.TryLock() {
		return 0, false
	}
	defer n.sender.Unlock()
	return n.publish(most, func() {}), true
}

// Waiting reports whether there are notices to publish.
func (n *Notifier) Waiting() bool { return n.waiting.Load() }

// PublishesMisses reports whether reading a key that does not exist is an event.
func (n *Notifier) PublishesMisses() bool { return events(n.events.Load())&missedKeys != 0 }

// NoteMisses records an event for each key of a call that does not exist.
func (n *Notifier) NoteMisses(c *command.Call, row *command.Command, words [][]byte) {
	keys, _ := row.KeysOf(nil, words)
	for _, key := range keys {
		e, err := store.Entry{}, error(nil)
		if len(keys) > 1 {
			e, err = c.View.Lookup(c.Context, key)
		}
		if err == nil && e.Kind == limit.None {
			database := c.View.Selected()
			c.AfterCommit(func() { n.note(database, key, command.MissedEvent) })
		}
	}
}
