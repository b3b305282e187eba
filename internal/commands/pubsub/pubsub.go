// Package pubsub is SUBSCRIBE, PUBLISH and their like: which client is subscribed to what, and how
// messages get there.
package pubsub

import (
	"fmt"

	"cellserver/internal/client"
	"cellserver/internal/command"
)

// Commands lists the family in reading order.
func (cs *Channels) Commands() []*command.Command {
	return []*command.Command{
		cs.subscribeRow(), cs.unsubscribeRow(), cs.psubscribeRow(), cs.punsubscribeRow(), cs.publishRow(), cs.pubsubRow(),
		cs.ssubscribeRow(), cs.sunsubscribeRow(), cs.spublishRow(),
	}
}

// ManyChannels is how many names one call may have.
const ManyChannels = 1000

// subscribeFlags is what commands have in common that a client may say while it listens.
const subscribeFlags = command.PubSub | command.NoScript | command.Loading | command.Stale

// subscribing completes the row of a command that subscribes to the names in its words.
func (cs *Channels) subscribing(row command.Command, kind client.SubscriptionKind, name string) *command.Command {
	row.Group, row.Flags, row.Effort = "pubsub", subscribeFlags, effortOfSubscribing
	row.Traits |= command.WhileSubscribed
	row.Complexity, row.Reply = "O(N) in the number of "+plural(kind), subscriptionReply
	row.Args = []command.Arg{command.Word(name).Many().UpTo(ManyChannels)}
	row.Run = func(c *command.Call) error {
		if kind == client.ToShardChannel && c.InTransaction {
			return command.Refusal("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client")
		}
		return cs.subscribeTo(c, kind)
	}
	return &row
}

// unsubscribing completes the row of a command that ends subscriptions to the names in its words,
// or to all of their kind.
func (cs *Channels) unsubscribing(row command.Command, kind client.SubscriptionKind, name string) *command.Command {
	row.Group, row.Flags, row.Effort = "pubsub", subscribeFlags, effortOfUnsubscribing
	row.Traits |= command.WhileSubscribed
	row.Complexity, row.Reply = "O(N) in the number of "+plural(kind), subscriptionReply
	row.Args = []command.Arg{command.Word(name).Optional().Many().UpTo(ManyChannels)}
	row.Run = func(c *command.Call) error { return cs.unsubscribeFrom(c, kind) }
	return &row
}

func plural(kind client.SubscriptionKind) string {
	if kind == client.ToPattern {
		return "patterns"
	}
	return "channels"
}

func (cs *Channels) subscribeRow() *command.Command {
	return cs.subscribing(command.Command{
		Name: "subscribe", Since: "2.0.0", Channels: command.ChannelNames,
		Summary: "Subscribes to channels.",
	}, client.ToChannel, "channel")
}

func (cs *Channels) psubscribeRow() *command.Command {
	return cs.subscribing(command.Command{
		Name: "psubscribe", Since: "2.0.0", Channels: command.ChannelPatterns,
		Summary: "Subscribes to all channels whose names match a pattern.",
	}, client.ToPattern, "pattern")
}

func (cs *Channels) ssubscribeRow() *command.Command {
	return cs.subscribing(command.Command{
		Name: "ssubscribe", Since: "7.0.0", Channels: command.ChannelNames, Traits: command.ShardChannels,
		Summary: "Subscribes to shard channels, which are separate from the other channels.",
	}, client.ToShardChannel, "shardchannel")
}

func (cs *Channels) unsubscribeRow() *command.Command {
	return cs.unsubscribing(command.Command{
		Name: "unsubscribe", Since: "2.0.0",
		Summary: "Unsubscribes from channels; from all if none is named.",
	}, client.ToChannel, "channel")
}

func (cs *Channels) punsubscribeRow() *command.Command {
	return cs.unsubscribing(command.Command{
		Name: "punsubscribe", Since: "2.0.0",
		Summary: "Unsubscribes from patterns; from all if none is named.",
	}, client.ToPattern, "pattern")
}

