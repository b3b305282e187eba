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
		cs.rowSubscribe(), cs.rowUnsubscribe(), cs.rowPSubscribe(), cs.rowPUnsubscribe(), cs.rowPublish(), cs.rowPubSub(),
		cs.rowSSubscribe(), cs.rowSUnsubscribe(), cs.rowSPublish(),
	}
}

// ManyChannels is how many names one call may have.
const ManyChannels = 1000

// listening is what commands have in common that a client may say while it listens.
const listening = command.PubSub | command.NoScript | command.Loading | command.Stale

func (cs *Channels) rowSubscribe() *command.Command {
	return &command.Command{
		Name: "subscribe", Group: "pubsub", Since: "2.0.0",
		Complexity: "O(N) in the number of channels", Flags: listening,
		Traits: command.WhileSubscribed, Channels: command.ManyNames, Effort: listing,
		Summary: "Subscribes to channels.",
		Args:    []command.Arg{command.Word("channel").Many().UpTo(ManyChannels)}, Reply: subscribed,
		Run: func(c *command.Call) error { return cs.subscribeTo(c, client.ViaChannel) },
	}
}

func (cs *Channels) rowPSubscribe() *command.Command {
	return &command.Command{
		Name: "psubscribe", Group: "pubsub", Since: "2.0.0",
		Complexity: "O(N) in the number of patterns", Flags: listening,
		Traits: command.WhileSubscribed, Channels: command.ManyGlobs, Effort: listing,
		Summary: "Subscribes to all channels whose names match a pattern.",
		Args:    []command.Arg{command.Word("pattern").Many().UpTo(ManyChannels)}, Reply: subscribed,
		Run: func(c *command.Call) error { return cs.subscribeTo(c, client.ViaPattern) },
	}
}

func (cs *Channels) rowSSubscribe() *command.Command {
	return &command.Command{
		Name: "ssubscribe", Group: "pubsub", Since: "7.0.0",
		Complexity: "O(N) in the number of channels", Flags: listening,
		Traits: command.WhileSubscribed, ChannelAt: 1, Channels: command.ManyNames, Effort: listing,
		Summary: "Subscribes to shard channels, which are separate from the other channels.",
		Args:    []command.Arg{command.Word("shardchannel").Many().UpTo(ManyChannels)},
		Reply:   subscribed,
		Run: func(c *command.Call) error {
			if c.InTransaction {
				return command.Refusal("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client")
			}
			return cs.subscribeTo(c, client.ViaShard)
		},
	}
}

func (cs *Channels) rowUnsubscribe() *command.Command {
	return &command.Command{
		Name: "unsubscribe", Group: "pubsub", Since: "2.0.0",
		Complexity: "O(N) in the number of channels", Flags: listening,
		Traits: command.WhileSubscribed, Effort: unlisting,
		Summary: "Unsubscribes from channels; from all if none is named.",
		Args:    []command.Arg{command.Word("channel").Optional().Many().UpTo(ManyChannels)},
		Reply:   subscribed,
		Run:     func(c *command.Call) error { return cs.unsubscribeFrom(c, client.ViaChannel) },
	}
}

func (cs *Channels) rowPUnsubscribe() *command.Command {
	return &command.Command{
		Name: "punsubscribe", Group: "pubsub", Since: "2.0.0",
		Complexity: "O(N) in the number of patterns", Flags: listening,
		Traits: command.WhileSubscribed, Effort: unlisting,
		Summary: "Unsubscribes from patterns; from all if none is named.",
		Args:    []command.Arg{command.Word("pattern").Optional().Many().UpTo(ManyChannels)},
		Reply:   subscribed,
		Run:     func(c *command.Call) error { return cs.unsubscribeFrom(c, client.ViaPattern) },
	}
}

