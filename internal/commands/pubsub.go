package commands

import (
	"fmt"
)

// Publish and subscribe.

// manyChannels is how many names one call may have: so many are subscribed to in a third of a millisecond.
const manyChannels = 1000

// listening is what commands have in common that a client may say while it listens.
const listening = PubSub | NoScript | Loading | Stale

var subscribe = Command{
	Name: "subscribe", Group: "pubsub", Since: "2.0.0", Complexity: "O(N) in the number of channels", Flags: listening, Traits: WhileSubscribed, Hearsay: manyNames,
	Effort:  listing,
	Summary: "Listens to channels.", Args: []Arg{Word("channel").Many().UpTo(manyChannels)}, Reply: subscribed,
	Run: func(c *Call) error { return c.subscribe(viaChannel) },
}

var pSubscribe = Command{
	Name: "psubscribe", Group: "pubsub", Since: "2.0.0", Complexity: "O(N) in the number of patterns", Flags: listening, Traits: WhileSubscribed, Hearsay: manyGlobs,
	Effort:  listing,
	Summary: "Listens to the channels whose names match.", Args: []Arg{Word("pattern").Many().UpTo(manyChannels)}, Reply: subscribed,
	Run: func(c *Call) error { return c.subscribe(viaPattern) },
}

var sSubscribe = Command{
	Name: "ssubscribe", Group: "pubsub", Since: "7.0.0", Complexity: "O(N) in the number of channels", Flags: listening, Traits: WhileSubscribed, ChannelAt: 1, Hearsay: manyNames,
	Effort:  listing,
	Summary: "Listens to shard channels, which are channels apart from the others.",
	Args:    []Arg{Word("shardchannel").Many().UpTo(manyChannels)}, Reply: subscribed,
	Run: func(c *Call) error {
		if c.inTransaction {
			return refusal("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client")
		}
		return c.subscribe(viaShard)
	},
}

var unsubscribe = Command{
	Name: "unsubscribe", Group: "pubsub", Since: "2.0.0", Complexity: "O(N) in the number of channels", Flags: listening, Traits: WhileSubscribed,
	Effort:  unlisting,
	Summary: "Listens to channels no longer; to none at all if none is named.",
	Args:    []Arg{Word("channel").Optional().Many().UpTo(manyChannels)}, Reply: subscribed,
	Run: func(c *Call) error { return c.unsubscribe(viaChannel) },
}

var pUnsubscribe = Command{
	Name: "punsubscribe", Group: "pubsub", Since: "2.0.0", Complexity: "O(N) in the number of patterns", Flags: listening, Traits: WhileSubscribed,
	Effort:  unlisting,
	Summary: "Listens to patterns no longer; to none at all if none is named.",
	Args:    []Arg{Word("pattern").Optional().Many().UpTo(manyChannels)}, Reply: subscribed,
	Run: func(c *Call) error { return c.unsubscribe(viaPattern) },
}

var sUnsubscribe = Command{
	Name: "sunsubscribe", Group: "pubsub", Since: "7.0.0", Complexity: "O(N) in the number of channels", Flags: listening, Traits: WhileSubscribed, ChannelAt: 1,
	Effort:  unlisting,
	Summary: "Listens to shard channels no longer; to none at all if none is named.",
	Args:    []Arg{Word("shardchannel").Optional().Many().UpTo(manyChannels)}, Reply: subscribed,
	Run: func(c *Call) error { return c.unsubscribe(viaShard) },
}

// subscribed is what each of them answers.
const subscribed = "For each name one message of three elements: the command, the name, how many subscriptions there are then."

// listedWorth is what it counts of a turn to note a channel or a watched key, in bytes that could be moved meanwhile.
const listedWorth = 2 * fewBytes

// unlistedWorth is the same for a name that is taken off.
const unlistedWorth = fewBytes / 4

// What they count in a transaction.
var (
	listing   = &Effort{Fixed: func(words [][]byte) int { return (len(words) - 1) * listedWorth }}
	unlisting = &Effort{Fixed: func(words [][]byte) int { return (len(words) - 1) * unlistedWorth }}
)

