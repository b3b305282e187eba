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

// Who has subscribed to what, and how messages get to them.

// Channels knows who has subscribed to what. Its lock is held for moments: messages are handed out
// without it.
type Channels struct {
	mu     sync.RWMutex
	number uint64 // of the topic, or the subscription, that was made last
	Topics [client.SubscriptionKinds]topics

	PatternBytes         int          // of all patterns
	Clients              atomic.Int64 // who have subscribed to something
	PatternSubscriptions int          // how many subscriptions there are to patterns
}

// topics are the names of a kind that have subscribers.
type topics struct {
	byName map[string]*Topic
	All    orderedList[Topic]
}

// Topic is a channel or a pattern.
type Topic struct {
	Name        string
	number      uint64 // among the topics
	subscribers orderedList[subscription]
}

// subscription is what a session has to a topic.
type subscription struct {
	client *client.Client
	topic  *Topic
	number uint64 // among the topic's
	ended  bool   // with the session's mail locked: nothing comes after it
}

// subscriptions is what a session has subscribed to. It is the session's own.
type subscriptions struct {
	topics [client.SubscriptionKinds]map[string]*subscription
	bytes  int // of the names
}

func (l *subscriptions) count(kinds ...client.SubscriptionKind) (n int) {
	for _, kind := range kinds {
		n += len(l.topics[kind])
	}
	return n
}

// Total counts the subscriptions. While there are some, a client in RESP2 speaks of nothing else.
func (l *subscriptions) Total() int {
	return l.count(client.ToChannel, client.ToPattern, client.ToShardChannel)
}

// countInReply is the number that stands in a reply: channels and patterns together, shard channels apart.
func (l *subscriptions) countInReply(kind client.SubscriptionKind) int {
	if kind == client.ToShardChannel {
		return l.count(client.ToShardChannel)
	}
	return l.count(client.ToChannel, client.ToPattern)
}

// names lists what there is of a kind.
func (l *subscriptions) names(kind client.SubscriptionKind) []string {
	return slices.Collect(maps.Keys(l.topics[kind]))
}

// The bounds of what a session subscribes to: as many are left at once when it goes, which takes a
// millisecond; and the bytes of their names.
const (
	MaxSubscriptions   = 4096
	MaxSubscribedBytes = 4 << 20
)

const errTooManySubscriptions command.Refusal = "ERR too many subscriptions"

// SubscriptionsOf is what a client has subscribed to; for its own session.
func SubscriptionsOf(c *client.Client) *subscriptions {
	l, _ := c.Subscriptions.(*subscriptions)
	if l == nil {
		l = new(subscriptions)
		c.Subscriptions = l
	}
	return l
}

func (cs *Channels) subscribe(c *client.Client, kind client.SubscriptionKind, name string) {
	l := SubscriptionsOf(c)
	if l.topics[kind][name] != nil {
		return
	}
	if l.topics[kind] == nil {
		l.topics[kind] = make(map[string]*subscription)
	}
	cs.updateCounts(c, kind, 1)
	l.topics[kind][name] = cs.add(c, kind, name)
	l.bytes += len(name)
	c.Charge(client.SubscriptionBytes + len(name))
}

// unsubscribe ends a subscription, if there is one: what was published before comes before the
// reply, and nothing after it.
func (cs *Channels) unsubscribe(c *client.Client, s command.Session, kind client.SubscriptionKind, name string) {
	l := SubscriptionsOf(c)
	sub := l.topics[kind][name]
	if sub == nil {
		return
	}
	cs.remove(kind, sub)
	delete(l.topics[kind], name)
	l.bytes -= len(name)
	c.Charge(-client.SubscriptionBytes - len(name))
	c.WithMailLocked(func() { sub.ended = true })
	s.WritePushes()
	cs.updateCounts(c, kind, 0)
}