func (cs *Channels) rowSUnsubscribe() *command.Command {
	return &command.Command{
		Name: "sunsubscribe", Group: "pubsub", Since: "7.0.0",
		Complexity: "O(N) in the number of channels", Flags: listening,
		Traits: command.WhileSubscribed, ChannelAt: 1, Effort: unlisting,
		Summary: "Unsubscribes from shard channels; from all if none is named.",
		Args:    []command.Arg{command.Word("shardchannel").Optional().Many().UpTo(ManyChannels)},
		Reply:   subscribed,
		Run:     func(c *command.Call) error { return cs.unsubscribeFrom(c, client.ViaShard) },
	}
}

// subscribed is what each of them answers.
const subscribed = "For each name, a message of three elements: the command, the name, the number of subscriptions after it."

// ListedWorth is what it counts of a turn to note a channel or a watched key, in bytes that could
// be moved meanwhile.
const ListedWorth = 2 * command.FewBytes

// unlistedWorth is the same for a name that is taken off.
const unlistedWorth = command.FewBytes / 4

// timesMoved is how often the bytes of a name are counted in a transaction, where no turn ends
// between names: each is copied twice, hashed four times, and goes to memory that is touched for
// the first time.
const timesMoved = 8

// What they count in a transaction.
var (
	listing = &command.Effort{Fixed: func(words [][]byte) int {
		return (len(words)-1)*ListedWorth + timesMoved*command.BytesOf(words)
	}}
	unlisting = &command.Effort{Fixed: func(words [][]byte) int { return (len(words) - 1) * unlistedWorth }}
)

// subscribeTo answers each name. Those that are too many or too long are refused before any is
// subscribed to.
func (cs *Channels) subscribeTo(c *command.Call, kind client.Via) error {
	names, bytes := c.Many(), 0
	for _, name := range names {
		if err := checkChannel(c, kind, name); err != nil {
			return err
		}
		bytes += len(name)
	}
	l := SubscriptionsOf(c.Client)
	if l.All()+len(names) > MaxSubscriptions || l.bytes+bytes > MaxSubscribedBytes {
		return errTooManySubscriptions
	}
	if !c.InTransaction && pieceOf(names) < len(names) {
		cs.subscribeInPieces(c, kind, len(names))
		return nil
	}
	cs.subscribeEach(c, kind, names)
	stillHears(c, kind, names)
	return nil
}

// subscribeInPieces subscribes to the last so many words of the call, a piece in each turn.
func (cs *Channels) subscribeInPieces(c *command.Call, kind client.Via, count int) {
	var names [][]byte
	next := 0
	piece := func() (last bool) {
		n := pieceOf(names[next:])
		cs.subscribeEach(c, kind, names[next:next+n])
		if next += n; next == len(names) {
			stillHears(c, kind, names)
		}
		return next == len(names)
	}
	words := c.Session.Continue(piece)
	names = words[len(words)-count:]
}

// What a turn subscribes to at most: so many names, and so many bytes of them unless one alone is
// longer. That is a tenth of a millisecond.
const (
	NamesAPiece     = 128
	NameBytesAPiece = 64 << 10
)

// pieceOf is how many of the names a turn subscribes to.
func pieceOf(names [][]byte) int {
	bytes := 0
	for i, name := range names {
		if bytes += len(name); i == NamesAPiece || i > 0 && bytes > NameBytesAPiece {
			return i
		}
	}
	return len(names)
}

// subscribeEach subscribes to names, and answers each.
func (cs *Channels) subscribeEach(c *command.Call, kind client.Via, names [][]byte) {
	c.Moved += len(names)*ListedWorth + command.BytesOf(names)
	for _, name := range names {
		cs.subscribe(c.Client, kind, string(name))
		cs.writeSubscription(c, kind, func() { c.Out.Bulk(name) })
	}
}

// checkChannel bounds a name: the time to match one grows with it.
func checkChannel(c *command.Call, kind client.Via, name []byte) error {
	switch {
	case kind == client.ViaPattern:
		pattern := command.Pattern("pattern")
		return c.Take(&pattern, nil, name)
	case len(name) > c.Server.MaxKeySize:
		return command.Refusal(fmt.Sprintf("ERR channel is longer than max-key-size (%d bytes)", c.Server.MaxKeySize))
	}
	return nil
}

