// Package acl is Redis 7's access control lists: the language of rules, users, and whether a user
// may make a call. It is pure: it reads no file, keeps no connection and knows no clock. Users are
// values that never change: a rule makes another user.
package acl

import (
	"slices"
	"strings"
)

// Command is what rules know of one of a server's commands.
type Command struct {
	Name       string   // in lower case; "client|id" for a subcommand
	Parent     int      // number of the container, for a subcommand; else -1
	Categories []string // without @
}

// Commands are those that a server has: rules are about them. A command's number is its place in
// the list.
type Commands struct {
	list       []Command
	byName     map[string]int
	subs       [][]int // of each container
	categories []category
}

// category is a name for some of the commands.
type category struct {
	name    string
	members []int
}

// names are the categories in Redis's order, with ours behind @string. Rules may name each, also
// where no command is in it: so a file of Redis's can be read.
var names = []string{
	"keyspace", "read", "write", "set", "sortedset", "list", "hash", "string", "ratelimit", "bitmap", "hyperloglog", "geo",
	"stream",
	"pubsub", "admin", "fast", "slow", "blocking", "dangerous", "connection", "transaction", "scripting",
}

// Categories are the names of all categories, in the order in which they are shown.
func Categories() []string { return slices.Clone(names) }

// NewCommands takes the list of commands; a container stands before its subcommands.
func NewCommands(list []Command) *Commands {
	c := &Commands{list: list, byName: make(map[string]int), subs: make([][]int, len(list)),
		categories: make([]category, len(names))}
	for i, name := range names {
		c.categories[i].name = name
	}
	for n, command := range list {
		c.byName[command.Name] = n
		if command.Parent >= 0 {
			c.subs[command.Parent] = append(c.subs[command.Parent], n)
		}
		for _, name := range command.Categories {
			i := slices.Index(names, name)
			c.categories[i].members = append(c.categories[i].members, n)
		}
	}
	return c
}

// Used are the categories that there are commands in.
func (c *Commands) Used() (used []string) {
	for _, cat := range c.categories {
		if len(cat.members) > 0 {
			used = append(used, cat.name)
		}
	}
	return used
}

// In lists the commands in a category by its name in any case; not ok if there is no such category.
func (c *Commands) In(name string) (commands []string, ok bool) {
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

// find is the number of a command by its name in any case.
func (c *Commands) find(name string) (n int, ok bool) {
	n, ok = c.byName[strings.ToLower(name)]
	return n, ok
}

// bits are a set of commands, by number.
type bits []uint64

func (b bits) has(n int) bool { return b[n/64]&(1<<(n%64)) != 0 }

func (b bits) set(n int, on bool) {
	if on {
		b[n/64] |= 1 << (n % 64)
	} else {
		b[n/64] &^= 1 << (n % 64)
	}
}

// count is how many of some commands are in the set.
func (b bits) count(commands []int) (n int) {
	for _, command := range commands {
		if b.has(command) {
			n++
		}
	}
	return n
}
