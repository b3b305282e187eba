package command

import (
	"cmp"
	"slices"
	"strings"

	"cellserver/internal/acl"
)

// Introspection is COMMAND, which describes the rows of the table.
var Introspection = Command{
	Name: "command", Group: "server", Category: "connection", Since: "2.8.13",
	Complexity: "O(N) in the number of commands", Flags: Loading | Stale, Traits: Sessionless,
	Tips: []string{"nondeterministic_output_order"}, Min: 1, AnyMore: true,
	Summary: "Describes all commands.",
	Reply:   "An array with one element per command, as from COMMAND INFO.",
	Subs: []*Command{&commandCount, &commandDocs, &commandGetKeys, &commandGetKeysAndFlags, &commandInfo, &commandList,
		HelpOf("command", "5.0.0")},
	Run: describeAll,
}

func describeAll(c *Call) error {
	rows := c.Server.Table.Rows
	c.Out.Array(len(rows))
	for _, row := range rows {
		row.writeInfo(c)
	}
	return nil
}

const commandFlags = Loading | Stale

var commandCount = Command{
	Name: "command|count", Group: "server", Category: "connection", Since: "2.8.13",
	Complexity: "O(1)", Flags: commandFlags, Summary: "Counts the commands.",
	Reply: "Their number.",
	Run: func(c *Call) error {
		c.Out.Int(int64(len(c.Server.Table.Rows)))
		return nil
	},
}

var commandInfo = Command{
	Name: "command|info", Group: "server", Category: "connection", Since: "2.8.13",
	Complexity: "O(N) in the number of names", Flags: commandFlags, Cost: Unbounded,
	Tips:    []string{"nondeterministic_output_order"},
	Summary: "Describes commands for programs: arity, flags, key positions, ACL categories, tips, key specs, subcommands.",
	Args:    []Arg{Word("command-name").Optional().Many()},
	Reply:   "An array with one element per name: an array of ten elements, or nil if there is no such command.",
	Run: func(c *Call) error {
		names := c.Many()
		if len(names) == 0 {
			return describeAll(c)
		}
		c.Out.Array(len(names))
		for _, name := range names {
			if row := c.Server.Table.Named(name); row != nil {
				row.writeInfo(c)
			} else {
				c.Out.Null()
			}
		}
		return nil
	},
}

// Named returns the row of a name as COMMAND writes it, such as "get" or "client|id", in any case; nil
// if there is none.
func (t *Table) Named(name []byte) *Command { return t.ByName[strings.ToLower(string(name))] }

// writeInfo writes one element of COMMAND INFO.
func (row *Command) writeInfo(c *Call) {
	first, last, step := row.shownPositions()
	c.Out.Array(10)
	c.Out.BulkString(row.Name)
	c.Out.Int(int64(row.Grammar.arity()))
	writeStatusSet(c, row.flagNames())
	c.Out.Int(int64(first))
	c.Out.Int(int64(last))
	c.Out.Int(int64(step))
	writeStatusSet(c, row.Categories())
	c.Out.Set(len(row.Tips))
	for _, tip := range row.Tips {
		c.Out.BulkString(tip)
	}
	row.writeKeySpecs(c, first, last, step)
	if len(row.Subs) == 0 {
		c.Out.Set(0) // an empty set as in Redis, although subcommands are an array
		return
	}
	c.Out.Array(len(row.Subs))
	for _, sub := range row.Subs {
		sub.writeInfo(c)
	}
}

func writeStatusSet(c *Call, names []string) {
	c.Out.Set(len(names))
	for _, name := range names {
		c.Out.Status(name)
	}
}

// KeyPositions returns the positions of a call's keys: the index of the first, the index of the
// last (-1 for the call's last word), and the distance between two keys. They are 0 if there are no
// keys, or if only Keys.Find knows them.
func (row *Command) KeyPositions() (first, last, step int) {
	if row.Keys.Find != nil && row.Keys.First == 0 {
		return 0, 0, 0
	}
	if row.Keys.Find != nil {
		return row.Keys.First, row.Keys.First, 1 // more may follow
	}
	name := strings.Count(row.Name, "|") + 1 // words of the name
	for i, a := range row.Args {
		switch {
		case a.kind != keyArg:
			continue
		case a.repeats:
			return i + name, -1, a.step()
		case first == 0:
			first = i + name
		}
		last, step = i+name, 1
	}
	return first, last, step
}

