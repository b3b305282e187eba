package pubsub

import (
	"cellserver/internal/client"
	"cellserver/internal/command"
)

// subscribeFlags are the flags of the commands that subscribe and unsubscribe.
const subscribeFlags = command.PubSub | command.NoScript | command.Loading | command.Stale

// subscribing completes the row of a command that subscribes to the names in its words. name is the
// name of its argument.
func (cs *Channels) subscribing(row command.Command, kind client.SubscriptionKind, name string) *command.Command {
	row.Group, row.Flags, row.Effort = "pubsub", subscribeFlags, effortOfSubscribing
	row.Traits |= command.WhileSubscribed
	row.Complexity, row.Reply = "O(N) in the number of "+plural(kind), subscriptionReply
	row.NotExternal = "messages of clients of other cellservers would not arrive; subscribe in that program"
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

// subscriptionReply is the reply to each of these commands.
const subscriptionReply = "For each name, a message of three elements: the command, the name, the number of subscriptions after it."

// unsubscribeWork is the work of removing a subscription.
const unsubscribeWork = command.CallWork / 4

// copiesPerName is the work for each byte of a name in a transaction, which subscribes to all names
// in one turn: each name is copied twice, hashed four times, and stored in memory that was not used
// before.
const copiesPerName = 8

// The costs of these commands in a transaction.
var (
	effortOfSubscribing = &command.Effort{Fixed: func(words [][]byte) int {
		return (len(words)-1)*command.SubscribeWork + copiesPerName*command.TotalLength(words)
	}}
	effortOfUnsubscribing = &command.Effort{
		Fixed: func(words [][]byte) int { return (len(words) - 1) * unsubscribeWork },
	}
)

// subscribeTo subscribes to the names of a call, with a reply for each. If the names are too many
// or too long, it refuses the call and subscribes to none.
func (cs *Channels) subscribeTo(c *command.Call, kind client.SubscriptionKind) error {
	names, bytes := c.Many(), 0
	for _, name := range names {
		if err := checkChannel(c, kind, name); err != nil {
			return err
		}
		bytes += len(name)
	}
	own := SubscriptionsOf(c.Client)
	if own.Total()+len(names) > MaxSubscriptions || own.bytes+bytes > MaxSubscribedBytes {
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

// subscribeInPieces subscribes to the last count words of the call, some of them in each turn.
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
	words := c.Session.(Session).Continue(piece)
	names = words[len(words)-count:]
}

// The bounds of the names that one turn subscribes to, in a tenth of a millisecond. A single name
// may have more bytes.
const (
	NamesPerPiece     = 128
	NameBytesPerPiece = 64 << 10
)

// pieceLength returns how many of the names the next turn subscribes to.
func pieceLength(names [][]byte) int {
	bytes := 0
	for i, name := range names {
		if bytes += len(name); i == NamesPerPiece || i > 0 && bytes > NameBytesPerPiece {
			return i
		}
	}
	return len(names)
}

// subscribeEach subscribes to names, and writes a message for each.
func (cs *Channels) subscribeEach(c *command.Call, kind client.SubscriptionKind, names [][]byte) {
	c.Work += len(names)*command.SubscribeWork + command.TotalLength(names)
	for _, name := range names {
		if cs.subscribe(c.Client, kind, string(name)) {
			c.OnRollback(func() { cs.unsubscribe(c.Client, c.Session.(Session), kind, string(name)) })
		}
		cs.writeSubscription(c, kind, name)
	}
}

// writeSubscription writes the reply for one name. It is a message, which CLIENT REPLY does not
// switch off.
func (cs *Channels) writeSubscription(c *command.Call, kind client.SubscriptionKind, name []byte) {
	out := c.Session.(Session).Messages()
	if mark := out.Mark(); out != c.Out {
		c.OnRollback(func() { out.Rewind(mark) })
	}
	out.Push(3)
	out.BulkString(c.Row.Name)
	if name != nil {
		out.Bulk(name)
	} else {
		out.Null()
	}
	out.Int(int64(SubscriptionsOf(c.Client).countInReply(kind)))
}

// end ends a subscription of the caller, if there is one.
func (cs *Channels) end(c *command.Call, kind client.SubscriptionKind, name string) {
	if cs.unsubscribe(c.Client, c.Session.(Session), kind, name) {
		c.OnRollback(func() { cs.subscribe(c.Client, kind, name) })
	}
}

// unsubscribeFrom ends the subscriptions that a call names, or all of their kind, with a reply for
// each. If there is none to end, there is one reply, with nil in place of the name.
func (cs *Channels) unsubscribeFrom(c *command.Call, kind client.SubscriptionKind) error {
	if named := c.Many(); len(named) > 0 {
		for _, name := range named {
			cs.end(c, kind, string(name))
			cs.writeSubscription(c, kind, name)
		}
		return nil
	}
	names := SubscriptionsOf(c.Client).names(kind)
	for _, name := range names {
		cs.end(c, kind, name)
		cs.writeSubscription(c, kind, []byte(name))
	}
	if len(names) == 0 {
		cs.writeSubscription(c, kind, nil)
	}
	return nil
}

// recheckRights closes the connection if its client has just subscribed to a channel that its user
// may not use any more. A change of the user disconnects its subscribers, but may have looked for
// them after this call was checked and before it subscribed.
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