// subscribe answers each name. Those that are too many or too long are refused before any is subscribed to.
func (c *Call) subscribe(kind via) error {
	names, bytes := c.Many(), 0
	for _, name := range names {
		if err := c.checkChannel(kind, name); err != nil {
			return err
		}
		bytes += len(name)
	}
	l := &sessionOf(c).listens
	if l.all()+len(names) > maxSubscriptions || l.bytes+bytes > maxSubscribedBytes {
		return errTooManySubscriptions
	}
	c.moved += len(names) * listedWorth
	for _, name := range names {
		sessionOf(c).subscribe(kind, string(name))
		c.writeSubscription(kind, func() { c.Out.Bulk(name) })
	}
	c.stillHears(kind, names)
	return nil
}

// checkChannel bounds a name: the time to match one grows with it.
func (c *Call) checkChannel(kind via, name []byte) error {
	switch {
	case kind == viaPattern:
		pattern := Pattern("pattern")
		return c.take(&pattern, nil, name)
	case len(name) > c.Server.MaxKeySize:
		return refusal(fmt.Sprintf("ERR channel is longer than max-key-size (%d bytes)", c.Server.MaxKeySize))
	}
	return nil
}

// writeSubscription is a message for one name.
func (c *Call) writeSubscription(kind via, writeName func()) {
	sessionOf(c).aloud(func() {
		c.Out.Push(3)
		c.Out.BulkString(c.row.Name)
		writeName()
		c.Out.Int(int64(sessionOf(c).listens.shown(kind)))
	})
}

// unsubscribe answers each name; if none was named and there is none, one that is nil.
func (c *Call) unsubscribe(kind via) error {
	s, named := sessionOf(c), c.Many()
	if len(named) > 0 {
		for _, name := range named {
			s.unsubscribe(kind, string(name))
			c.writeSubscription(kind, func() { c.Out.Bulk(name) })
		}
		return nil
	}
	names := s.listens.names(kind)
	for _, name := range names {
		s.unsubscribe(kind, name)
		c.writeSubscription(kind, func() { c.Out.BulkString(name) })
	}
	if len(names) == 0 {
		c.writeSubscription(kind, c.Out.Null)
	}
	return nil
}

var publish = Command{
	Name: "publish", Group: "pubsub", Since: "2.0.0", Flags: PubSub | Loading | Stale | Fast, Cost: Constant, Traits: Sessionless, Hearsay: oneChannel,
	Complexity: "O(N+M) in the number of the channel's subscribers and of all patterns",
	Summary:    "Sends a message to those who listen to a channel.",
	Args:       []Arg{Word("channel"), Word("message")}, Reply: "How often it was sent.",
	Run: func(c *Call) error { return c.publish(viaChannel) },
}

var sPublish = Command{
	Name: "spublish", Group: "pubsub", Since: "7.0.0", Complexity: "O(N) in the number of subscribers",
	Flags: PubSub | Loading | Stale | Fast, Cost: Constant, Traits: Sessionless, ChannelAt: 1, Hearsay: oneChannel,
	Summary: "Sends a message to those who listen to a shard channel.",
	Args:    []Arg{Word("shardchannel"), Word("message")}, Reply: "How often it was sent.",
	Run: func(c *Call) error { return c.publish(viaShard) },
}

// publish sends a message at once, or beside the loop if that takes long; within a transaction after it, when no key is locked.
func (c *Call) publish(kind via) error {
	m := message{kind: kind, channel: c.Word(), payload: c.Word()}
	if err := c.checkChannel(kind, m.channel); err != nil {
		return err
	}
	s, all := sessionOf(c), &instanceOf(c).channels
	switch {
	case c.later != nil:
		m.until = all.latest() // who comes later in the transaction does not get it
		c.doLater(func() int { return all.worth(m) }, func(c *Call) { c.Out.Int(int64(all.publish(m, c.giveWay))) })
		return nil
	case s == nil:
		c.Out.Int(int64(all.publish(m, c.giveWay)))
		return nil
	}
	worth := all.worth(m)
	if worth > soon {
		s.HandOver()
		return nil
	}
	c.moved += worth
	n := all.publish(m, func() {})
	if s.subscribed {
		s.takePushes() // its own message stands before the reply, as in Redis
	}
	c.Out.Int(int64(n))
	return nil
}

