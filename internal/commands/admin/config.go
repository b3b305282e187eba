package admin

import (
	"errors"
	"fmt"
	"slices"

	"cellserver/internal/command"
	"cellserver/internal/option"
)

func (a *Admin) config() *command.Command {
	return command.Container("config", "server", "2.0.0", "Commands about the server's settings.",
		a.configGet(), a.configResetStat(), a.configRewrite(), a.configSet(), command.HelpOf("config", "5.0.0"))
}

func (a *Admin) configGet() *command.Command {
	return &command.Command{
		Name: "config|get", Group: "server", Category: "none", Since: "2.0.0",
		Complexity: "O(N) in the number of settings",
		Flags:      command.Admin | command.Dangerous | command.NoScript | command.Loading | command.Stale,
		Summary:    "Returns the settings whose names match.",
		Args:       []command.Arg{command.Word("parameter").Many()}, Reply: "A map of names and values.",
		Run: func(c *command.Call) error {
			names, err := c.Match(c.Many())
			if err != nil {
				return err
			}
			found := a.Options.Matching(names.Any)
			if err := names.Err(); err != nil {
				return err
			}
			c.Out.Map(len(found))
			for _, v := range found {
				c.Out.Field(v.Name).BulkString(v.Value)
			}
			return nil
		},
	}
}

func (a *Admin) configSet() *command.Command {
	return &command.Command{
		Name: "config|set", Group: "server", Category: "none", Since: "2.0.0",
		Complexity: "O(N) in the number of settings", Min: 4,
		Flags:   command.Admin | command.Dangerous | command.NoScript | command.Loading | command.Stale,
		Tips:    []string{command.AllNodes, "response_policy:all_succeeded"},
		Summary: "Changes settings while the server runs: all of them, or none.",
		Args:    []command.Arg{command.Word("parameter value [parameter value ...]").Many()},
		Reply:   "OK.",
		Secrets: a.secretSettings,
		Run: func(c *command.Call) error {
			words := c.Many()
			if len(words)%2 != 0 {
				return command.ErrArity(c.Row)
			}
			countCalls(c)
			changes := pairs(words)
			before := slices.Clone(changes)
			for i := range before {
				before[i].Value = a.Options.Show(before[i].Name)
			}
			if err := a.Options.Set(changes, isAllowed(a.Protected, c.Client)); err != nil {
				return errConfig(err)
			}
			c.OnRollback(func() { _ = a.Options.Set(before, true) }) // this cannot fail: these were the values
			if c.Session != nil && c.Server.Hooks.Any() {
				c.Session.TakeSlowPath()
			}
			c.Out.Status("OK")
			return nil
		},
	}
}

// secretSettings hides all words but the names of settings, and the values that CONFIG SET may give to settings that
// are no secrets. So it hides a password whose setting is misspelled or has another name here, or which has a space.
func (a *Admin) secretSettings(_ *command.Table, words [][]byte, hide func(int)) {
	for i := 2; i < len(words); i++ {
		named := a.Options.Lookup(string(words[i]))
		if named == nil {
			hide(i)
		}
		if i++; i < len(words) && (named == nil || named.Secret || named.Change != option.Live) {
			hide(i)
		}
	}
}

// pairs returns the names and values of a CONFIG SET.
func pairs(words [][]byte) (list []option.Value) {
	for ; len(words) > 0; words = words[2:] {
		list = append(list, option.Value{Name: string(words[0]), Value: string(words[1])})
	}
	return list
}

// errConfig returns Redis's error for options that could not be changed.
func errConfig(err error) error {
	var change *option.ChangeError
	switch {
	case !errors.As(err, &change):
		return err
	case errors.Is(err, option.ErrUnknown):
		return command.Refusal(fmt.Sprintf("ERR Unknown option or number of arguments for CONFIG SET - '%.128s'",
			change.Name))
	}
	return command.Refusal(fmt.Sprintf("ERR CONFIG SET failed (possibly related to argument '%s') - %s", change.Name,
		change.Reason))
}

// resetWork is the work (see command.Call) of setting all counters to zero, beyond the work of other commands whose
// cost is Bounded.
const resetWork = 64 * command.CallWork

func (a *Admin) configResetStat() *command.Command {
	return &command.Command{
		Name: "config|resetstat", Group: "server", Category: "none", Since: "2.0.0",
		Complexity: "O(N) in the number of commands",
		Flags:      command.Admin | command.Dangerous | command.NoScript | command.Loading | command.Stale,
		Effort:     &command.Effort{Fixed: func([][]byte) int { return resetWork }},
		Traits:     command.AnyKey, Summary: "Resets the counters of INFO.", Reply: "OK.",
		Run: func(c *command.Call) error {
			countCalls(c)
			c.Work += resetWork
			c.Server.Stats.Reset(expiredKeys(c.View))
			c.Out.Status("OK")
			return nil
		},
	}
}

// errRewriteInMulti refuses CONFIG REWRITE in a transaction, because a file must not be written while
// keys are locked.
const errRewriteInMulti command.Refusal = "ERR CONFIG REWRITE is not allowed inside a transaction"

func (a *Admin) configRewrite() *command.Command {
	return &command.Command{
		Name: "config|rewrite", Group: "server", Category: "none", Since: "2.8.0",
		Complexity: "O(N) in the number of settings and users",
		Flags:      command.Admin | command.Dangerous | command.NoScript | command.Loading | command.Stale,
		Cost:       command.Unbounded,
		Summary:    "Writes the settings, and the users, to the file of --config.", Reply: "OK.",
		Run: func(c *command.Call) error {
			switch {
			case a.Rewrite == nil:
				return command.Refusal("ERR The server is running without a config file")
			case c.InTransaction:
				return errRewriteInMulti
			}
			if err := a.Rewrite(); err != nil {
				a.Log.Warn("CONFIG REWRITE failed", "error", err)
				return command.Refusal("ERR Rewriting config file: " + err.Error())
			}
			a.Log.Info("CONFIG REWRITE has written the configuration file")
			c.Out.Status("OK")
			return nil
		},
	}
}
