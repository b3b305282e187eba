package pubsub

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/resp"
)

// Channels holds the channels and patterns that have subscribers. Its lock is held for microseconds
// only: messages are delivered without the lock.
type Channels struct {
	mu     sync.RWMutex
	number uint64 // number of the latest topic or subscription
	Topics [client.SubscriptionKinds]topics

	PatternBytes         int          // total length of all patterns
	PatternSubscriptions int          // subscriptions to patterns
	Clients              atomic.Int64 // clients with subscriptions
}

// topics are the channels, patterns or shard channels that have subscribers.
type topics struct {
	byName map[string]*Topic
	All    orderedList[Topic]
}

// Topic is a channel or a pattern.
type Topic struct {
	Name        string
	number      uint64 // in the list of its kind
	subscribers orderedList[subscription]
}

// subscription is a subscription of a client to a topic.
type subscription struct {
	client *client.Client
	topic  *Topic
	number uint64 // in the topic's list
	ended  bool   // no message is delivered any more; changed with the client's mailbox locked
}

// subscriptions are the subscriptions of one client. Only the client's session reads and changes
// them.
type subscriptions struct {
	topics [client.SubscriptionKinds]map[string]*subscription
	bytes  int // total length of the names
}

func (l *subscriptions) count(kinds ...client.SubscriptionKind) (n int) {
	for _, kind := range kinds {
		n += len(l.topics[kind])
	}
	return n
}

// Total returns the number of subscriptions. While there are any, a client in RESP2 may send only a
// few other commands.
func (l *subscriptions) Total() int {
	return l.count(client.ToChannel, client.ToPattern, client.ToShardChannel)
}

// countInReply returns the number of subscriptions that a reply shows: channels and patterns together,
// or shard channels.
func (l *subscriptions) countInReply(kind client.SubscriptionKind) int {
	if kind == client.ToShardChannel {
		return l.count(client.ToShardChannel)
	}
	return l.count(client.ToChannel, client.ToPattern)
}

// names returns the names of the subscriptions of a kind.
func (l *subscriptions) names(kind client.SubscriptionKind) []string {
	return slices.Collect(maps.Keys(l.topics[kind]))
}

// The bounds of one client's subscriptions. They all end when the session ends, which takes a
// millisecond with so many.
const (
	MaxSubscriptions   = 4096
	MaxSubscribedBytes = 4 << 20 // total length of the names
)

const errTooManySubscriptions command.Refusal = "ERR too many subscriptions"

// SubscriptionsOf returns the subscriptions of a client. Only its own session may call it.
func SubscriptionsOf(c *client.Client) *subscriptions {
	l, _ := c.Subscriptions.(*subscriptions)
	if l == nil {
		l = new(subscriptions)
		c.Subscriptions = l
	}
	return l
}

// subscribe adds a subscription. It returns false if the client has it already.
func (cs *Channels) subscribe(c *client.Client, kind client.SubscriptionKind, name string) (added bool) {
	l := SubscriptionsOf(c)
	if l.topics[kind][name] != nil {
		return false
	}
	if l.topics[kind] == nil {
		l.topics[kind] = make(map[string]*subscription)
	}
	cs.updateCounts(c, kind, 1)
	l.topics[kind][name] = cs.add(c, kind, name)
	l.bytes += len(name)
	c.Charge(client.SubscriptionBytes + len(name))
	return true
}

// unsubscribe ends a subscription, if there is one. The messages that it has received precede the
// reply; it receives none afterwards. It returns false if there is none.
func (cs *Channels) unsubscribe(c *client.Client, s Session, kind client.SubscriptionKind,
	name string) (ended bool) {
	l := SubscriptionsOf(c)
	sub := l.topics[kind][name]
	if sub == nil {
		return false
	}
	cs.remove(kind, sub)
	delete(l.topics[kind], name)
	l.bytes -= len(name)
	c.Charge(-client.SubscriptionBytes - len(name))
	c.WithMailLocked(func() { sub.ended = true })
	s.WritePushes()
	cs.updateCounts(c, kind, 0)
	return true
}