// UnsubscribeAll ends all subscriptions of a client: for RESET, and when its session ends.
func (cs *Channels) UnsubscribeAll(c *client.Client, s command.Session) {
	if c.Subscriptions == nil {
		return
	}
	for kind := range client.SubscriptionKinds {
		for name := range SubscriptionsOf(c).topics[kind] {
			cs.unsubscribe(c, s, kind, name)
		}
	}
}

// updateCounts has others see how many subscriptions there are, with some that are coming.
func (cs *Channels) updateCounts(c *client.Client, kind client.SubscriptionKind, coming int) {
	l, before := SubscriptionsOf(c), c.IsSubscribed()
	subscribed := l.Total()+coming > 0
	if subscribed && !before {
		cs.Clients.Add(1)
	} else if before && !subscribed {
		cs.Clients.Add(-1)
	}
	c.SetSubscribed(subscribed)
	c.Profile.Mu.Lock()
	defer c.Profile.Mu.Unlock()
	c.Profile.Subscriptions[kind] = l.count(kind) + coming
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

// subscribers counts those of a topic.
func (cs *Channels) subscribers(kind client.SubscriptionKind, name []byte) int {
	cs.mu.RLock()
	defer cs.mu.RUnlock()
	if t := cs.Topics[kind].byName[string(name)]; t != nil {
		return t.subscribers.len()
	}
	return 0
}

// Count is how many topics of a kind have subscribers.
func (cs *Channels) Count(kind client.SubscriptionKind) int {
	cs.mu.RLock()
	defer cs.mu.RUnlock()
	return len(cs.Topics[kind].byName)
}

// Message is what is published.
type Message struct {
	Kind             client.SubscriptionKind // viaChannel, and so by patterns too; or viaShard
	Channel, Payload []byte
	until            uint64 // the subscription that was the latest when it was published, 0 for now
}

// deliveryWork is what it takes to hand a message to one subscriber, in bytes that could be moved
// meanwhile.
const deliveryWork = 512

// Work is what it takes to publish a message, at most, in bytes that could be moved meanwhile. To
// match a pattern takes as long as both are long.
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

// Of a list, so many are looked at with the lock held: some microseconds.
const subscribersPerPiece = 128

// latest is the number of the latest subscription, or 1, which none has.
func (cs *Channels) latest() uint64 {
	cs.mu.RLock()
	defer cs.mu.RUnlock()
	return max(cs.number, 1)
}

// Publish hands a message to its subscribers, and says how many they were. Those who come meanwhile
// do not get it.
func (cs *Channels) Publish(m Message, giveWay func()) (receivers int) {
	cs.mu.RLock()
	until, t := cmp.Or(m.until, cs.number), cs.Topics[m.Kind].byName[string(m.Channel)]
	cs.mu.RUnlock()
	if t != nil {
		receivers = cs.send(m.Kind, t, m, until, giveWay)
	}
	if m.Kind == client.ToShardChannel {
		return receivers
	}
	cs.eachUntil(client.ToPattern, until, func(pattern *Topic) bool {
		if command.Glob([]byte(pattern.Name), m.Channel, false) {
			receivers += cs.send(client.ToPattern, pattern, m, until, giveWay)
		}
		return true
	}, giveWay)
	return receivers
}

// Each visits the topics of a kind, without the lock, until it has enough.
func (cs *Channels) Each(kind client.SubscriptionKind, visit func(*Topic) bool, giveWay func()) {
	cs.mu.RLock()
	until := cs.number
	cs.mu.RUnlock()
	cs.eachUntil(kind, until, visit, giveWay)
}

func (cs *Channels) eachUntil(kind client.SubscriptionKind, until uint64, visit func(*Topic) bool, giveWay func()) {
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
			giveWay()
		}
	}
}

// send hands a message to the subscribers of one topic.
func (cs *Channels) send(kind client.SubscriptionKind, t *Topic, m Message, until uint64,
	giveWay func()) (receivers int) {
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
			giveWay()
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
