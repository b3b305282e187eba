package commands

import (
	"fmt"

	"cellserver/internal/client"
	"cellserver/internal/command"
)

// Commands lists the family in reading order.
func (cs *channels) Commands() []*command.Command {
	return []*command.Command{
		cs.rowSubscribe(), cs.rowUnsubscribe(), cs.rowPSubscribe(), cs.rowPUnsubscribe(), cs.rowPublish(), cs.rowPubSub(),
		cs.rowSSubscribe(), cs.rowSUnsubscribe(), cs.rowSPublish(),
	}
}

// manyChannels is how many names one call may have.
const manyChannels = 1000

// listening is what commands have in common that a client may say while it listens.
const listening = command.PubSub | command.NoScript | command.Loading | command.Stale

func (cs *channels) rowSubscribe() *command.Command {
	return &command.Command{
		Name: "subscribe", Group: "pubsub", Since: "2.0.0", Complexity: "O(N) in the number of channels", Flags: listening, Traits: command.WhileSubscribed, Hearsay: command.ManyNames,
		Effort:  listing,
		Summary: "Listens to channels.", Args: []command.Arg{command.Word("channel").Many().UpTo(manyChannels)}, Reply: subscribed,
		Run: func(c *command.Call) error { return cs.subscribeTo(c, client.ViaChannel) },
	}
}

func (cs *channels) rowPSubscribe() *command.Command {
	return &command.Command{
		Name: "psubscribe", Group: "pubsub", Since: "2.0.0", Complexity: "O(N) in the number of patterns", Flags: listening, Traits: command.WhileSubscribed, Hearsay: command.ManyGlobs,
		Effort:  listing,
		Summary: "Listens to the channels whose names match.", Args: []command.Arg{command.Word("pattern").Many().UpTo(manyChannels)}, Reply: subscribed,
		Run: func(c *command.Call) error { return cs.subscribeTo(c, client.ViaPattern) },
	}
}

func (cs *channels) rowSSubscribe() *command.Command {
	return &command.Command{
		Name: "ssubscribe", Group: "pubsub", Since: "7.0.0", Complexity: "O(N) in the number of channels", Flags: listening, Traits: command.WhileSubscribed, ChannelAt: 1, Hearsay: command.ManyNames,
		Effort:  listing,
		Summary: "Listens to shard channels, which are channels apart from the others.",
		Args:    []command.Arg{command.Word("shardchannel").Many().UpTo(manyChannels)}, Reply: subscribed,
		Run: func(c *command.Call) error {
			if c.InTransaction {
				return command.Refusal("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client")
			}
			return cs.subscribeTo(c, client.ViaShard)
		},
	}
}

func (cs *channels) rowUnsubscribe() *command.Command {
	return &command.Command{
		Name: "unsubscribe", Group: "pubsub", Since: "2.0.0", Complexity: "O(N) in the number of channels", Flags: listening, Traits: command.WhileSubscribed,
		Effort:  unlisting,
		Summary: "Listens to channels no longer; to none at all if none is named.",
		Args:    []command.Arg{command.Word("channel").Optional().Many().UpTo(manyChannels)}, Reply: subscribed,
		Run: func(c *command.Call) error { return cs.unsubscribeFrom(c, client.ViaChannel) },
	}
}

func (cs *channels) rowPUnsubscribe() *command.Command {
	return &command.Command{
		Name: "punsubscribe", Group: "pubsub", Since: "2.0.0", Complexity: "O(N) in the number of patterns", Flags: listening, Traits: command.WhileSubscribed,
		Effort:  unlisting,
		Summary: "Listens to patterns no longer; to none at all if none is named.",
		Args:    []command.Arg{command.Word("pattern").Optional().Many().UpTo(manyChannels)}, Reply: subscribed,
		Run: func(c *command.Call) error { return cs.unsubscribeFrom(c, client.ViaPattern) },
	}
}

func (cs *channels) rowSUnsubscribe() *command.Command {
	return &command.Command{
		Name: "sunsubscribe", Group: "pubsub", Since: "7.0.0", Complexity: "O(N) in the number of channels", Flags: listening, Traits: command.WhileSubscribed, ChannelAt: 1,
		Effort:  unlisting,
		Summary: "Listens to shard channels no longer; to none at all if none is named.",
		Args:    []command.Arg{command.Word("shardchannel").Optional().Many().UpTo(manyChannels)}, Reply: subscribed,
		Run: func(c *command.Call) error { return cs.unsubscribeFrom(c, client.ViaShard) },
	}
}

// subscribed is what each of them answers.
const subscribed = "For each name one message of three elements: the command, the name, how many subscriptions there are then."

// listedWorth is what it counts of a turn to note a channel or a watched key, in bytes that could be moved meanwhile.
const listedWorth = 2 * command.FewBytes