// shownPositions are the KeyPositions that COMMAND INFO shows: the positions of shard channels, if the
// command has any.
func (row *Command) shownPositions() (first, last, step int) {
	switch {
	case row.Traits&ShardChannels == 0:
		return row.KeyPositions()
	case row.Args[0].repeats:
		return 1, -1, 1
	}
	return 1, 1, 1
}

func (row *Command) flagNames() (names []string) {
	if row.Keys.Find != nil {
		defer func() { names = append(names, "movablekeys") }()
	}
	for _, f := range flagNames {
		if row.Flags&f.flag != 0 {
			names = append(names, f.name)
		}
	}
	return names
}

// Categories returns the ACL categories of the command, in Redis's order.
func (row *Command) Categories() (names []string) {
	groups := strings.Fields(row.Category)
	if len(groups) == 0 {
		groups = []string{cmp.Or(map[string]string{"generic": "keyspace", "limiter": "ratelimit",
			"transactions": "transaction"}[row.Group], row.Group)}
	}
	has := map[string]bool{
		"read": row.Flags&ReadOnly != 0, "write": row.Flags&Write != 0, "admin": row.Flags&Admin != 0,
		"fast": row.Flags&Fast != 0, "slow": row.Flags&Fast == 0, "dangerous": row.Flags&Dangerous != 0,
		"pubsub": row.Flags&PubSub != 0,
	}
	for _, group := range groups {
		has[group] = true
	}
	for _, name := range acl.Categories() {
		if has[name] {
			names = append(names, "@"+name)
		}
	}
	return names
}

// writeKeySpecs writes the key positions as the key specs of Redis 7: where the search for keys begins,
// and how to find them from there. Keys that are accessed differently have a spec each.
func (row *Command) writeKeySpecs(c *Call, first, last, step int) {
	if row.Keys.CountAt > 0 {
		c.Out.Set(1)
		row.writeKeySpec(c, 0, row.Keys.CountAt, func() {
			writeSpec(c, "keynum", "keynumidx", 0, "firstkey", 1, "keystep", row.Keys.Step)
		})
		return
	}
	if first == 0 {
		c.Out.Set(0)
		return
	}
	if last > 0 {
		last -= first // from the first key, or back from the end if negative
	}
	specs := len(row.access)
	if specs > 1 {
		last = 0
	}
	c.Out.Set(specs)
	for i := range specs {
		row.writeKeySpec(c, i, first+i, func() { writeSpec(c, "range", "lastkey", last, "keystep", step, "limit", 0) })
	}
}

// writeKeySpec writes one key spec: the access, where the search begins, and how keys are found.
func (row *Command) writeKeySpec(c *Call, number, first int, writeSearch func()) {
	c.Out.Map(3)
	c.Out.BulkString("flags")
	writeStatusSet(c, row.keyAccess(row.KeyAccess, number))
	c.Out.BulkString("begin_search")
	writeSpec(c, "index", "index", first)
	c.Out.BulkString("find_keys")
	writeSearch()
}

// writeSpec writes a part of a key spec: its type, and its fields, each a name and a number.
func writeSpec(c *Call, kind string, fields ...any) {
	c.Out.Map(2)
	c.Out.BulkString("type")
	c.Out.BulkString(kind)
	c.Out.BulkString("spec")
	c.Out.Map(len(fields) / 2)
	for i := 0; i < len(fields); i += 2 {
		c.Out.BulkString(fields[i].(string))
		c.Out.Int(int64(fields[i+1].(int)))
	}
}

// keyAccess returns the words of a KeyAccess for the key of an index, as COMMAND INFO spells them: the
// first in upper case, the others in lower case.
func (row *Command) keyAccess(access string, key int) []string {
	if row.Traits&ShardChannels != 0 {
		return []string{"not_key"}
	}
	each := strings.Split(access, ",")
	words := strings.Fields(each[min(key, len(each)-1)])
	for i := range words {
		if i > 0 {
			words[i] = strings.ToLower(words[i])
		}
	}
	return words
}

