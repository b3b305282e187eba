package admin

import (
	"net"
	"strconv"
	"strings"
	"time"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/resp"
)

func (a *Admin) debug() *command.Command {
	return &command.Command{
		Name: "debug", Group: "server", Category: "none", Since: "1.0.0", Complexity: "O(1)",
		Flags: command.Admin | command.Dangerous | command.NoScript | command.Loading | command.Stale,
		Min:   2,
		Summary: "For tests, where --enable-debug-command allows it: SLEEP makes this client, and no other, wait, and in EXEC also " +
			"clients of the same event loop, and calls for keys of the transaction; SET-ACTIVE-EXPIRE 0 keeps " +
			"expired keys in memory until SET-ACTIVE-EXPIRE 1; LOG writes a line to the log; RELOAD does what SAVE does, if there is a --dir, " +
			"and replaces each key by what its payload of DUMP says.",
		Args: []command.Arg{
			command.Word("SLEEP seconds | SET-ACTIVE-EXPIRE number | LOG message | RELOAD [MERGE] [NOFLUSH] [NOSAVE] | HELP").Many(),
		},
		Reply: "OK.",
		Run: func(c *command.Call) error {
			words := c.Many()
			if !isAllowed(a.Debug, c.Client) {
				return command.Refusal(`ERR DEBUG command not allowed. If the enable-debug-command option is set to "local", you can run it from a ` +
					"local connection, otherwise you need to set this option in the configuration file, and then restart the server.")
			}
			if command.FoldEqual(words[0], "HELP") && len(words) == 1 {
				writeHelp(c, c.Row)
				return nil
			}
			if command.FoldEqual(words[0], "RELOAD") {
				return a.debugReload(c, words[1:])
			}
			run := a.debugSubcommands()[strings.ToUpper(string(words[0]))]
			if run == nil || len(words) != 2 {
				return command.Refusal("ERR unknown subcommand or wrong number of arguments for '" + command.Prefix(words[0], 128) +
					"'. Try DEBUG HELP.")
			}
			return run(c, words[1])
		},
	}
}

func writeHelp(c *command.Call, row *command.Command) {
	lines := []string{row.Upper() + " <subcommand> [<arg> [value] [opt] ...]. Subcommands are:", row.Args[0].Name,
		"    " + row.Summary}
	c.Out.Array(len(lines))
	for _, line := range lines {
		c.Out.Status(line)
	}
}

func (a *Admin) debugSubcommands() map[string]func(c *command.Call, word []byte) error {
	return map[string]func(c *command.Call, word []byte) error{
		"SLEEP": debugSleep, "SET-ACTIVE-EXPIRE": a.debugSetActiveExpire, "LOG": a.debugLog,
	}
}

const errReload command.Refusal = "ERR DEBUG RELOAD is not allowed in a transaction, because it takes long"

// debugReload has every key saved and reloaded. MERGE and NOFLUSH make no difference: keys are
// replaced one by one.
func (a *Admin) debugReload(c *command.Call, options [][]byte) error {
	save := true
	for _, option := range options {
		switch {
		case command.FoldEqual(option, "NOSAVE"):
			save = false
		case !command.FoldEqual(option, "MERGE") && !command.FoldEqual(option, "NOFLUSH"):
			return command.Refusal("ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.")
		}
	}
	switch {
	case c.InTransaction:
		return errReload
	case c.Server.Hooks.Has(command.DataLoading):
		return command.ErrLoading
	case c.Session != nil:
		c.Session.Offload()
		return nil
	}
	c.Out.Status("OK")
	return a.Reload(c, save)
}

// isAllowed reports whether a client may use what the setting allowed gives to all clients (yes),
// to those on this machine (local), or to none (no).
func isAllowed(allowed string, c *client.Client) bool {
	if allowed != "local" {
		return allowed == "yes"
	}
	host, _, err := net.SplitHostPort(c.Peer.Remote)
	ip := net.ParseIP(host)
	return strings.HasPrefix(c.Peer.Local, "/") || err == nil && ip != nil && ip.IsLoopback()
}

// debugSleep blocks the calling client alone. In Redis, DEBUG SLEEP blocks all clients. Inside EXEC, it does so here
// too, because a transaction is not interrupted.
func debugSleep(c *command.Call, word []byte) error {
	const longest = 1e6 // seconds
	seconds, err := strconv.ParseFloat(string(word), 64)
	if err != nil || !(seconds > 0) {
		seconds = 0
	}
	milliseconds := int64(min(seconds, longest) * 1000)
	if c.InTransaction || seconds == 0 {
		time.Sleep(time.Duration(milliseconds) * time.Millisecond)
		c.Out.Status("OK")
		return nil
	}
	c.Blocks = true
	c.Session.Block(client.Block{
		Until: client.MsAfter(c.Now(), milliseconds), Reply: "+OK\r\n", Ended: observeLater(c),
	})
	return nil
}

// observeLater returns a function that adds the time of a call to the statistics, for a call that
// goes on after its row has run. It is to be called when the call ends.
func observeLater(c *command.Call) func() {
	server, row, call := c.Server, c.Row, c.SlowCall(c.Row, c.Words)
	began := server.Clock.Now()
	return func() {
		ns := server.Clock.Now() - began
		server.Stats.Of(row.Number).Ns.Add(ns)
		if server.Observe(row, ns) {
			server.Stats.SlowLog.Add(call, ns/1000)
		}
	}
}

// sweeper is a store whose removal of expired keys can be turned off.
type sweeper interface{ SetSweeping(on bool) }

func (a *Admin) debugSetActiveExpire(c *command.Call, word []byte) error {
	if s, ok := a.Store.(sweeper); ok {
		n, _ := resp.ParseInt(word) // as in Redis, a word that is not a number counts as 0
		s.SetSweeping(n != 0)
	}
	c.Out.Status("OK")
	return nil
}

func (a *Admin) debugLog(c *command.Call, word []byte) error {
	const longest = 1024 // bytes
	a.Log.Warn("DEBUG LOG: " + command.Prefix(word, longest))
	c.Out.Status("OK")
	return nil
}