// unlistedWorth is the same for a name that is taken off.
const unlistedWorth = command.FewBytes / 4

// timesMoved is how often the bytes of a name are counted in a transaction, where no turn ends between names: each is
// copied twice, hashed four times, and goes to memory that is touched for the first time.
const timesMoved = 8

// What they count in a transaction.
var (
	listing = &command.Effort{Fixed: func(words [][]byte) int {
		return (len(words)-1)*listedWorth + timesMoved*command.BytesOf(words)
	}}
	unlisting = &command.Effort{Fixed: func(words [][]byte) int { return (len(words) - 1) * unlistedWorth }}
)

// subscribeTo answers each name. Those that are too many or too long are refused before any is subscribed to.
func (cs *channels) subscribeTo(c *command.Call, kind client.Via) error {
	names, bytes := c.Many(), 0
	for _, name := range names {
		if err := checkChannel(c, kind, name); err != nil {
			return err
		}
		bytes += len(name)
	}
	l := listensOf(c.Client)
	if l.all()+len(names) > maxSubscriptions || l.bytes+bytes > maxSubscribedBytes {
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
func (cs *channels) subscribeInPieces(c *command.Call, kind client.Via, count int) {
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

// What a turn subscribes to at most: so many names, and so many bytes of them unless one alone is longer.
// That is a tenth of a millisecond.
const (
	namesAPiece     = 128
	nameBytesAPiece = 64 << 10
)

// pieceOf is how many of the names a turn subscribes to.
func pieceOf(names [][]byte) int {
	bytes := 0
	for i, name := range names {
		if bytes += len(name); i == namesAPiece || i > 0 && bytes > nameBytesAPiece {
			return i
		}
	}
	return len(names)
}

// subscribeEach subscribes to names, and answers each.
func (cs *channels) subscribeEach(c *command.Call, kind client.Via, names [][]byte) {
	c.Moved += len(names)*listedWorth + command.BytesOf(names)
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
func (cs *channels) writeSubscription(c *command.Call, kind client.Via, writeName func()) {
	c.Session.Aloud(func() {
		c.Out.Push(3)
		c.Out.BulkString(c.Row.Name)
		writeName()
		c.Out.Int(int64(listensOf(c.Client).shown(kind)))
	})
}

// unsubscribeFrom answers each name; if none was named and there is none, one that is nil.
func (cs *channels) unsubscribeFrom(c *command.Call, kind client.Via) error {
	l, named := listensOf(c.Client), c.Many()
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

func (cs *channels) rowPublish() *command.Command {
	return &command.Command{
		Name: "publish", Group: "pubsub", Since: "2.0.0", Flags: command.PubSub | command.Loading | command.Stale | command.Fast, Cost: command.Constant, Traits: command.Sessionless, Hearsay: command.OneChannel,
		Complexity: "O(N+M) in the number of the channel's subscribers and of all patterns",
		Summary:    "Sends a message to those who listen to a channel.",
		Args:       []command.Arg{command.Word("channel"), command.Word("message")}, Reply: "How often it was sent.",
		Run: func(c *command.Call) error { return cs.publishTo(c, client.ViaChannel) },
	}
}

func (cs *channels) rowSPublish() *command.Command {
	return &command.Command{
		Name: "spublish", Group: "pubsub", Since: "7.0.0", Complexity: "O(N) in the number of subscribers",
		Flags: command.PubSub | command.Loading | command.Stale | command.Fast, Cost: command.Constant, Traits: command.Sessionless, ChannelAt: 1, Hearsay: command.OneChannel,
		Summary: "Sends a message to those who listen to a shard channel.",
		Args:    []command.Arg{command.Word("shardchannel"), command.Word("message")}, Reply: "How often it was sent.",
		Run: func(c *command.Call) error { return cs.publishTo(c, client.ViaShard) },
	}
}

// publishTo sends a message at once, or beside the loop if that takes long; within a transaction after it, when no key is locked.
func (cs *channels) publishTo(c *command.Call, kind client.Via) error {
	m := message{kind: kind, channel: c.Word(), payload: c.Word()}
	if err := checkChannel(c, kind, m.channel); err != nil {
		return err
	}
	switch {
	case c.Later != nil:
		m.until = cs.latest() // who comes later in the transaction does not get it
		c.DoLater(func() int { return cs.worth(m) }, func(c *command.Call) { c.Out.Int(int64(cs.publish(m, c.GiveWay))) })
		return nil
	case c.Session == nil:
		c.Out.Int(int64(cs.publish(m, c.GiveWay)))
		return nil
	}
	worth := cs.worth(m)
	if worth > command.Soon {
		c.Session.HandOver()
		return nil
	}
	c.Moved += worth
	n := cs.publish(m, func() {})
	if c.Client.Mail.Subscribed {
		c.Session.TakePushes() // its own message stands before the reply, as in Redis
	}
	c.Out.Int(int64(n))
	return nil
}

func (cs *channels) rowPubSub() *command.Command {
	return &command.Command{
		Name: "pubsub", Group: "pubsub", Category: "none", Since: "2.8.0", Complexity: "Depends on the subcommand.", Min: 2,
		Summary: "Commands about who listens to what.", AnyMore: true,
		Subs: []*command.Command{cs.rowPubSubChannels(), cs.rowPubSubNumSub(), cs.rowPubSubNumPat(), cs.rowPubSubShardChannels(), cs.rowPubSubShardNumSub(), command.HelpOf("pubsub", "6.2.0")},
	}
}

const aboutChannels = command.PubSub | command.Loading | command.Stale

func (cs *channels) rowPubSubChannels() *command.Command {
	return &command.Command{
		Name: "pubsub|channels", Group: "pubsub", Since: "2.8.0", Complexity: "O(N) in the number of channels", Flags: aboutChannels, Cost: command.Unbounded,
		Summary: "Lists the channels that somebody listens to.", AnyMore: true,
		Args: []command.Arg{command.Pattern("pattern").Optional()}, Reply: "Their names, of those that match if there is a pattern.",
		Run: func(c *command.Call) error { return cs.listChannels(c, client.ViaChannel) },
	}
}

func (cs *channels) rowPubSubShardChannels() *command.Command {
	return &command.Command{
		Name: "pubsub|shardchannels", Group: "pubsub", Since: "7.0.0", Complexity: "O(N) in the number of channels", Flags: aboutChannels, Cost: command.Unbounded,
		Summary: "Lists the shard channels that somebody listens to.", AnyMore: true,
		Args: []command.Arg{command.Pattern("pattern").Optional()}, Reply: "Their names, of those that match if there is a pattern.",
		Run: func(c *command.Call) error { return cs.listChannels(c, client.ViaShard) },
	}
}

func (cs *channels) listChannels(c *command.Call, kind client.Via) error {
	if len(c.Words) > 3 {
		return command.Refusal(fmt.Sprintf("ERR unknown subcommand or wrong number of arguments for '%.128s'. Try PUBSUB HELP.", c.Words[1]))
	}
	pattern := c.Word()
	var names []string
	bytes := 0
	cs.each(kind, func(t *topic) bool {
		if pattern == nil || command.Glob(pattern, []byte(t.name), false) {
			names = append(names, t.name)
			bytes += len(t.name)
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

func (cs *channels) rowPubSubNumSub() *command.Command {
	return &command.Command{
		Name: "pubsub|numsub", Group: "pubsub", Since: "2.8.0", Complexity: "O(N) in the number of channels", Flags: aboutChannels,
		Summary: "Counts the subscribers of channels.",
		Args:    []command.Arg{command.Word("channel").Optional().Many().UpTo(manyChannels)}, Reply: "Each channel, and how many listen to it; patterns do not count.",
		Run: func(c *command.Call) error { return cs.countSubscribers(c, client.ViaChannel) },
	}
}

func (cs *channels) rowPubSubShardNumSub() *command.Command {
	return &command.Command{
		Name: "pubsub|shardnumsub", Group: "pubsub", Since: "7.0.0", Complexity: "O(N) in the number of channels", Flags: aboutChannels,
		Summary: "Counts the subscribers of shard channels.",
		Args:    []command.Arg{command.Word("shardchannel").Optional().Many().UpTo(manyChannels)}, Reply: "Each channel, and how many listen to it.",
		Run: func(c *command.Call) error { return cs.countSubscribers(c, client.ViaShard) },
	}
}

func (cs *channels) countSubscribers(c *command.Call, kind client.Via) error {
	names := c.Many()
	c.Out.Array(2 * len(names))
	for _, name := range names {
		c.Out.Bulk(name)
		c.Out.Int(int64(cs.subscribers(kind, name)))
	}
	return nil
}

func (cs *channels) rowPubSubNumPat() *command.Command {
	return &command.Command{
		Name: "pubsub|numpat", Group: "pubsub", Since: "2.8.0", Complexity: "O(1)", Flags: aboutChannels,
		Summary: "Counts the patterns that somebody listens to.", Reply: "Their number: one that several listen to counts once.",
		Run: func(c *command.Call) error {
			c.Out.Int(int64(cs.count(client.ViaPattern)))
			return nil
		},
	}
}

// eachSubscriber visits those of a topic, without the lock.
func (cs *channels) eachSubscriber(t *topic, visit func(*client.Client)) {
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

// stillHears ends a conversation that has just subscribed to what its user may not use: the user's rights were taken away meanwhile,
// and whoever did that may have looked for listeners before.
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