// listFilter reads the filter of COMMAND LIST. Without a filter all commands are wanted, with their
// subcommands, as in Redis. done returns an error if the filter did not match all names in time.
func (c *Call) listFilter(words [][]byte) (wanted func(*Command) bool, done func() error, err error) {
	done = func() error { return nil }
	if len(words) == 0 {
		return func(*Command) bool { return true }, done, nil
	}
	if len(words) != 3 || !FoldEqual(words[0], "FILTERBY") {
		return nil, nil, ErrSyntax
	}
	switch what := words[2]; {
	case FoldEqual(words[1], "MODULE"):
		return func(*Command) bool { return false }, done, nil // there are no modules
	case FoldEqual(words[1], "ACLCAT"):
		category := "@" + strings.ToLower(string(what))
		return func(row *Command) bool { return slices.Contains(row.Categories(), category) }, done, nil
	case FoldEqual(words[1], "PATTERN"):
		names, err := c.Match(words[2:])
		if err != nil {
			return nil, nil, err
		}
		return func(row *Command) bool { return names.Any(row.Name) }, names.Err, nil
	}
	return nil, nil, ErrSyntax
}

// keysIn returns the row and the keys of the call that the arguments of COMMAND GETKEYS form.
func (c *Call) keysIn(words [][]byte) (row *Command, keys [][]byte, err error) {
	row = c.Server.Table.Find(words)
	switch {
	case row == nil:
		return nil, nil, Refusal("ERR Invalid command specified")
	case !row.Grammar.Fits(len(words)):
		return nil, nil, Refusal("ERR Invalid number of arguments specified for command")
	}
	keys, ok := row.KeysOf(nil, words)
	switch {
	case !ok:
		return nil, nil, Refusal("ERR Invalid arguments specified for command")
	case len(keys) == 0:
		return nil, nil, Refusal("ERR The command has no key arguments")
	}
	return row, keys, nil
}

// KeysOf appends the keys of a call. It returns false if the words are invalid.
func (row *Command) KeysOf(keys, words [][]byte) (all [][]byte, ok bool) {
	if row.Keys.Find == nil {
		return row.plainKeys(keys, words), true
	}
	at, ok := row.Keys.Find(nil, words)
	for _, i := range at {
		keys = append(keys, words[i])
	}
	return keys, ok
}

// TouchedKeys appends the names of the keys that a call uses. For most rows these are the keys of its words. The
// snapshot is passed to KeyRules.Touched; nil means the present one.
func (row *Command) TouchedKeys(keys, words [][]byte, snapshot any) [][]byte {
	if row.Keys.Touched == nil {
		keys, _ = row.KeysOf(keys, words)
		return keys
	}
	if snapshot == nil {
		snapshot = row.Keys.Snapshot()
	}
	return row.Keys.Touched(keys, words, snapshot)
}

// plainKeys is like KeysOf for a row whose keys are found by its grammar alone.
func (row *Command) plainKeys(keys, words [][]byte) [][]byte {
	first, last, step := row.KeyPositions()
	if first == 0 {
		return keys
	}
	if last < 0 {
		last = len(words) - 1
	}
	for i := first; i <= last; i += step {
		keys = append(keys, words[i])
	}
	return keys
}

var commandDocs = Command{
	Name: "command|docs", Group: "server", Category: "connection", Since: "7.0.0",
	Complexity: "O(N) in the number of names", Flags: commandFlags, Cost: Unbounded,
	Tips: []string{"nondeterministic_output_order"}, Summary: "Describes commands for people.",
	Args:  []Arg{Word("command-name").Optional().Many()},
	Reply: "A map from names to documentation: summary, since, group, complexity, arguments, subcommands.",
	Run: func(c *Call) error {
		rows := c.Server.Table.Rows
		if names := c.Many(); len(names) > 0 {
			rows = nil
			for _, name := range names {
				if row := c.Server.Table.Named(name); row != nil {
					rows = append(rows, row)
				}
			}
		}
		writeDocs(c, rows)
		return nil
	},
}

func writeDocs(c *Call, rows []*Command) {
	c.Out.Map(len(rows))
	for _, row := range rows {
		c.Out.BulkString(row.Name)
		row.writeDocs(c)
	}
}

