package commands

import "cellserver/internal/command"

var ping = command.Command{
	Name: "ping", Group: "connection", Since: "1.0.0", Complexity: "O(1)", Flags: command.Fast,
	Cost: command.Constant, Traits: command.WhileSubscribed | command.Sessionless,
	Summary: "Tests the connection.",
	Tips:    []string{command.AllShards, "response_policy:all_succeeded"},
	Args:    []command.Arg{command.Word("message").Optional()}, Reply: "PONG, or the message.",
	Run: func(c *command.Call) error {
		if c.Session != nil && c.Client.IsSubscribed() && c.Out.Protocol() == 2 { // where a client expects messages
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

// redisVersion is what clients are told that they talk to: they branch on it, and what they then
// expect is served.
const redisVersion = "7.4.0"

func introduce(c *command.Call) {
	c.Out.Map(7)
	c.Out.BulkString("server")
	c.Out.BulkString("redis")
	c.Out.BulkString("version")
	c.Out.BulkString(redisVersion)
	c.Out.BulkString("proto")
	c.Out.Int(int64(c.Out.Protocol()))
	c.Out.BulkString("id")
	c.Out.Int(sessionOf(c).ID)
	c.Out.BulkString("mode")
	c.Out.BulkString("standalone")
	c.Out.BulkString("role")
	c.Out.BulkString("master")
	c.Out.BulkString("modules")
	c.Out.Array(0)
}

var selectDB = command.Command{
	Name: "select", Group: "connection", Since: "1.0.0", Complexity: "O(1)",
	Flags: command.Loading | command.Stale | command.Fast, Cost: command.Constant,
	Traits:  command.Sessionless | command.SelectsDatabase,
	Summary: "Selects the database for the following commands.",
	Args:    []command.Arg{command.Int("index").By(command.ParseIndex)}, Reply: "OK.",
	Run: func(c *command.Call) error {
		n := c.Int()
		if n < 0 || n >= int64(c.Server.Databases) {
			return command.ErrDatabase
		}
		if c.Session != nil {
			sessionOf(c).selectDatabase(int(n))
		} else {
			c.View.Select(int(n)) // and the session when it takes the reply
		}
		c.Out.Status("OK")
		return nil
	},
}

var reset = command.Command{
	Name: "reset", Group: "connection", Since: "6.2.0", Complexity: "O(1)", Flags: handshake,
	Cost:    command.Constant,
	Traits:  command.Unqueued | command.WhileSubscribed | command.AllowedFull | command.ChangesRights,
	Summary: "Resets the connection: database 0, RESP2, no name, no transaction, no subscriptions, no tracking, logged out.",
	Reply:   "RESET.",
	Run: func(c *command.Call) error {
		sessionOf(c).leaveTransaction()
		instanceOf(c).channels.UnsubscribeAll(c.Client, c.Session)
		instanceOf(c).tracking.SetCallTracker(c, nil)
		sessionOf(c).speak(2)
		sessionOf(c).selectDatabase(0)
		sessionOf(c).setName(nil)
		sessionOf(c).forgetManners()
		sessionOf(c).become(nil)
		c.Out.Status("RESET")
		return nil
	},
}

var quit = command.Command{
	Name: "quit", Group: "connection", Since: "1.0.0", Complexity: "O(1)", Flags: handshake,
	Cost:   command.Constant,
	Traits: command.Unqueued | command.WhileSubscribed | command.AllowedFull, AnyMore: true,
	Summary: "Closes the connection. Commands after it are not answered.", Reply: "OK.",
	Run: func(c *command.Call) error {
		sessionOf(c).closing = true
		c.Out.Status("OK")
		return nil
	},
}
