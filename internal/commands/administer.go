package commands

import (
	"net"
	"strconv"
	"strings"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/resp"
)

// What those who run a Redis ask of it, and what is true of this server, which has no replicas, no
// scripts, no modules and no files.

var role = command.Command{
	Name: "role", Group: "server", Category: "admin", Since: "2.8.12", Complexity: "O(1)",
	Flags:   command.NoScript | command.Loading | command.Stale | command.Fast | command.Dangerous,
	Cost:    command.Constant,
	Summary: "Returns the role in replication, of which there is none: always master, without replicas.",
	Reply:   "Three elements: master, 0, no replicas.",
	Run: func(c *command.Call) error {
		c.Out.Array(3)
		c.Out.BulkString("master")
		c.Out.Int(0)
		c.Out.Array(0)
		return nil
	},
}

var lastSave = command.Command{
	Name: "lastsave", Group: "server", Category: "admin", Since: "1.0.0", Complexity: "O(1)",
	Flags: command.Loading | command.Stale | command.Fast | command.Dangerous,
	Cost:  command.Constant, Tips: command.Varying,
	Summary: "Returns when the server started: nothing is saved.", Reply: "Unix seconds.",
	Run: func(c *command.Call) error {
		c.Out.Int(c.Unix(instanceOf(c).started) / 1e9)
		return nil
	},
}

const errNotDurable command.Refusal = "ERR nothing can be saved: this server keeps its keys in memory alone"

var save = command.Command{
	Name: "save", Group: "server", Category: "none", Since: "1.0.0", Complexity: "O(1)",
	Flags:   command.Admin | command.Dangerous | command.NoScript | command.NoMulti,
	Summary: "Refused: this server keeps its keys in memory only.", Reply: "An error.",
	Run: func(*command.Call) error { return errNotDurable },
}

var bgSave = command.Command{
	Name: "bgsave", Group: "server", Category: "none", Since: "1.0.0", Complexity: "O(1)",
	Flags:   command.Admin | command.Dangerous | command.NoScript,
	Summary: "Refused: this server keeps its keys in memory only.",
	Args:    []command.Arg{command.Flag("SCHEDULE")}, Reply: "An error.",
	Run: func(*command.Call) error { return errNotDurable },
}

var lolwut = command.Command{
	Name: "lolwut", Group: "server", Category: "none", Since: "5.0.0", Complexity: "O(1)",
	Flags: command.ReadOnly | command.Fast, Cost: command.Constant,
	Summary: "Shows the version, without art.",
	Args:    []command.Arg{command.Word("[VERSION version ...]").Optional().Many()},
	Reply:   "A line of text.",
	Run: func(c *command.Call) error {
		if words := c.Many(); len(words) > 1 && command.FoldEqual(words[0], "VERSION") {
			if _, ok := resp.ParseInt(words[1]); !ok {
				return command.ErrNotAnInteger
			}
		}
		c.Out.Verbatim("txt", "Redis ver. "+redisVersion+"\n")
		return nil
	},
}

// nothingToFlush makes the FLUSH of a container whose things do not exist here.
func nothingToFlush(name, since, wrong string, flags command.Flags, policy string) *command.Command {
	return &command.Command{
		Name: name, Group: "server", Category: "scripting", Since: since, Complexity: "O(1)",
		Flags: flags | command.NoScript, Summary: "Removes all of them: there are none.",
		Args: []command.Arg{command.Word("[ASYNC | SYNC]").Optional()}, Reply: "OK.",
		Tips: []string{policy, "response_policy:all_succeeded"},
		Run: func(c *command.Call) error {
			if mode := c.Word(); mode != nil && !command.FoldEqual(mode, "ASYNC") && !command.FoldEqual(mode, "SYNC") {
				return command.Refusal(wrong)
			}
			c.Out.Status("OK")
			return nil
		},
	}
}

const allNodes = "request_policy:all_nodes"

var function = command.Command{
	Name: "function", Group: "server", Category: "none", Since: "7.0.0",
	Complexity: "Depends on the subcommand.", Min: 2,
	Summary: "Commands about functions, of which there are none.", AnyMore: true,
	Subs: []*command.Command{
		nothingToFlush("function|flush", "7.0.0", "ERR FUNCTION FLUSH only supports SYNC|ASYNC option", command.Write,
			command.AllShards),
		command.HelpOf("function", "7.0.0"),
	},
}

// script has one subcommand, and of the others says what Redis says of a command that it does not
// know: clients find out by that that there are no scripts.
var script = command.Command{
	Name: "script", Group: "server", Category: "none", Since: "2.6.0",
	Complexity: "Depends on the subcommand.", Min: 2,
	Summary: "Commands about scripts, of which there are none.", AnyMore: true,
	Traits: command.HidesSubcommands,
	Subs: []*command.Command{
		nothingToFlush("script|flush", "2.6.0", "ERR SCRIPT FLUSH only support SYNC|ASYNC option", 0, allNodes),
		command.HelpOf("script", "5.0.0"),
	},
}

var module = command.Command{
	Name: "module", Group: "server", Category: "none", Since: "4.0.0",
	Complexity: "Depends on the subcommand.", Min: 2,
	Summary: "Commands about modules, of which there are none.", AnyMore: true,
	Subs: []*command.Command{&moduleList, command.HelpOf("module", "5.0.0")},
}