func (cs *Channels) sunsubscribeRow() *command.Command {
	return cs.unsubscribing(command.Command{
		Name: "sunsubscribe", Since: "7.0.0", Traits: command.ShardChannels,
		Summary: "Unsubscribes from shard channels; from all if none is named.",
	}, client.ToShardChannel, "shardchannel")
}

// subscriptionReply is what each of them answers.
const subscriptionReply = "For each name, a message of three elements: the command, the name, the number of subscriptions after it."

// SubscribeWork is what it counts of a turn to note a channel or a watched key, in bytes that could
// be moved meanwhile.
const SubscribeWork = 2 * command.BytesPerUnit

// unsubscribeWork is the same for a name that is taken off.
const unsubscribeWork = command.BytesPerUnit / 4

// copiesPerName is how often the bytes of a name are counted in a transaction, where no turn ends
// between names: each is copied twice, hashed four times, and goes to memory that is touched for
// the first time.
const copiesPerName = 8

// What they count in a transaction.
var (
	effortOfSubscribing = &command.Effort{Fixed: func(words [][]byte) int {
		return (len(words)-1)*SubscribeWork + copiesPerName*command.TotalLength(words)
	}}
	effortOfUnsubscribing = &command.Effort{Fixed: func(words [][]byte) int { return (len(words) - 1) * unsubscribeWork }}
)

// subscribeTo answers each name. Those that are too many or too long are refused before any is
// subscribed to.
func (cs *Channels) subscribeTo(c *command.Call, kind client.SubscriptionKind) error {
	names, bytes := c.Many(), 0
	for _, name := range names {
		if err := checkChannel(c, kind, name); err != nil {
			return err
		}
		bytes += len(name)
	}
	l := SubscriptionsOf(c.Client)
	if l.Total()+len(names) > MaxSubscriptions || l.bytes+bytes > MaxSubscribedBytes {
		return errTooManySubscriptions
	}
	if !c.InTransaction && pieceLength(names) < len(names) {
		cs.subscribeInPieces(c, kind, len(names))
		return nil
	}
	cs.subscribeEach(c, kind, names)
	recheckRights(c, kind, names)
	return nil
}

// subscribeInPieces subscribes to the last so many words of the call, a piece in each turn.
func (cs *Channels) subscribeInPieces(c *command.Call, kind client.SubscriptionKind, count int) {
	var names [][]byte
	next := 0
	piece := func() (last bool) {
		n := pieceLength(names[next:])
		cs.subscribeEach(c, kind, names[next:next+n])
		if next += n; next == len(names) {
			recheckRights(c, kind, names)
		}
		return next == len(names)
	}
	words := c.Session.Continue(piece)
	names = words[len(words)-count:]
}

// What a turn subscribes to at most: so many names, and so many bytes of them unless one alone is
// longer. That is a tenth of a millisecond.
const (
	NamesPerPiece     = 128
	NameBytesPerPiece = 64 << 10
)

// pieceLength is how many of the names a turn subscribes to.
func pieceLength(names [][]byte) int {
	bytes := 0
	for i, name := range names {
		if bytes += len(name); i == NamesPerPiece || i > 0 && bytes > NameBytesPerPiece {
			return i
		}
	}
	return len(names)
}

// subscribeEach subscribes to names, and answers each.
func (cs *Channels) subscribeEach(c *command.Call, kind client.SubscriptionKind, names [][]byte) {
	c.Work += len(names)*SubscribeWork + command.TotalLength(names)
	for _, name := range names {
		cs.subscribe(c.Client, kind, string(name))
		cs.writeSubscription(c, kind, func() { c.Out.Bulk(name) })
	}
}

// checkChannel bounds a name: the time to match one grows with it.
func checkChannel(c *command.Call, kind client.SubscriptionKind, name []byte) error {
	switch {
	case kind == client.ToPattern:
		pattern := command.Pattern("pattern")
		return c.Take(&pattern, nil, name)
	case len(name) > c.Server.MaxKeySize:
		return command.Refusal(fmt.Sprintf("ERR channel is longer than max-key-size (%d bytes)", c.Server.MaxKeySize))
	}
	return nil
}

