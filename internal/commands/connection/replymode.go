package connection

import "cellserver/internal/command"

// ReplyMode is the mode of CLIENT REPLY: the replies that are sent to the client.
type ReplyMode uint8

const (
	RepliesOn     ReplyMode = iota // all
	RepliesOff                     // none, until CLIENT REPLY ON
	SkipNextReply                  // all but the reply to the next call
	SkipReply                      // all but the reply to the current call
)

var clientReply = command.Command{
	Name: "client|reply", Group: "connection", Since: "3.2.0", Complexity: "O(1)",
	Flags: clientFlags, Traits: command.Unqueued,
	Summary: "Chooses whether calls are answered: ON, OFF, or SKIP for all but the next one.",
	Args:    []command.Arg{command.Word("ON | OFF | SKIP")}, Reply: "OK to ON, else nothing.",
	Run: func(c *command.Call) error {
		switch mode := c.Word(); {
		case command.FoldEqual(mode, "ON"):
			sessionOf(c).SetReplyMode(RepliesOn)
			c.Out.Status("OK")
		case command.FoldEqual(mode, "OFF"):
			sessionOf(c).SetReplyMode(RepliesOff)
		case command.FoldEqual(mode, "SKIP"):
			sessionOf(c).SetReplyMode(SkipNextReply)
		default:
			return command.ErrSyntax
		}
		return nil
	},
}