// unsubscribeAll ends all subscriptions of a client, for RESET and at the end of its session.
func (cs *Channels) unsubscribeAll(c *client.Client, s Session) {
	if c.Subscriptions == nil {
		return
	}
	for kind := range client.SubscriptionKinds {
		for name := range SubscriptionsOf(c).topics[kind] {
			cs.unsubscribe(c, s, kind, name)
		}
	}
}

// updateCounts makes the number of a client's subscriptions visible to CLIENT LIST, to INFO and to
// the goroutines that push messages to the client. added is the number of subscriptions that are
// about to be added.
func (cs *Channels) updateCounts(c *client.Client, kind client.SubscriptionKind, added int) {
	l, before := SubscriptionsOf(c), c.IsSubscribed()
	subscribed := l.Total()+added > 0
	if subscribed && !before {
		cs.Clients.Add(1)
	} else if before && !subscribed {
		cs.Clients.Add(-1)
	}
	c.SetSubscribed(subscribed)
	c.Profile.Mu.Lock()
	defer c.Profile.Mu.Unlock()
	c.Profile.Subscriptions[kind] = l.count(kind) + added
}

func (cs *Channels) add(s *client.Client, kind client.SubscriptionKind, name string) *subscription {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	ts := &cs.Topics[kind]
	t := ts.byName[name]
	if t == nil {
		cs.number++
		t = &Topic{Name: name, number: cs.number}
		if ts.byName == nil {
			ts.byName = make(map[string]*Topic)
		}
		ts.byName[name] = t
		ts.All.add(t.number, t)
		if kind == client.ToPattern {
			cs.PatternBytes += len(name)
		}
	}
	cs.number++
	sub := &subscription{client: s, topic: t, number: cs.number}
	t.subscribers.add(sub.number, sub)
	if kind == client.ToPattern {
		cs.PatternSubscriptions++
	}
	return sub
}

func (cs *Channels) remove(kind client.SubscriptionKind, sub *subscription) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	t, ts := sub.topic, &cs.Topics[kind]
	t.subscribers.remove(sub.number)
	if kind == client.ToPattern {
		cs.PatternSubscriptions--
	}
	if t.subscribers.len() > 0 {
		return
	}
	delete(ts.byName, t.Name)
	ts.All.remove(t.number)
	if kind == client.ToPattern {
		cs.PatternBytes -= len(t.Name)
	}
}

// subscribers counts the subscribers of a topic.
func (cs *Channels) subscribers(kind client.SubscriptionKind, name []byte) int {
	cs.mu.RLock()
	defer cs.mu.RUnlock()
	if t := cs.Topics[kind].byName[string(name)]; t != nil {
		return t.subscribers.len()
	}
	return 0
}

// Count returns how many topics of a kind have subscribers.
func (cs *Channels) Count(kind client.SubscriptionKind) int {
	cs.mu.RLock()
	defer cs.mu.RUnlock()
	return len(cs.Topics[kind].byName)
}

// Message is a message that is published.
type Message struct {
	Kind             client.SubscriptionKind // ToChannel, which patterns receive too, or ToShardChannel
	Channel, Payload []byte
	until            uint64 // number of the last subscription that receives it; 0 for all present ones
}

// deliveryWork is the work (see command.Call) of delivering a message to one subscriber, without
// the bytes of its payload.
const deliveryWork = 512

// Work returns an upper bound of the work (see command.Call) of publishing a message. The time to
// match a pattern grows with the product of the lengths of pattern and channel.
func (cs *Channels) Work(m Message) int {
	cs.mu.RLock()
	defer cs.mu.RUnlock()
	receivers, matching := 0, 0
	if t := cs.Topics[m.Kind].byName[string(m.Channel)]; t != nil {
		receivers = t.subscribers.len()
	}
	if m.Kind == client.ToChannel {
		receivers += cs.PatternSubscriptions
		matching = cs.PatternBytes * (len(m.Channel) + 1)
	}
	return receivers*(deliveryWork+len(m.Payload)) + matching
}

// subscribersPerPiece is the number of members of a list that are read at once, with the lock held
// for some microseconds.
const subscribersPerPiece = 128