func (row *Command) writeDocs(c *Call) {
	fields := 4
	if len(row.Args) > 0 {
		fields++
	}
	if len(row.Subs) > 0 {
		fields++
	}
	c.Out.Map(fields)
	for _, f := range [][2]string{{"summary", row.Summary}, {"since", row.Since}, {"group", row.Group},
		{"complexity", row.Complexity}} {
		c.Out.BulkString(f[0])
		c.Out.BulkString(f[1])
	}
	if len(row.Args) > 0 {
		c.Out.BulkString("arguments")
		c.Out.Array(len(row.Args))
		for i := range row.Args {
			row.Args[i].writeDocs(c)
		}
	}
	if len(row.Subs) > 0 {
		c.Out.BulkString("subcommands")
		writeDocs(c, row.Subs)
	}
}

// argTypes are Redis's names for the kinds of arguments.
var argTypes = map[argKind]string{
	keyArg: "key", wordArg: "string", intArg: "integer", choiceArg: "oneof", flagArg: "pure-token",
}

func (a *Arg) docsType() string {
	if a.period || a.tick > 0 {
		return argTypes[wordArg] // it may have a unit
	}
	return argTypes[a.kind]
}

// writeDocs describes an argument as COMMAND DOCS does. redis-cli derives its hints from that.
func (a *Arg) writeDocs(c *Call) {
	switch {
	case a.pairedWith != "":
		a.writePairDocs(c)
		return
	case a.second != nil:
		a.writeSecondDocs(c)
		return
	}
	flags := a.docsFlags()
	led := a.Tokens != nil && a.kind != choiceArg
	fields := 2
	for _, there := range []bool{a.kind == keyArg, led, flags != nil, a.kind == choiceArg} {
		if there {
			fields++
		}
	}
	c.Out.Map(fields)
	c.Out.BulkString("name")
	c.Out.BulkString(a.Name)
	c.Out.BulkString("type")
	c.Out.BulkString(a.docsType())
	if a.kind == keyArg {
		c.Out.BulkString("key_spec_index")
		c.Out.Int(0)
	}
	if led {
		c.Out.BulkString("token")
		c.Out.BulkString(a.Tokens[0])
	}
	if flags != nil {
		c.Out.BulkString("flags")
		writeStatusSet(c, flags)
	}
	if a.kind == choiceArg {
		c.Out.BulkString("arguments")
		c.Out.Array(len(a.Tokens))
		for _, token := range a.Tokens {
			f := Flag(token)
			if a.operand != "" {
				f = Word(a.operand).After(token)
			}
			f.optional = false
			f.writeDocs(c)
		}
	}
}

func (a *Arg) docsFlags() (flags []string) {
	if a.optional {
		flags = append(flags, "optional")
	}
	if a.repeats {
		flags = append(flags, "multiple")
	}
	return flags
}

// writeSecondDocs describes an option with two words.
func (a *Arg) writeSecondDocs(c *Call) {
	first := *a
	first.Tokens, first.optional, first.second = nil, false, nil
	c.Out.Map(5)
	c.Out.BulkString("name")
	c.Out.BulkString(strings.ToLower(a.Tokens[0]))
	c.Out.BulkString("type")
	c.Out.BulkString("block")
	c.Out.BulkString("token")
	c.Out.BulkString(a.Tokens[0])
	c.Out.BulkString("flags")
	writeStatusSet(c, []string{"optional"})
	c.Out.BulkString("arguments")
	c.Out.Array(2)
	first.writeDocs(c)
	a.second.writeDocs(c)
}

// writePairDocs describes an argument that is pairs of a key and a word.
func (a *Arg) writePairDocs(c *Call) {
	c.Out.Map(4)
	c.Out.BulkString("name")
	c.Out.BulkString(a.Name + "_" + a.pairedWith)
	c.Out.BulkString("type")
	c.Out.BulkString("block")
	c.Out.BulkString("flags")
	writeStatusSet(c, []string{"multiple"})
	c.Out.BulkString("arguments")
	c.Out.Array(2)
	for _, part := range []Arg{Key(a.Name), Word(a.pairedWith)} {
		part.writeDocs(c)
	}
}
