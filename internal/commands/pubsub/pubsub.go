// Package pubsub implements the commands about channels (SUBSCRIBE, PUBLISH, PUBSUB), and the state
// behind them: which client has subscribed to which channel or pattern, and how messages reach it.
package pubsub

import (
	"fmt"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/resp"
)

// Commands returns the rows of the family, in reading order.
func (cs *Channels) Commands() []*command.Command {
	return []*command.Command{
		cs.subscribeRow(), cs.unsubscribeRow(), cs.psubscribeRow(), cs.punsubscribeRow(), cs.publishRow(),
		cs.pubsubRow(),
		cs.ssubscribeRow(), cs.sunsubscribeRow(), cs.spublishRow(),
	}
}

// Session is what the family needs of the session that makes a call.
type Session interface {
	// Continue runs the rest of the call in pieces: it calls rest in each of the session's next
	// turns until rest returns true. Until then the client gets no messages, and the session makes
	// no other call. Continue returns the words of the call, which stay valid until the last piece;
	// Call.Words does not.
	Continue(rest func() (last bool)) (words [][]byte)
	// Messages returns the writer for messages and for confirmations of subscriptions, which the
	// client receives even if CLIENT REPLY has switched its replies off. While replies are on, it
	// is the call's own writer.
	Messages() *resp.Writer
	// WritePushes writes the messages in the client's mailbox, so that they precede the reply to
	// the call.
	WritePushes()
}

// ManyChannels bounds the names of channels or patterns in one call.
const ManyChannels = 1000

func (cs *Channels) pubsubRow() *command.Command {
	return command.Container("pubsub", "pubsub", "2.8.0", "Commands about channels and their subscribers.",
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
	)
}

const pubsubFlags = command.PubSub | command.Loading | command.Stale

// listing completes the row of a command that lists channels.
func (cs *Channels) listing(row command.Command, kind client.SubscriptionKind) *command.Command {
	row.Group, row.Complexity = "pubsub", "O(N) in the number of channels"
	row.Flags, row.Cost, row.AnyMore = pubsubFlags, command.Unbounded, true
	row.Args = []command.Arg{command.Pattern("pattern").Optional()}
	row.Reply = "Their names; with a pattern, the names that match."
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
	c.Out.BulkStrings(names)
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
