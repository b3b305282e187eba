package persistence

import "cellserver/internal/command"

const errShutdown command.Refusal = "ERR Errors trying to SHUTDOWN. Check logs."

// The values of Call.Choice for the tokens of SHUTDOWN.
const (
	noSave = 1 + iota
	saveFirst
)

func (f *Family) shutdown() *command.Command {
	return &command.Command{
		Name: "shutdown", Group: "server", Category: "none", Since: "1.0.0", Complexity: "O(1)",
		Flags: command.Admin | command.Dangerous | command.NoScript | command.Loading | command.Stale |
			command.NoMulti | command.AllowBusy,
		Summary: "Stops the server, as SIGTERM does: clients are drained first, and with --dir the last changes are written afterwards. " +
			"SAVE first does what the command SAVE does.",
		Args: []command.Arg{command.OneOf("save", "NOSAVE", "SAVE"), command.Flag("NOW").Again(),
			command.Flag("FORCE").Again(), command.Flag("ABORT").Again()},
		Reply: "None: the connection ends.",
		Run: func(c *command.Call) error {
			save, now, force, abort := c.Choice(), c.Flag(), c.Flag(), c.Flag()
			if save == saveFirst && f.loading.Load() { // nothing has changed, and a part must not replace the file
				save = noSave
			}
			switch {
			case abort && (save != 0 || now || force):
				return command.ErrSyntax
			case abort:
				return command.Refusal("ERR No shutdown in progress.")
			case save == saveFirst && f.Folder == nil:
				return f.errNotDurable()
			case f.Stop == nil:
				return errShutdown
			case save == saveFirst && c.Session != nil:
				c.Session.Offload() // writing the file may take long, and must not block the event loop
				return nil
			case save == saveFirst:
				if err := f.saveAndWait(c); err != nil && !force {
					f.Log.Error("SHUTDOWN SAVE is refused: the keys were not saved", "error", err)
					return errShutdown
				}
			}
			f.Log.Warn("shutdown requested by a client", "client", c.Client.Peer.Remote)
			c.CloseAfterReply()
			f.Stop()
			return nil
		},
	}
}