// writeSubscription is a message for one name.
func (cs *Channels) writeSubscription(c *command.Call, kind client.Via, writeName func()) {
	c.Session.Aloud(func() {
		c.Out.Push(3)
		c.Out.BulkString(c.Row.Name)
		writeName()
		c.Out.Int(int64(SubscriptionsOf(c.Client).shown(kind)))
	})
}

// unsubscribeFrom answers each name; if none was named and there is none, one that is nil.
func (cs *Channels) unsubscribeFrom(c *command.Call, kind client.Via) error {
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

func (cs *Channels) rowPublish() *command.Command {
	return &command.Command{
		Name: "publish", Group: "pubsub", Since: "2.0.0",
		Flags: command.PubSub | command.Loading | command.Stale | command.Fast,
		Cost:  command.Constant, Traits: command.Sessionless, Channels: command.OneChannel,
		Complexity: "O(N+M) in the number of the channel's subscribers and of all patterns",
		Summary:    "Sends a message to the subscribers of a channel.",
		Args:       []command.Arg{command.Word("channel"), command.Word("message")},
		Reply:      "The number of clients that it was sent to.",
		Run:        func(c *command.Call) error { return cs.publishTo(c, client.ViaChannel) },
	}
}

func (cs *Channels) rowSPublish() *command.Command {
	return &command.Command{
		Name: "spublish", Group: "pubsub", Since: "7.0.0",
		Complexity: "O(N) in the number of subscribers",
		Flags:      command.PubSub | command.Loading | command.Stale | command.Fast,
		Cost:       command.Constant, Traits: command.Sessionless, ChannelAt: 1,
		Channels: command.OneChannel,
		Summary:  "Sends a message to the subscribers of a shard channel.",
		Args:     []command.Arg{command.Word("shardchannel"), command.Word("message")},
		Reply:    "The number of clients that it was sent to.",
		Run:      func(c *command.Call) error { return cs.publishTo(c, client.ViaShard) },
	}
}

// publishTo sends a message at once, or beside the loop if that takes long; within a transaction
// after it, when no key is locked.
func (cs *Channels) publishTo(c *command.Call, kind client.Via) error {
	m := Message{Kind: kind, Channel: c.Word(), Payload: c.Word()}
	if err := checkChannel(c, kind, m.Channel); err != nil {
		return err
	}
	switch {
	case c.Later != nil:
		m.until = cs.latest() // who comes later in the transaction does not get it
		c.DoLater(func() int { return cs.Worth(m) }, func(c *command.Call) { c.Out.Int(int64(cs.Publish(m, c.GiveWay))) })
		return nil
	case c.Session == nil:
		c.Out.Int(int64(cs.Publish(m, c.GiveWay)))
		return nil
	}
	worth := cs.Worth(m)
	if worth > command.Soon {
		c.Session.HandOver()
		return nil
	}
	c.Moved += worth
	n := cs.Publish(m, func() {})
	if c.Client.Mail.Subscribed {
		c.Session.TakePushes() // its own message stands before the reply, as in Redis
	}
	c.Out.Int(int64(n))
	return nil
}

func (cs *Channels) rowPubSub() *command.Command {
	return &command.Command{
		Name: "pubsub", Group: "pubsub", Category: "none", Since: "2.8.0",
		Complexity: "Depends on the subcommand.", Min: 2,
		Summary: "Commands about who listens to what.", AnyMore: true,
		Subs: []*command.Command{cs.rowPubSubChannels(), cs.rowPubSubNumSub(), cs.rowPubSubNumPat(),
			cs.rowPubSubShardChannels(), cs.rowPubSubShardNumSub(), command.HelpOf("pubsub", "6.2.0")},
	}
}

const aboutChannels = command.PubSub | command.Loading | command.Stale

func (cs *Channels) rowPubSubChannels() *command.Command {
	return &command.Command{
		Name: "pubsub|channels", Group: "pubsub", Since: "2.8.0",
		Complexity: "O(N) in the number of channels", Flags: aboutChannels, Cost: command.Unbounded,
		Summary: "Lists the channels that have subscribers.", AnyMore: true,
		Args:  []command.Arg{command.Pattern("pattern").Optional()},
		Reply: "Their names; with a pattern, those that match.",
		Run:   func(c *command.Call) error { return cs.listChannels(c, client.ViaChannel) },
	}
}

func (cs *Channels) rowPubSubShardChannels() *command.Command {
	return &command.Command{
		Name: "pubsub|shardchannels", Group: "pubsub", Since: "7.0.0",
		Complexity: "O(N) in the number of channels", Flags: aboutChannels, Cost: command.Unbounded,
		Summary: "Lists the shard channels that have subscribers.", AnyMore: true,
		Args:  []command.Arg{command.Pattern("pattern").Optional()},
		Reply: "Their names; with a pattern, those that match.",
		Run:   func(c *command.Call) error { return cs.listChannels(c, client.ViaShard) },
	}
}

func (cs *Channels) listChannels(c *command.Call, kind client.Via) error {
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
	}, c.GiveWay)
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

