package value

import "cellserver/internal/command"

// adding completes the row of a command that adds to an integer. delta returns the number to add.
func adding(row command.Command, delta func(c *command.Call) (int64, error)) command.Command {
	row.Group, row.Complexity, row.Flags, row.Cost, row.KeyAccess = "string", "O(1)",
		command.Write|command.DenyOOM|command.Fast, command.Constant, "RW ACCESS UPDATE"
	row.Traits = command.SeveralSteps // a store may look at the key, to say why it cannot add
	row.Reply, row.Events.Change = "The sum. A missing key counts as 0.", "incrby"
	row.Run = func(c *command.Call) error {
		key := c.Key()
		n, err := delta(c)
		if err != nil {
			return err
		}
		sum, err := c.View.Add(c.Context, key, n)
		if err != nil {
			return err
		}
		c.Out.Int(sum)
		return nil
	}
	return row
}

var (
	incr = adding(command.Command{
		Name: "incr", Since: "1.0.0", Summary: "Adds 1 to an integer.",
		Args: []command.Arg{command.Key("key")},
	},
		func(*command.Call) (int64, error) { return 1, nil })
	decr = adding(command.Command{
		Name: "decr", Since: "1.0.0", Summary: "Subtracts 1 from an integer.",
		Args: []command.Arg{command.Key("key")},
	},
		func(*command.Call) (int64, error) { return -1, nil })
	incrBy = adding(command.Command{
		Name: "incrby", Since: "1.0.0", Summary: "Adds to an integer.",
		Args: []command.Arg{command.Key("key"), command.Int("increment")},
	},
		func(c *command.Call) (int64, error) { return c.Int(), nil })
	decrBy = adding(command.Command{
		Name: "decrby", Since: "1.0.0", Summary: "Subtracts from an integer.",
		Args: []command.Arg{command.Key("key"), command.Int("decrement")},
	},
		func(c *command.Call) (int64, error) {
			n := c.Int()
			if n == command.MinInt {
				return 0, command.Refusal("ERR decrement would overflow")
			}
			return -n, nil
		})
)