// latest returns the number of the latest topic or subscription, or 1, which is never the number of
// a subscription.
func (cs *Channels) latest() uint64 {
	cs.mu.RLock()
	defer cs.mu.RUnlock()
	return max(cs.number, 1)
}

// Publish delivers a message to its subscribers, and returns their number. Subscriptions that are
// made meanwhile do not receive it. Publish calls yield between pieces of the work.
func (cs *Channels) Publish(m Message, yield func()) (receivers int) {
	cs.mu.RLock()
	until, t := cmp.Or(m.until, cs.number), cs.Topics[m.Kind].byName[string(m.Channel)]
	cs.mu.RUnlock()
	if t != nil {
		receivers = cs.send(m.Kind, t, m, until, yield)
	}
	if m.Kind == client.ToShardChannel {
		return receivers
	}
	cs.eachUntil(client.ToPattern, until, func(pattern *Topic) bool {
		if command.Glob([]byte(pattern.Name), m.Channel, false) {
			receivers += cs.send(client.ToPattern, pattern, m, until, yield)
		}
		return true
	}, yield)
	return receivers
}

// Each calls visit for each topic of a kind, without the lock, until visit returns false. Between
// pieces of the work, Each calls yield.
func (cs *Channels) Each(kind client.SubscriptionKind, visit func(*Topic) bool, yield func()) {
	cs.mu.RLock()
	until := cs.number
	cs.mu.RUnlock()
	cs.eachUntil(kind, until, visit, yield)
}

// eachUntil is Each for the topics with numbers up to until.
func (cs *Channels) eachUntil(kind client.SubscriptionKind, until uint64, visit func(*Topic) bool, yield func()) {
	var found [subscribersPerPiece]*Topic
	for last := uint64(0); last < until; {
		cs.mu.RLock()
		var piece []*Topic
		piece, last = cs.Topics[kind].All.piece(found[:0], last, until, subscribersPerPiece)
		cs.mu.RUnlock()
		for _, t := range piece {
			if !visit(t) {
				return
			}
		}
		if last < until {
			yield()
		}
	}
}

// EachSubscriber calls visit for each subscriber of a topic, without the lock.
func (cs *Channels) EachSubscriber(t *Topic, visit func(*client.Client)) {
	var found [subscribersPerPiece]*subscription
	cs.mu.RLock()
	until := cs.number
	cs.mu.RUnlock()
	for last := uint64(0); last < until; {
		cs.mu.RLock()
		var piece []*subscription
		piece, last = t.subscribers.piece(found[:0], last, until, subscribersPerPiece)
		cs.mu.RUnlock()
		for _, sub := range piece {
			visit(sub.client)
		}
	}
}

// send delivers a message to the subscribers of one topic. The message is encoded once for each
// protocol.
func (cs *Channels) send(kind client.SubscriptionKind, t *Topic, m Message, until uint64,
	yield func()) (receivers int) {
	var found [subscribersPerPiece]*subscription
	var encoded client.Encodings
	write := func(out *resp.Writer) { m.write(out, kind, t.Name) }
	for last := uint64(0); last < until; {
		cs.mu.RLock()
		var piece []*subscription
		piece, last = t.subscribers.piece(found[:0], last, until, subscribersPerPiece)
		cs.mu.RUnlock()
		for _, sub := range piece {
			sub.client.PushFunc(func(to *client.Mailbox) *client.Parcel {
				if sub.ended {
					return nil
				}
				return encoded.In(to.Protocol(), write)
			})
			receivers++
		}
		if last < until {
			yield()
		}
	}
	return receivers
}

func (m Message) write(out *resp.Writer, kind client.SubscriptionKind, topic string) {
	if kind == client.ToPattern {
		out.Push(4)
		out.BulkString("pmessage")
		out.BulkString(topic)
	} else {
		out.Push(3)
		out.BulkString([...]string{client.ToChannel: "message", client.ToShardChannel: "smessage"}[kind])
	}
	out.Bulk(m.Channel)
	out.Bulk(m.Payload)
}