func (cs *Channels) rowPubSubNumSub() *command.Command {
	return &command.Command{
		Name: "pubsub|numsub", Group: "pubsub", Since: "2.8.0",
		Complexity: "O(N) in the number of channels", Flags: aboutChannels,
		Summary: "Counts the subscribers of channels.",
		Args:    []command.Arg{command.Word("channel").Optional().Many().UpTo(ManyChannels)},
		Reply:   "Each channel, and its number of subscribers; patterns do not count.",
		Run:     func(c *command.Call) error { return cs.countSubscribers(c, client.ViaChannel) },
	}
}

func (cs *Channels) rowPubSubShardNumSub() *command.Command {
	return &command.Command{
		Name: "pubsub|shardnumsub", Group: "pubsub", Since: "7.0.0",
		Complexity: "O(N) in the number of channels", Flags: aboutChannels,
		Summary: "Counts the subscribers of shard channels.",
		Args:    []command.Arg{command.Word("shardchannel").Optional().Many().UpTo(ManyChannels)},
		Reply:   "Each channel, and its number of subscribers.",
		Run:     func(c *command.Call) error { return cs.countSubscribers(c, client.ViaShard) },
	}
}

func (cs *Channels) countSubscribers(c *command.Call, kind client.Via) error {
	names := c.Many()
	c.Out.Array(2 * len(names))
	for _, name := range names {
		c.Out.Bulk(name)
		c.Out.Int(int64(cs.subscribers(kind, name)))
	}
	return nil
}

func (cs *Channels) rowPubSubNumPat() *command.Command {
	return &command.Command{
		Name: "pubsub|numpat", Group: "pubsub", Since: "2.8.0", Complexity: "O(1)",
		Flags: aboutChannels, Summary: "Counts the patterns that have subscribers.",
		Reply: "Their number; a pattern with several subscribers counts once.",
		Run: func(c *command.Call) error {
			c.Out.Int(int64(cs.Count(client.ViaPattern)))
			return nil
		},
	}
}

// EachSubscriber visits those of a topic, without the lock.
func (cs *Channels) EachSubscriber(t *Topic, visit func(*client.Client)) {
	var found [subscribersAPiece]*subscription
	cs.mu.RLock()
	until := cs.number
	cs.mu.RUnlock()
	for last := uint64(0); last < until; {
		cs.mu.RLock()
		var piece []*subscription
		piece, last = t.subscribers.piece(found[:0], last, until, subscribersAPiece)
		cs.mu.RUnlock()
		for _, sub := range piece {
			visit(sub.session)
		}
	}
}

// stillHears ends a conversation that has just subscribed to what its user may not use: the user's
// rights were taken away meanwhile, and whoever did that may have looked for listeners before.
func stillHears(c *command.Call, kind client.Via, names [][]byte) {
	u := c.Client.Account.Load().User.Load()
	if u != nil && u.Open() {
		return
	}
	for _, name := range names {
		if u == nil || !u.MayHear(name, kind == client.ViaPattern) {
			c.HangUp()
			return
		}
	}
}
