package commands

import (
	"errors"
	"fmt"

	"cellserver/internal/option"
)

// CONFIG SET: what can be changed while the server runs.

var configSet = Command{
	Name: "config|set", Group: "server", Category: "none", Since: "2.0.0", Complexity: "O(N) in the number of settings", Min: 4,
	Flags:   Admin | Dangerous | NoScript | Loading | Stale,
	Tips:    []string{allNodes, "response_policy:all_succeeded"},
	Summary: "Changes settings while the server runs: all that are named, or none.",
	Args:    []Arg{Word("parameter value [parameter value ...]").Many()}, Reply: "OK.",
	Secrets: func(words [][]byte, hide func(int)) {
		for i := 3; i < len(words); i += 2 {
			if isSecret(words[i-1]) {
				hide(i)
			}
		}
	},
	Run: func(c *Call) error {
		words := c.Many()
		if len(words)%2 != 0 {
			return errArity(c.row)
		}
		c.foldOwn()
		in := instanceOf(c)
		if err := in.options.Set(pairs(words), in.mayDo(in.protected, clientOf(c))); err != nil {
			return errConfig(err)
		}
		if c.Session != nil { // what it pipelines behind this is to see it
			sessionOf(c).careful = sessionOf(c).careful || in.concerns.Load() != 0
		}
		c.Out.Status("OK")
		return nil
	},
}

// pairs are the names and values of a CONFIG SET.
func pairs(words [][]byte) (list []option.Value) {
	for ; len(words) > 0; words = words[2:] {
		list = append(list, option.Value{Name: string(words[0]), Value: string(words[1])})
	}
	return list
}

// errConfig says in Redis's words why options were not changed.
func errConfig(err error) error {
	var change *option.ChangeError
	switch {
	case !errors.As(err, &change):
		return err
	case errors.Is(err, option.ErrUnknown):
		return refusal(fmt.Sprintf("ERR Unknown option or number of arguments for CONFIG SET - '%.128s'", change.Name))
	}
	return refusal(fmt.Sprintf("ERR CONFIG SET failed (possibly related to argument '%s') - %s", change.Name, change.Reason))
}

var configResetStat = Command{
	Name: "config|resetstat", Group: "server", Category: "none", Since: "2.0.0", Complexity: "O(N) in the number of commands",
	Flags: Admin | Dangerous | NoScript | Loading | Stale, Traits: AnyKey,
	Summary: "Has INFO count from 0 again.", Reply: "OK.",
	Run: func(c *Call) error {
		c.foldOwn()
		instanceOf(c).resetStats(c.View)
		c.Out.Status("OK")
		return nil
	},
}

var configRewrite = Command{
	Name: "config|rewrite", Group: "server", Category: "none", Since: "2.8.0", Complexity: "O(1)",
	Flags:   Admin | Dangerous | NoScript | Loading | Stale,
	Summary: "Refused: settings come from the command line and the environment, not from a file.", Reply: "An error.",
	Run: func(*Call) error { return refusal("ERR The server is running without a config file") },
}
