package command

import "slices"

var commandList = Command{
	Name: "command|list", Group: "server", Category: "connection", Since: "7.0.0",
	Complexity: "O(N) in the number of commands", Flags: commandFlags, Traits: Sessionless,
	Tips: []string{"nondeterministic_output_order"}, Summary: "Lists the names of the commands.",
	Args:  []Arg{Word("[FILTERBY MODULE name | ACLCAT category | PATTERN pattern]").Optional().Many()},
	Reply: "The names.",
	Run: func(c *Call) error {
		wanted, done, err := c.listFilter(c.Many())
		if err != nil {
			return err
		}
		var names []string
		for _, row := range c.Server.Table.ByName {
			if wanted(row) {
				names = append(names, row.Name)
			}
		}
		if err := done(); err != nil {
			return err
		}
		slices.Sort(names)
		c.Out.Array(len(names))
		for _, name := range names {
			c.Out.BulkString(name)
		}
		return nil
	},
}

var commandGetKeys = Command{
	Name: "command|getkeys", Group: "server", Category: "connection", Since: "2.8.13",
	Complexity: "O(N) in the number of words", Flags: commandFlags, Cost: Unbounded, Min: 4, Secrets: SecretsOfCall(2),
	Summary: "Finds the keys in a call.", Args: []Arg{Word("command"), Word("arg").Many()},
	Reply: "The keys; of a call of a policy, the subject.",
	Run: func(c *Call) error {
		_, keys, err := c.keysIn(c.Words[2:])
		if err != nil {
			return err
		}
		c.Out.Array(len(keys))
		for _, key := range keys {
			c.Out.Bulk(key)
		}
		return nil
	},
}

var commandGetKeysAndFlags = Command{
	Name: "command|getkeysandflags", Group: "server", Category: "connection", Since: "7.0.0",
	Complexity: "O(N) in the number of words", Flags: commandFlags, Cost: Unbounded, Min: 4, Secrets: SecretsOfCall(2),
	Summary: "Finds the keys in a call, and how it uses them.",
	Args:    []Arg{Word("command"), Word("arg").Many()},
	Reply:   "A pair per key: the key, and flags as in COMMAND INFO's key specs.",
	Run: func(c *Call) error {
		row, keys, err := c.keysIn(c.Words[2:])
		if err != nil {
			return err
		}
		access := row.KeyAccess
		if row.Keys.Access != nil {
			access = row.Keys.Access(c.Words[2:])
		}
		if row.onlyReads(c.Server, c.Words[2:]) {
			access = "RO ACCESS"
		}
		c.Out.Array(len(keys))
		for i, key := range keys {
			c.Out.Array(2)
			c.Out.Bulk(key)
			writeStatusSet(c, row.keyAccess(access, i))
		}
		return nil
	},
}