var moduleList = command.Command{
	Name: "module|list", Group: "server", Category: "none", Since: "4.0.0", Complexity: "O(1)",
	Flags: command.Admin | command.Dangerous | command.NoScript, Summary: "Lists the modules.",
	Reply: "An empty array.", Tips: []string{"nondeterministic_output_order"},
	Run: func(c *command.Call) error {
		c.Out.Array(0)
		return nil
	},
}

var shutdown = command.Command{
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
		case instanceOf(c).stop == nil:
			return command.Refusal("ERR Errors trying to SHUTDOWN. Check logs.")
		}
		instanceOf(c).log.Warn("shutdown requested by a client", "client", c.Client.Peer.Remote)
		c.CloseAfterReply()
		instanceOf(c).stop()
		return nil
	},
}

var debugCommand = command.Command{
	Name: "debug", Group: "server", Category: "none", Since: "1.0.0", Complexity: "O(1)",
	Flags: command.Admin | command.Dangerous | command.NoScript | command.Loading | command.Stale,
	Min:   2,
	Summary: "For tests, where --enable-debug-command allows it: SLEEP makes this client, and no other, wait; SET-ACTIVE-EXPIRE 0 keeps " +
		"what has expired until 1 is said; LOG writes a line to the log.",
	Args:  []command.Arg{command.Word("SLEEP seconds | SET-ACTIVE-EXPIRE number | LOG message | HELP").Many()},
	Reply: "OK.",
	Run: func(c *command.Call) error {
		words := c.Many()
		if !instanceOf(c).mayDebug(c.Client) {
			return command.Refusal(`ERR DEBUG command not allowed. If the enable-debug-command option is set to "local", you can run it from a ` +
				"local connection, otherwise you need to set this option in the configuration file, and then restart the server.")
		}
		if command.FoldEqual(words[0], "HELP") && len(words) == 1 {
			writeHelp(c, c.Row)
			return nil
		}
		run := debugs[strings.ToUpper(string(words[0]))]
		if run == nil || len(words) != 2 {
			return command.Refusal("ERR unknown subcommand or wrong number of arguments for '" + command.Prefix(words[0], 128) +
				"'. Try DEBUG HELP.")
		}
		return run(c, words[1])
	},
}

func writeHelp(c *command.Call, row *command.Command) {
	lines := []string{row.Upper() + " <subcommand> [<arg> [value] [opt] ...]. Subcommands are:", row.Args[0].Name,
		"    " + row.Summary}
	c.Out.Array(len(lines))
	for _, line := range lines {
		c.Out.Status(line)
	}
}

var debugs = map[string]func(c *command.Call, word []byte) error{"SLEEP": debugSleep, "SET-ACTIVE-EXPIRE": debugExpire,
	"LOG": debugLog}

// mayDebug says whether a client may say DEBUG.
func (in *Instance) mayDebug(s *client.Client) bool { return in.mayDo(in.debug, s) }

// mayDo says whether a client may do what is allowed to everybody (yes), to who is on this machine
// (local), or to nobody.
func (in *Instance) mayDo(allowed string, s *client.Client) bool {
	if allowed != "local" {
		return allowed == "yes"
	}
	host, _, err := net.SplitHostPort(s.Peer.Remote)
	ip := net.ParseIP(host)
	return strings.HasPrefix(s.Peer.Local, "/") || err == nil && ip != nil && ip.IsLoopback()
}

// debugSleep makes one client wait. Redis makes all of them; here no client does that.
func debugSleep(c *command.Call, word []byte) error {
	const longest = 1e6 // seconds
	seconds, err := strconv.ParseFloat(string(word), 64)
	if err != nil || !(seconds > 0) || c.InTransaction {
		seconds = 0
	}
	if c.InTransaction || seconds == 0 {
		c.Out.Status("OK")
		return nil
	}
	c.Blocks = true
	sessionOf(c).wait(blocking{
		until: msAfter(c.View.Now(), int64(min(seconds, longest)*1000)), reply: "+OK\r\n", ended: end(c),
	})
	return nil
}

// end is what to do when a call that lasts is over: what its time would have been told to, is told.
func end(c *command.Call) func() {
	in, row, call, clock := instanceOf(c), c.Row, newSlowCall(c, c.Row, c.Words), c.Server.Clock
	began := clock.Now()
	return func() {
		if took := clock.Now() - began; in.observe(row, took) {
			in.slowlog.Add(call, took/1000)
		}
	}
}

// sweeper is a store that can be kept from removing what has expired.
type sweeper interface{ SetSweeping(on bool) }

func debugExpire(c *command.Call, word []byte) error {
	if s, ok := instanceOf(c).store.(sweeper); ok {
		n, _ := resp.ParseInt(word) // what is no number is 0, as in Redis
		s.SetSweeping(n != 0)
	}
	c.Out.Status("OK")
	return nil
}

func debugLog(c *command.Call, word []byte) error {
	const longest = 1024 // bytes
	instanceOf(c).log.Warn("DEBUG LOG: " + command.Prefix(word, longest))
	c.Out.Status("OK")
	return nil
}
