package connection

import (
	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/resp"
)

// During a CLIENT PAUSE, calls are read, and invalid calls are refused; valid ones wait for its
// end.

func (f *Family) pause() *command.Command {
	return &command.Command{
		Name: "client|pause", Group: "connection", Since: "2.9.50", Complexity: "O(1)",
		Flags:   command.Admin | command.Dangerous | clientFlags,
		Summary: "Delays the calls of all clients for some milliseconds: all calls, or only writes.",
		Args:    []command.Arg{command.Int("timeout").By(parseTimeout), command.Word("[WRITE | ALL]").Optional()},
		Reply:   "OK.",
		Run: func(c *command.Call) error {
			timeout, mode := c.Int(), c.Word()
			if mode != nil && !command.FoldEqual(mode, "WRITE") && !command.FoldEqual(mode, "ALL") {
				return command.Refusal("ERR CLIENT PAUSE mode must be WRITE or ALL")
			}
			f.Blocked.Pause(client.MsAfter(c.Now(), timeout), mode == nil || command.FoldEqual(mode, "ALL"))
			if c.Session != nil {
				c.Session.TakeSlowPath()
			}
			c.Out.Status("OK")
			return nil
		},
	}
}

func (f *Family) unpause() *command.Command {
	return &command.Command{
		Name: "client|unpause", Group: "connection", Since: "6.2.0",
		Complexity: "O(N) in the number of clients that wait",
		Flags:      command.Admin | command.Dangerous | clientFlags, Summary: "Ends a CLIENT PAUSE with WRITE; after one of all calls, it " +
			"waits like any other.",
		Reply: "OK.",
		Run: func(c *command.Call) error {
			f.Blocked.Unpause()
			c.Out.Status("OK")
			return nil
		},
	}
}

// parseTimeout parses a number of milliseconds, with Redis's errors.
func parseTimeout(word []byte) (int64, error) {
	n, ok := resp.ParseInt(word)
	switch {
	case !ok:
		return 0, command.Refusal("ERR timeout is not an integer or out of range")
	case n < 0:
		return 0, command.Refusal("ERR timeout is negative")
	}
	return n, nil
}
