package admin

import "cellserver/internal/command"

func (a *Admin) shutdown() *command.Command {
	return &command.Command{
		Name: "shutdown", Group: "server", Category: "none", Since: "1.0.0", Complexity: "O(1)",
		Flags: command.Admin | command.Dangerous | command.NoScript | command.Loading | command.Stale |
			command.NoMulti | command.AllowBusy,
		Summary: "Stops the server, as SIGTERM does: clients are drained first.",
		Args: []command.Arg{command.OneOf("save", "NOSAVE", "SAVE"), command.Flag("NOW").Again(),
			command.Flag("FORCE").Again(), command.Flag("ABORT").Again()},
		Reply: "None: the connection ends.",
		Run: func(c *command.Call) error {
			save, now, force, abort := c.Choice(), c.Flag(), c.Flag(), c.Flag()
			switch {
			case abort && (save != 0 || now || force):
				return command.ErrSyntax
			case abort:
				return command.Refusal("ERR No shutdown in progress.")
			case save == 2:
				return errNotDurable
			case a.Stop == nil:
				return command.Refusal("ERR Errors trying to SHUTDOWN. Check logs.")
			}
			a.Log.Warn("shutdown requested by a client", "client", c.Client.Peer.Remote)
			c.CloseAfterReply()
			a.Stop()
			return nil
		},
	}
}
