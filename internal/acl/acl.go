// Package acl implements the access control lists of Redis 7: the language of rules, users, and the
// check whether a user may make a call. It does no I/O, and knows neither connections nor the time.
// Users are immutable: applying rules to a user makes a new one.
package acl

import (
	"slices"
	"strings"
)

// Command describes a command of the server, as far as rules refer to it.
type Command struct {
	Name       string   // in lower case; "client|id" for a subcommand
	Parent     int      // number of the container of a subcommand, otherwise -1
	Categories []string // names without the @
}

// Commands is the list of a server's commands that rules refer to. The number of a command is its
// index in the list.
type Commands struct {
	list       []Command
	byName     map[string]int
	subs       [][]int // the subcommands of each container
	categories []category
}

// category is a named group of commands.
type category struct {
	name    string
	members []int
}

// categoryNames lists Redis's categories in Redis's order, and ours after "string". Rules may name
// any of them, even one without commands here, so that files written for Redis can be read.
var categoryNames = []string{
	"keyspace", "read", "write", "set", "sortedset", "list", "hash", "string", "ratelimit", "policy", "bitmap",
	"hyperloglog", "geo", "stream",
	"pubsub", "admin", "fast", "slow", "blocking", "dangerous", "connection", "transaction", "scripting",
}

// Categories returns the names of all categories, in the order in which ACL CAT lists them.
func Categories() []string { return slices.Clone(categoryNames) }

// NewCommands makes a Commands from a list in which each container comes before its subcommands.
func NewCommands(list []Command) *Commands {
	c := &Commands{list: list, byName: make(map[string]int), subs: make([][]int, len(list)),
		categories: make([]category, len(categoryNames))}
	for i, name := range categoryNames {
		c.categories[i].name = name
	}
	for n, command := range list {
		c.byName[command.Name] = n
		if command.Parent >= 0 {
			c.subs[command.Parent] = append(c.subs[command.Parent], n)
		}
		for _, name := range command.Categories {
			i := slices.Index(categoryNames, name)
			c.categories[i].members = append(c.categories[i].members, n)
		}
	}
	return c
}

// NonEmptyCategories returns the names of the categories that contain commands.
func (c *Commands) NonEmptyCategories() (used []string) {
	for _, cat := range c.categories {
		if len(cat.members) > 0 {
			used = append(used, cat.name)
		}
	}
	return used
}

// CommandsIn returns the names of the commands in a category. The name of the category may be in
// any case; ok is false if it does not exist.
func (c *Commands) CommandsIn(name string) (commands []string, ok bool) {
	cat := c.category(name)
	if cat == nil {
		return nil, false
	}
	for _, n := range cat.members {
		commands = append(commands, c.list[n].Name)
	}
	return commands, true
}

func (c *Commands) category(name string) *category {
	for i := range c.categories {
		if strings.EqualFold(c.categories[i].name, name) {
			return &c.categories[i]
		}
	}
	return nil
}

// find returns the number of the command with a name, in any case.
func (c *Commands) find(name string) (n int, ok bool) {
	n, ok = c.byName[strings.ToLower(name)]
	return n, ok
}

// bits is a set of commands, by number.
type bits []uint64

func (b bits) has(n int) bool { return b[n/64]&(1<<(n%64)) != 0 }

func (b bits) set(n int, on bool) {
	if on {
		b[n/64] |= 1 << (n % 64)
	} else {
		b[n/64] &^= 1 << (n % 64)
	}
}

// count returns how many of the commands are in the set.
func (b bits) count(commands []int) (n int) {
	for _, command := range commands {
		if b.has(command) {
			n++
		}
	}
	return n
}
