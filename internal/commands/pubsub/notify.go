package pubsub

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/store"
)

// Notifier publishes keyspace notifications, while the setting notify-keyspace-events asks for any;
// else the store announces nothing to it, and sessions do not call it. The store announces a change
// with the key locked, so the event is only noted then. It is published after the call, by the
// call's session; or by a goroutine, if the sweep has removed the key. Publishing is bounded as a
// PUBLISH is: what takes long is published outside of the event loop, with the session parked
// meanwhile, and a subscriber that reads too slowly is disconnected.
type Notifier struct {
	Channels *Channels
	Changes  store.Notifier // nil if the store announces no changes
	Hooks    *command.Hooks
	Busy     *atomic.Int32 // counts the goroutines that event loops make way for
	// Running is the call that a client makes, nil if that is not known. It is asked on the goroutine
	// that makes the call.
	Running func(client int64) *command.Call

	events      atomic.Uint32 // events that are published
	unsubscribe func()        // while any is; changed by one caller at a time, as options are

	sender sync.Mutex // held while events are published, so that they keep their order
	aside  atomic.Bool

	mu      sync.Mutex // of the fields below; held for moments, with a key locked
	notices []notice
	bytes   int
	lost    bool // there were too many
	waiting atomic.Bool
}

// notice is one event.
type notice struct {
	database int
	key      []byte
	event    string
}

// The bound of the events that wait to be published. More wait only if publishing does not keep up:
// then they are dropped, and the subscribers disconnected, as if they had not read them, because
// they must not believe that they have received everything.
const (
	maxNoticeBytes = 32 << 20
	noticeBytes    = 64 // of a notice, besides its key
)

// Set chooses the events that are published, by letters as in redis.conf.
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

// noteChange notes the events of a change. The store calls it with the key locked,
// on the goroutine of the call that made the change; by is the client whose call that is.
func (n *Notifier) noteChange(database int, key []byte, why store.Event, by int64) {
	if why == store.Flushed || n.Channels.Clients.Load() == 0 {
		return
	}
	c := n.Running(by)
	if c == nil {
		if why == store.Expired {
			n.note(database, key, command.ExpiredEvent)
		}
		n.SendAside()
		return
	}
	for _, event := range c.EventNames(why) {
		n.note(database, key, event)
	}
	if c.Session != nil && !c.Session.OnSlowPath() {
		n.SendAside() // its turn began before there were notifications: the session will not send them
	}
}

// note keeps an event until it is published, if its class is published.
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

// take takes all notices.
func (n *Notifier) take() (notices []notice, lost bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	notices, lost = n.notices, n.lost
	n.notices, n.bytes, n.lost = nil, 0, false
	n.waiting.Store(false)
	return notices, lost
}

// putBack returns notices that were not published, before those that came meanwhile.
func (n *Notifier) putBack(notices []notice, lost bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, one := range notices {
		n.bytes += len(one.key) + noticeBytes
	}
	n.notices, n.lost = append(notices, n.notices...), n.lost || lost
	n.waiting.Store(true)
}

// publish publishes notices until that has cost most, and returns what it has cost. It needs the
// sender's lock.
func (n *Notifier) publish(most int, giveWay func()) (cost int) {
	channels, wanted := n.Channels, events(n.events.Load())
	notices, lost := n.take()
	for i, one := range notices {
		for _, m := range one.messages(wanted) {
			cost += channels.Work(m)
			channels.Publish(m, giveWay)
		}
		if cost > most && i < len(notices)-1 {
			n.putBack(notices[i+1:], lost)
			return cost
		}
	}
	if lost {
		n.cutSubscribers(giveWay)
	}
	return cost
}

// messages are what is published of an event: first to the key's channel, then to the event's.
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

// How the channels' names begin: the number of the database follows.
const (
	keyspaceChannels = "__keyspace@"
	keyeventChannels = "__keyevent@"
)

// cutSubscribers disconnects the clients that have not received every event.
func (n *Notifier) cutSubscribers(giveWay func()) {
	for _, kind := range []client.SubscriptionKind{client.ToChannel, client.ToPattern} {
		n.Channels.Each(kind, func(t *Topic) bool {
			if mayMatchEvents(t.Name, kind == client.ToPattern) {
				n.Channels.EachSubscriber(t, (*client.Client).DisconnectAfterLoss)
			}
			return true
		}, giveWay)
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

// SendAside has a goroutine publish all notices, and those that come meanwhile.
func (n *Notifier) SendAside() {
	if n.aside.CompareAndSwap(false, true) {
		go n.sendAll()
	}
}

func (n *Notifier) sendAll() {
	n.Busy.Add(1)
	defer n.Busy.Add(-1)
	for {
		for n.waiting.Load() {
			n.sender.Lock()
			n.publish(command.MaxInt, func() {})
			n.sender.Unlock()
		}
		n.aside.Store(false)
		if !n.waiting.Load() || !n.aside.CompareAndSwap(false, true) {
			return
		}
	}
}

// Send publishes all notices before it returns. It is called outside of the event loops, by calls
// that keep their place among slow calls: so is every other that waits for the sender's lock.
func (n *Notifier) Send() {
	n.sender.Lock()
	n.publish(command.MaxInt, func() {})
	n.sender.Unlock()
	if n.waiting.Load() {
		n.SendAside()
	}
}

// TrySend publishes notices until that has cost most, and returns what it has cost. It returns false
// if another goroutine publishes: then that sees to them.
func (n *Notifier) TrySend(most int) (cost int, ok bool) {
	if !n.sender.TryLock() {
		return 0, false
	}
	defer n.sender.Unlock()
	return n.publish(most, func() {}), true
}

// Waiting reports whether there are notices.
func (n *Notifier) Waiting() bool { return n.waiting.Load() }

// PublishesMisses reports whether reading a key that does not exist is an event.
func (n *Notifier) PublishesMisses() bool { return events(n.events.Load())&missedKeys != 0 }

// NoteMisses notes which of the keys that a call has read do not exist.
func (n *Notifier) NoteMisses(c *command.Call) {
	keys, _ := c.Row.KeysOf(nil, c.Words)
	for _, key := range keys {
		e, err := store.Entry{}, error(nil)
		if len(keys) > 1 {
			e, err = c.View.Lookup(c.Context, key)
		}
		if err == nil && e.Kind == store.None {
			n.note(c.View.Selected(), key, command.MissedEvent)
		}
	}
}