var pubSub = Command{
	Name: "pubsub", Group: "pubsub", Category: "none", Since: "2.8.0", Complexity: "Depends on the subcommand.", Min: 2,
	Summary: "Commands about who listens to what.", AnyMore: true,
	Subs: []*Command{&pubSubChannels, &pubSubNumSub, &pubSubNumPat, &pubSubShardChannels, &pubSubShardNumSub, helpOf("pubsub", "6.2.0")},
}

const aboutChannels = PubSub | Loading | Stale

var pubSubChannels = Command{
	Name: "pubsub|channels", Group: "pubsub", Since: "2.8.0", Complexity: "O(N) in the number of channels", Flags: aboutChannels, Cost: Unbounded,
	Summary: "Lists the channels that somebody listens to.", AnyMore: true,
	Args: []Arg{Pattern("pattern").Optional()}, Reply: "Their names, of those that match if there is a pattern.",
	Run: func(c *Call) error { return c.listChannels(viaChannel) },
}

var pubSubShardChannels = Command{
	Name: "pubsub|shardchannels", Group: "pubsub", Since: "7.0.0", Complexity: "O(N) in the number of channels", Flags: aboutChannels, Cost: Unbounded,
	Summary: "Lists the shard channels that somebody listens to.", AnyMore: true,
	Args: []Arg{Pattern("pattern").Optional()}, Reply: "Their names, of those that match if there is a pattern.",
	Run: func(c *Call) error { return c.listChannels(viaShard) },
}

func (c *Call) listChannels(kind via) error {
	if len(c.words) > 3 {
		return refusal(fmt.Sprintf("ERR unknown subcommand or wrong number of arguments for '%.128s'. Try PUBSUB HELP.", c.words[1]))
	}
	pattern := c.Word()
	var names []string
	bytes := 0
	instanceOf(c).channels.each(kind, func(t *topic) bool {
		if pattern == nil || glob(pattern, []byte(t.name), false) {
			names = append(names, t.name)
			bytes += len(t.name)
		}
		return bytes <= maxReply && c.Context.Err() == nil
	}, c.giveWay)
	if bytes > maxReply {
		return errReplyTooLong
	}
	c.Out.Array(len(names))
	for _, name := range names {
		c.Out.BulkString(name)
		c.Out.Break()
	}
	return nil
}

var pubSubNumSub = Command{
	Name: "pubsub|numsub", Group: "pubsub", Since: "2.8.0", Complexity: "O(N) in the number of channels", Flags: aboutChannels,
	Summary: "Counts the subscribers of channels.",
	Args:    []Arg{Word("channel").Optional().Many().UpTo(manyChannels)}, Reply: "Each channel, and how many listen to it; patterns do not count.",
	Run: func(c *Call) error { return c.countSubscribers(viaChannel) },
}

var pubSubShardNumSub = Command{
	Name: "pubsub|shardnumsub", Group: "pubsub", Since: "7.0.0", Complexity: "O(N) in the number of channels", Flags: aboutChannels,
	Summary: "Counts the subscribers of shard channels.",
	Args:    []Arg{Word("shardchannel").Optional().Many().UpTo(manyChannels)}, Reply: "Each channel, and how many listen to it.",
	Run: func(c *Call) error { return c.countSubscribers(viaShard) },
}

func (c *Call) countSubscribers(kind via) error {
	names := c.Many()
	c.Out.Array(2 * len(names))
	for _, name := range names {
		c.Out.Bulk(name)
		c.Out.Int(int64(instanceOf(c).channels.subscribers(kind, name)))
	}
	return nil
}

var pubSubNumPat = Command{
	Name: "pubsub|numpat", Group: "pubsub", Since: "2.8.0", Complexity: "O(1)", Flags: aboutChannels,
	Summary: "Counts the patterns that somebody listens to.", Reply: "Their number: one that several listen to counts once.",
	Run: func(c *Call) error {
		c.Out.Int(int64(instanceOf(c).channels.count(viaPattern)))
		return nil
	},
}

// errListening refuses what a client may not say in RESP2 while it listens: it could not tell replies from messages.
func errListening(row *Command) error {
	return refusal(fmt.Sprintf("ERR Can't execute '%s': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context", row.Name))
}