// writeSubscription is a message for one name.
func (cs *Channels) writeSubscription(c *command.Call, kind client.SubscriptionKind, writeName func()) {
	c.Session.WriteUnmuted(func() {
		c.Out.Push(3)
		c.Out.BulkString(c.Row.Name)
		writeName()
		c.Out.Int(int64(SubscriptionsOf(c.Client).countInReply(kind)))
	})
}

// unsubscribeFrom answers each name; if none was named and there is none, one that is nil.
func (cs *Channels) unsubscribeFrom(c *command.Call, kind client.SubscriptionKind) error {
	l, named := SubscriptionsOf(c.Client), c.Many()
	if len(named) > 0 {
		for _, name := range named {
			cs.unsubscribe(c.Client, c.Session, kind, string(name))
			cs.writeSubscription(c, kind, func() { c.Out.Bulk(name) })
		}
		return nil
	}
	names := l.names(kind)
	for _, name := range names {
		cs.unsubscribe(c.Client, c.Session, kind, name)
		cs.writeSubscription(c, kind, func() { c.Out.BulkString(name) })
	}
	if len(names) == 0 {
		cs.writeSubscription(c, kind, c.Out.Null)
	}
	return nil
}

func (cs *Channels) publishRow() *command.Command {
	return cs.publishing(command.Command{
		Name: "publish", Since: "2.0.0",
		Complexity: "O(N+M) in the number of the channel's subscribers and of all patterns",
		Summary:    "Sends a message to the subscribers of a channel.",
	}, client.ToChannel, "channel")
}

func (cs *Channels) spublishRow() *command.Command {
	return cs.publishing(command.Command{
		Name: "spublish", Since: "7.0.0", Complexity: "O(N) in the number of subscribers",
		Traits:  command.ShardChannels,
		Summary: "Sends a message to the subscribers of a shard channel.",
	}, client.ToShardChannel, "shardchannel")
}

// publishing completes the row of a command that publishes a message.
func (cs *Channels) publishing(row command.Command, kind client.SubscriptionKind, name string) *command.Command {
	row.Group, row.Channels = "pubsub", command.OneChannel
	row.Flags = command.PubSub | command.Loading | command.Stale | command.Fast
	row.Cost, row.Traits = command.Constant, row.Traits|command.Sessionless
	row.Args = []command.Arg{command.Word(name), command.Word("message")}
	row.Reply = "The number of clients that it was sent to."
	row.Run = func(c *command.Call) error { return cs.publishTo(c, kind) }
	return &row
}

// publishTo sends a message at once, or beside the loop if that takes long; within a transaction
// after it, when no key is locked.
func (cs *Channels) publishTo(c *command.Call, kind client.SubscriptionKind) error {
	m := Message{Kind: kind, Channel: c.Word(), Payload: c.Word()}
	if err := checkChannel(c, kind, m.Channel); err != nil {
		return err
	}
	switch {
	case c.Deferred != nil:
		m.until = cs.latest() // who comes later in the transaction does not get it
		c.Defer(func() int { return cs.Work(m) }, func(c *command.Call) { c.Out.Int(int64(cs.Publish(m, c.Yield))) })
		return nil
	case c.Session == nil:
		c.Out.Int(int64(cs.Publish(m, c.Yield)))
		return nil
	}
	worth := cs.Work(m)
	if worth > command.MaxLoopWork {
		c.Session.Offload()
		return nil
	}
	c.Work += worth
	n := cs.Publish(m, func() {})
	if c.Client.IsSubscribed() {
		c.Session.WritePushes() // its own message stands before the reply, as in Redis
	}
	c.Out.Int(int64(n))
	return nil
}

