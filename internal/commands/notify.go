package commands

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/commands/pubsub"
	"cellserver/internal/store"
)

// notifier publishes what happens to keys, if the setting notify-keyspace-events says so; else the
// store tells it nothing, and sessions do not look here. The store tells with the key locked: then
// an event is only noted. It is published when the call has been made, by its session; or by a
// goroutine, if the sweep has removed the key. What is published is bounded as a PUBLISH is: what
// takes long is sent beside the loop, with the session parked meanwhile, and a subscriber that
// reads too slowly is cut off.
type notifier struct {
	instance *Instance
	events   atomic.Uint32 // the same

	unsubscribe func() // while events are published; changed by one caller at a time, as the options are

	sender sync.Mutex // held by the one that publishes, so that events keep their order
	aside  atomic.Bool

	mu      sync.Mutex // of what is below: held for moments, with a key locked
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

// The bound of what waits to be published. More waits only if publishing does not keep up, and then
// those who listen are cut off, as they would be for not reading: they must not believe that they
// have heard everything.
const (
	maxNoticeBytes = 32 << 20
	noticeBytes    = 64 // beside the key
)

func (n *notifier) begin(in *Instance) {
	n.instance = in
}

// setNotifications chooses the events that are published, by letters as in redis.conf.
func (in *Instance) setNotifications(letters string) error {
	n, chosen := &in.notifier, eventsIn(letters)
	if chosen.published() && in.changes() == nil {
		return errors.New("notify-keyspace-events: " + command.MissingAbility(store.Notifies))
	}
	n.events.Store(uint32(chosen))
	switch publishes := n.unsubscribe != nil; {
	case chosen.published() && !publishes:
		n.unsubscribe = in.changes().Subscribe(n.heard)
		in.hooks.Or(notifying)
	case !chosen.published() && publishes:
		n.unsubscribe()
		n.unsubscribe = nil
		in.hooks.And(^notifying)
	}
	return nil
}

// heard is what the store says, with the key locked. The call that made the change is that of the
// client that signed it, and runs on this goroutine.
func (n *notifier) heard(database int, key []byte, why store.Event, by int64) {
	if why == store.Flushed || n.instance.channels.Clients.Load() == 0 {
		return
	}
	c := n.instance.running(by)
	if c == nil {
		if why == store.Expired {
			n.note(database, key, command.ExpiredEvent)
		}
		n.sendAside()
		return
	}
	for _, event := range c.EventNames(why) {
		n.note(database, key, event)
	}
	if c.Session != nil && !sessionOf(c).slowPath {
		n.sendAside() // its turn began before there were notifications, so that it does not look
	}
}

// note keeps an event to be published, if it is one of those that are wanted.
func (n *notifier) note(database int, key []byte, event string) {
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

// take takes all that waits.
func (n *notifier) take() (notices []notice, lost bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	notices, lost = n.notices, n.lost
	n.notices, n.bytes, n.lost = nil, 0, false
	n.waiting.Store(false)
	return notices, lost
}

// putBack puts what was not published before what came meanwhile.
func (n *notifier) putBack(notices []notice, lost bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, one := range notices {
		n.bytes += len(one.key) + noticeBytes
	}
	n.notices, n.lost = append(notices, n.notices...), n.lost || lost
	n.waiting.Store(true)
}

// publish publishes what waits, up to some worth, and says what it was worth. It needs the sender's
// lock.
func (n *notifier) publish(most int, giveWay func()) (worth int) {
	channels, wanted := &n.instance.channels, events(n.events.Load())
	notices, lost := n.take()
	for i, one := range notices {
		for _, m := range one.messages(wanted) {
			worth += channels.Work(m)
			channels.Publish(m, giveWay)
		}
		if worth > most && i < len(notices)-1 {
			n.putBack(notices[i+1:], lost)
			return worth
		}
	}
	if lost {
		n.cutListeners(giveWay)
	}
	return worth
}

// messages are what is published of an event: first to the key's channel, then to the event's.
func (one *notice) messages(wanted events) (list []pubsub.Message) {
	if wanted&toKeyspace != 0 {
		channel := fmt.Appendf(nil, "%s%d__:%s", keyspaceChannels, one.database, one.key)
		list = append(list, pubsub.Message{Kind: client.ToChannel, Channel: channel, Payload: []byte(one.event)})
	}
	if wanted&toKeyevent != 0 {
		channel := fmt.Appendf(nil, "%s%d__:%s", keyeventChannels, one.database, one.event)
		list = append(list, pubsub.Message{Kind: client.ToChannel, Channel: channel, Payload: one.key})
	}
	return list
}

// How the channels' names begin: the number of the database follows.
const (
	keyspaceChannels = "__keyspace@"
	keyeventChannels = "__keyevent@"
)

// cutListeners ends the connections that have not heard all.
func (n *notifier) cutListeners(giveWay func()) {
	for _, kind := range []client.SubscriptionKind{client.ToChannel, client.ToPattern} {
		n.instance.channels.Each(kind, func(t *pubsub.Topic) bool {
			if hearsKeys(t.Name, kind == client.ToPattern) {
				n.instance.channels.EachSubscriber(t, (*client.Client).DisconnectAfterLoss)
			}
			return true
		}, giveWay)
	}
}

// hearsKeys says whether keyspace notifications may come by a name.
func hearsKeys(name string, isPattern bool) bool {
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

// sendAside has a goroutine publish what waits, and what comes meanwhile.
func (n *notifier) sendAside() {
	if n.aside.CompareAndSwap(false, true) {
		go n.sendAll()
	}
}

func (n *notifier) sendAll() {
	n.instance.slow.about.Add(1) // so that the loops yield
	defer n.instance.slow.about.Add(-1)
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

// sendOnce publishes what waits, from beside the loop. The place of a Slow command is kept
// meanwhile: who waits for the sender's lock has one, too.
func (n *notifier) sendOnce() {
	n.sender.Lock()
	n.publish(command.MaxInt, func() {})
	n.sender.Unlock()
	if n.waiting.Load() {
		n.sendAside()
	}
}

// notify ends a call while there are notifications: what it has done is published before its reply
// is sent.
func notify(c *command.Call, misses int64, failed bool) {
	n := &instanceOf(c).notifier
	if c.Misses > misses && events(n.events.Load())&missedKeys != 0 {
		noteMissed(c)
	}
	s := sessionOf(c)
	switch {
	case c.InTransaction || !n.waiting.Load():
		return
	case s == nil:
		n.sendOnce()
		return
	case s.parked:
		n.sendAside()
		return
	case !n.sender.TryLock():
		return // the one that sends looks again when it is done
	}
	worth := n.publish(command.MaxLoopWork, func() {})
	n.sender.Unlock()
	c.Work += worth
	switch {
	case n.waiting.Load() && worth > command.MaxLoopWork:
		s.parkToEnd(c.Row, func(*command.Call) error {
			n.sendOnce()
			return nil
		})
	case n.waiting.Load():
		n.sendAside()
	}
	if s.IsSubscribed() && !failed {
		s.pushBeforeReply()
	}
}

// noteMissed notes which of the keys that the call has read are not there.
func noteMissed(c *command.Call) {
	keys, _ := c.Row.KeysOf(nil, c.Words)
	for _, key := range keys {
		e, err := store.Entry{}, error(nil)
		if len(keys) > 1 {
			e, err = c.View.Lookup(c.Context, key)
		}
		if err == nil && e.Kind == store.None {
			instanceOf(c).notifier.note(c.View.Selected(), key, command.MissedEvent)
		}
	}
}

// pushBeforeReply has what was pushed stand before the reply to the present call, as in Redis.
func (s *Session) pushBeforeReply() {
	reply := slices.Clone(s.out.Bytes()[s.mark:])
	s.out.Rewind(s.mark)
	s.WritePushes()
	s.out.Raw(reply)
}

// running is the call that a client makes, nil if that is not known. It is for the goroutine on
// which it runs.
func (in *Instance) running(by int64) *command.Call {
	if c, beside := in.slowCalls.Load(by); beside {
		return c.(*command.Call)
	}
	if c, ok := in.ownCalls.Load(by); ok {
		return c.(*command.Call)
	}
	return nil
}
