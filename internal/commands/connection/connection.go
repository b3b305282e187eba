// Package connection is the commands about a client's connection: HELLO, PING, SELECT, RESET, QUIT
// and CLIENT; and WAIT, which blocks a client.
package connection

import (
	"cellserver/internal/client"
	"cellserver/internal/command"
)

// Family is the family's commands, and what they need of a server.
type Family struct {
	Clients *client.Registry
	Blocked client.BlockedClients
	// Find returns the account of a user; nil if there is none.
	Find func(user string) *client.Account
	// Verify checks a password. It returns a function that logs the caller in; nil if the password
	// is wrong.
	Verify func(c *command.Call, user, password []byte) (logIn func() error)
	// Flush has all changes written to the disk. It is nil if keys are in memory only.
	Flush func() error
	// Subcommands are the subcommands of CLIENT that belong to other families.
	Subcommands []*command.Command

	flushes flushes
}

// Session is what the commands need of the session that makes the call.
type Session interface {
	IsLoggedIn() bool
	// SwitchProtocol changes the version of the protocol, 2 or 3, from this reply on.
	SwitchProtocol(protocol int)
	// SelectDatabase selects the database of the following calls.
	SelectDatabase(n int)
	SetReplyMode(mode ReplyMode)
	// Reset ends what the client has begun in any family, and logs it out.
	Reset()
}

func sessionOf(c *command.Call) Session { return c.Session.(Session) }

// Commands lists the family in reading order.
func (f *Family) Commands() []*command.Command {
	return []*command.Command{
		&ping, &echo, f.hello(), &selectDB, f.client(), &reset, &quit, f.wait(), f.waitAOF(),
	}
}

// Info is the family's part of INFO: the blocked clients.
func (f *Family) Info() command.InfoPart {
	return command.InfoPart{Section: "Clients", Write: func(_ *command.Call, out *command.InfoText) {
		out.Add("blocked_clients", f.Blocked.Count())
		out.Fixed("clients_in_timeout_table:0", "total_blocking_keys:0", "total_blocking_keys_on_nokey:0")
	}}
}

// Cleanup ends what the client waits for, and undoes CLIENT SETNAME, NO-EVICT and NO-TOUCH.
func (f *Family) Cleanup() command.Cleanup {
	return command.Cleanup{
		Reset: func(c *command.Call) {
			c.Client.SetName(nil)
			c.Client.Profile.Mu.Lock()
			defer c.Client.Profile.Mu.Unlock()
			c.Client.Profile.NoEvict, c.Client.Profile.NoTouch = false, false
		},
		Close: func(c *client.Client, _ command.Session) { f.Blocked.Forget(c) },
	}
}

// unhealthy refuses PING while the disk fails, as in Redis, so that health checks notice.
func unhealthy(c *command.Call) error {
	if c.Server.Hooks.Has(command.DiskFailing) {
		return command.ErrDiskFails
	}
	return nil
}

var ping = command.Command{
	Name: "ping", Group: "connection", Since: "1.0.0", Complexity: "O(1)", Flags: command.Fast,
	Cost: command.Constant, Traits: command.WhileSubscribed | command.Sessionless,
	Admit:   command.Admission{Refuse: unhealthy},
	Summary: "Tests the connection.",
	Tips:    []string{command.AllShards, "response_policy:all_succeeded"},
	Args:    []command.Arg{command.Word("message").Optional()}, Reply: "PONG, or the message.",
	Run: func(c *command.Call) error {
		// A subscribed client that speaks RESP2 expects messages, so the reply has the form of one.
		if c.Session != nil && c.Client.IsSubscribed() && c.Out.Protocol() == 2 {
			c.Out.Array(2)
			c.Out.BulkString("pong")
			c.Out.Bulk(c.Word())
			return nil
		}
		if message := c.Word(); message != nil {
			c.Out.Bulk(message)
		} else {
			c.Out.Status("PONG")
		}
		return nil
	},
}

var echo = command.Command{
	Name: "echo", Group: "connection", Since: "1.0.0", Complexity: "O(1)",
	Flags: command.Loading | command.Stale | command.Fast, Cost: command.Constant,
	Traits: command.Sessionless, Summary: "Returns the message.",
	Args: []command.Arg{command.Word("message")}, Reply: "The message.",
	Run: func(c *command.Call) error {
		c.Out.Bulk(c.Word())
		return nil
	},
}

const oneDatabase = "a cluster has only database 0"

var selectDB = command.Command{
	Name: "select", Group: "connection", Since: "1.0.0", Complexity: "O(1)",
	Flags: command.Loading | command.Stale | command.Fast, Cost: command.Constant,
	Traits:  command.Sessionless | command.SelectsDatabase,
	Summary: "Selects the database for the following commands.",
	Args:    []command.Arg{command.Int("index").By(command.ParseIndex)}, Reply: "OK.",
	Run: func(c *command.Call) error {
		n := c.Int()
		if n < 0 || n >= int64(c.Server.Databases) {
			if err := c.RefuseExternal(oneDatabase); err != nil && c.Server.Databases == 1 {
				return err
			}
			return command.ErrDatabase
		}
		// in the background, the session does when it takes the reply
		choose, before := c.View.Select, c.View.Selected()
		if c.Session != nil {
			choose = sessionOf(c).SelectDatabase
		}
		choose(int(n))
		c.OnRollback(func() { choose(before) })
		c.Out.Status("OK")
		return nil
	},
}

var reset = command.Command{
	Name: "reset", Group: "connection", Since: "6.2.0", Complexity: "O(1)",
	Flags: command.Handshake, Cost: command.Constant,
	Traits:  command.Unqueued | command.WhileSubscribed | command.AllowedFull,
	Summary: "Resets the connection: database 0, RESP2, no name, no transaction, no subscriptions, no tracking, logged out.",
	Reply:   "RESET.",
	Run: func(c *command.Call) error {
		sessionOf(c).Reset()
		c.Out.Status("RESET")
		return nil
	},
}

var quit = command.Command{
	Name: "quit", Group: "connection", Since: "1.0.0", Complexity: "O(1)", Flags: command.Handshake,
	Cost:   command.Constant,
	Traits: command.Unqueued | command.WhileSubscribed | command.AllowedFull, AnyMore: true,
	Summary: "Closes the connection. Commands after it are not answered.", Reply: "OK.",
	Run: func(c *command.Call) error {
		c.Session.CloseAfterReply()
		c.Out.Status("OK")
		return nil
	},
}
