package pubsub

import (
	"fmt"

	"cellserver/internal/client"
	"cellserver/internal/command"
)

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

// publishing completes the row of a command that publishes a message. name is its first
// argument's.
func (cs *Channels) publishing(row command.Command, kind client.SubscriptionKind, name string) *command.Command {
	row.Group, row.Channels = "pubsub", command.OneChannel
	row.Flags = command.PubSub | command.Loading | command.Stale | command.Fast
	row.Cost, row.Traits = command.Constant, row.Traits|command.Sessionless
	row.Args = []command.Arg{command.Word(name), command.Word("message")}
	row.Reply = "The number of clients that it was sent to."
	row.NotExternal = "the message would not reach subscribers of other cellservers; publish in that program"
	row.Run = func(c *command.Call) error { return cs.publishTo(c, kind) }
	return &row
}

// publishTo publishes a message: at once, or outside the event loop if that takes long. In a
// transaction, it postpones the message until the keys are unlocked.
func (cs *Channels) publishTo(c *command.Call, kind client.SubscriptionKind) error {
	m := Message{Kind: kind, Channel: c.Word(), Payload: c.Word()}
	if err := checkChannel(c, kind, m.Channel); err != nil {
		return err
	}
	switch {
	case c.Deferred != nil:
		m.until = cs.latest() // later subscriptions of the transaction do not receive it
		c.Defer(func() int { return cs.Work(m) }, func(c *command.Call) { c.Out.Int(int64(cs.Publish(m, c.Yield))) })
		return nil
	case c.Session == nil:
		c.Out.Int(int64(cs.Publish(m, c.Yield)))
		return nil
	}
	work := cs.Work(m)
	if work > command.MaxLoopWork {
		c.Session.Offload()
		return nil
	}
	c.Work += work
	n := cs.Publish(m, func() {})
	if c.Client.IsSubscribed() {
		c.Session.(Session).WritePushes() // its own message comes before the reply, as in Redis
	}
	c.Out.Int(int64(n))
	return nil
}

// checkChannel bounds the length of a name, because the time of matching grows with the length.
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
