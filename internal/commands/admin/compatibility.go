package admin

import (
	"cellserver/internal/command"
	"cellserver/internal/resp"
)

// Commands about what Redis has and this server has not: replicas, scripts and modules.
// Clients and tools send them to any server, so they say that there are none.

var role = command.Command{
	Name: "role", Group: "server", Category: "admin", Since: "2.8.12", Complexity: "O(1)",
	Flags:   command.NoScript | command.Loading | command.Stale | command.Fast | command.Dangerous,
	Cost:    command.Constant,
	Summary: "Returns the role in replication: always master, without replicas.",
	Reply:   "Three elements: master, 0, no replicas.",
	Run: func(c *command.Call) error {
		c.Out.Array(3)
		c.Out.BulkString("master")
		c.Out.Int(0)
		c.Out.Array(0)
		return nil
	},
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
		c.Out.Verbatim("txt", "Redis ver. "+command.RedisVersion+"\n")
		return nil
	},
}

// flushCommand returns FUNCTION FLUSH or SCRIPT FLUSH. what names what the command would remove, and
// wrong is the error for an unknown option.
func flushCommand(name, what, since, wrong string, flags command.Flags, policy string) *command.Command {
	return &command.Command{
		Name: name, Group: "server", Category: "scripting", Since: since, Complexity: "O(1)",
		Flags: flags | command.NoScript, Summary: "Removes all " + what + ": there are none.",
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

var function = command.Container("function", "server", "7.0.0", "Commands about functions; the server has none.",
	flushCommand("function|flush", "functions", "7.0.0", "ERR FUNCTION FLUSH only supports SYNC|ASYNC option", command.Write,
		command.AllShards),
	command.HelpOf("function", "7.0.0"))

// script has only the subcommand FLUSH. Others get the error of an unknown command, which tells
// clients that there are no scripts.
func script() *command.Command {
	row := command.Container("script", "server", "2.6.0", "Commands about scripts; the server has none.",
		flushCommand("script|flush", "scripts", "2.6.0", "ERR SCRIPT FLUSH only support SYNC|ASYNC option", 0, command.AllNodes),
		command.HelpOf("script", "5.0.0"))
	row.Admit.UnknownSub = command.ErrUnknown
	return row
}

var module = command.Container("module", "server", "4.0.0", "Commands about modules; the server has none.",
	&moduleList, command.HelpOf("module", "5.0.0"))

var moduleList = command.Command{
	Name: "module|list", Group: "server", Category: "none", Since: "4.0.0", Complexity: "O(1)",
	Flags: command.Admin | command.Dangerous | command.NoScript, Summary: "Lists the modules.",
	Reply: "An empty array.", Tips: []string{"nondeterministic_output_order"},
	Run: func(c *command.Call) error {
		c.Out.Array(0)
		return nil
	},
}