func (cs *Channels) pubsubRow() *command.Command {
	return &command.Command{
		Name: "pubsub", Group: "pubsub", Category: "none", Since: "2.8.0",
		Complexity: "Depends on the subcommand.", Min: 2,
		Summary: "Commands about channels and their subscribers.", AnyMore: true,
		Subs: []*command.Command{
			cs.listing(command.Command{
				Name: "pubsub|channels", Since: "2.8.0", Summary: "Lists the channels that have subscribers.",
			}, client.ToChannel),
			cs.counting(command.Command{
				Name: "pubsub|numsub", Since: "2.8.0", Summary: "Counts the subscribers of channels.",
				Reply: "Each channel, and its number of subscribers; patterns do not count.",
			}, client.ToChannel, "channel"),
			cs.numPatRow(),
			cs.listing(command.Command{
				Name: "pubsub|shardchannels", Since: "7.0.0", Summary: "Lists the shard channels that have subscribers.",
			}, client.ToShardChannel),
			cs.counting(command.Command{
				Name: "pubsub|shardnumsub", Since: "7.0.0", Summary: "Counts the subscribers of shard channels.",
				Reply: "Each channel, and its number of subscribers.",
			}, client.ToShardChannel, "shardchannel"),
			command.HelpOf("pubsub", "6.2.0"),
		},
	}
}

const pubsubFlags = command.PubSub | command.Loading | command.Stale

// listing completes the row of a command that lists channels.
func (cs *Channels) listing(row command.Command, kind client.SubscriptionKind) *command.Command {
	row.Group, row.Complexity = "pubsub", "O(N) in the number of channels"
	row.Flags, row.Cost, row.AnyMore = pubsubFlags, command.Unbounded, true
	row.Args = []command.Arg{command.Pattern("pattern").Optional()}
	row.Reply = "Their names; with a pattern, those that match."
	row.Run = func(c *command.Call) error { return cs.listChannels(c, kind) }
	return &row
}

// counting completes the row of a command that counts the subscribers of channels.
func (cs *Channels) counting(row command.Command, kind client.SubscriptionKind, name string) *command.Command {
	row.Group, row.Complexity, row.Flags = "pubsub", "O(N) in the number of channels", pubsubFlags
	row.Args = []command.Arg{command.Word(name).Optional().Many().UpTo(ManyChannels)}
	row.Run = func(c *command.Call) error { return cs.countSubscribers(c, kind) }
	return &row
}

func (cs *Channels) listChannels(c *command.Call, kind client.SubscriptionKind) error {
	if len(c.Words) > 3 {
		return command.Refusal(fmt.Sprintf("ERR unknown subcommand or wrong number of arguments for '%.128s'. Try PUBSUB HELP.", c.Words[1]))
	}
	pattern := c.Word()
	var names []string
	bytes := 0
	cs.Each(kind, func(t *Topic) bool {
		if pattern == nil || command.Glob(pattern, []byte(t.Name), false) {
			names = append(names, t.Name)
			bytes += len(t.Name)
		}
		return bytes <= command.MaxReply && c.Context.Err() == nil
	}, c.Yield)
	if bytes > command.MaxReply {
		return command.ErrReplyTooLong
	}
	c.Out.Array(len(names))
	for _, name := range names {
		c.Out.BulkString(name)
		c.Out.Break()
	}
	return nil
}

func (cs *Channels) countSubscribers(c *command.Call, kind client.SubscriptionKind) error {
	names := c.Many()
	c.Out.Array(2 * len(names))
	for _, name := range names {
		c.Out.Bulk(name)
		c.Out.Int(int64(cs.subscribers(kind, name)))
	}
	return nil
}

func (cs *Channels) numPatRow() *command.Command {
	return &command.Command{
		Name: "pubsub|numpat", Group: "pubsub", Since: "2.8.0", Complexity: "O(1)",
		Flags: pubsubFlags, Summary: "Counts the patterns that have subscribers.",
		Reply: "Their number; a pattern with several subscribers counts once.",
		Run: func(c *command.Call) error {
			c.Out.Int(int64(cs.Count(client.ToPattern)))
			return nil
		},
	}
}

// EachSubscriber visits those of a topic, without the lock.
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

// recheckRights ends a conversation that has just subscribed to what its user may not use: the user's
// rights were taken away meanwhile, and whoever did that may have looked for listeners before.
func recheckRights(c *command.Call, kind client.SubscriptionKind, names [][]byte) {
	u := c.Client.Account.Load().User.Load()
	if u != nil && u.Unrestricted() {
		return
	}
	for _, name := range names {
		if u == nil || !u.MaySubscribe(name, kind == client.ToPattern) {
			c.CloseAfterReply()
			return
		}
	}
}
