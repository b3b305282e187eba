package command

import (
	"fmt"
	"strings"

	"cellserver/internal/store"
)

// Table finds rows by name.
type Table struct {
	Rows       []*Command
	ByName     map[string]*Command
	abilities  store.Abilities
	byLongName map[string]*Command // those of byName whose names are longer than maxName: somebody has renamed them
}

// NewTable works out what follows from the rows, in rows of its own: those that are listed are
// every table's, and are not changed. A row that needs more than the store can do refuses its
// calls. The error names the first field that is wrong or missing.
func NewTable(rows []*Command, can store.Abilities) (*Table, error) {
	t := &Table{ByName: make(map[string]*Command), abilities: can}
	for _, listed := range rows {
		row, err := t.add(listed, nil)
		if err != nil {
			return nil, err
		}
		t.Rows = append(t.Rows, row)
	}
	return t, nil
}

func (t *Table) add(listed, parent *Command) (*Command, error) {
	if err := listed.check(); err != nil {
		return nil, err
	}
	if t.ByName[listed.Name] != nil {
		return nil, fmt.Errorf("%s: Name: it is there twice", listed.Name)
	}
	row := new(Command)
	*row = *listed
	row.Parent = parent
	row.Grammar = newGrammar(row)
	row.FirstKey, _, _ = row.KeyPositions()
	row.access = row.accesses()
	t.ByName[row.Name], row.Number = row, len(t.ByName)
	if parent != nil {
		row.Traits |= parent.Traits // what is said of a container is true of what it contains
	}
	if lacked := store.Abilities(row.Traits>>needsAt) &^ t.abilities; lacked != 0 {
		row.Run = func(*Call) error { return Refusal("ERR " + MissingAbility(lacked)) }
	}
	row.Subs = nil
	for _, listed := range listed.Subs {
		sub, err := t.add(listed, row)
		if err != nil {
			return nil, err
		}
		row.Subs = append(row.Subs, sub)
	}
	return row, nil
}

// maxName bounds a command's name, so that it can be folded to lower case on the stack.
const maxName = 32

// LookupCache is the row that a session's latest call named, and how it was spelled: most clients say
// the same command again and again, and comparing a few bytes is a quarter of the cost of looking
// them up.
type LookupCache struct {
	row     *Command
	spelled [maxName]byte
	length  int
}

// LookupCached is Lookup, with a memory of one name.
func (t *Table) LookupCached(name []byte, r *LookupCache) *Command {
	if string(name) == string(r.spelled[:r.length]) && r.row != nil {
		return r.row
	}
	row := t.Lookup(name)
	if row != nil && len(name) <= maxName {
		r.row, r.length = row, copy(r.spelled[:], name)
	}
	return row
}

// Lookup finds the row of a name in any case, nil if there is none.
func (t *Table) Lookup(name []byte) *Command {
	var folded [maxName]byte
	if len(name) > maxName {
		return t.lookupLong(name)
	}
	for i, b := range name {
		if 'A' <= b && b <= 'Z' {
			b += 'a' - 'A'
		}
		folded[i] = b
	}
	row := t.ByName[string(folded[:len(name)])]
	if row != nil && row.Parent != nil {
		return nil // "client|id" is no command of its own
	}
	return row
}

// Find is the row of a call, the subcommand's where there is one; nil if there is no such command.
func (t *Table) Find(words [][]byte) *Command { return t.Lookup(words[0]).Subcommand(words) }

// Subcommand is the row of a call whose first word names row: the subcommand's where there is one.
func (row *Command) Subcommand(words [][]byte) *Command {
	if row != nil && row.Subs != nil && len(words) > 1 {
		return row.sub(words[1])
	}
	return row
}

// UnknownError says why a call has no row, in Redis's order: unknown command, unknown subcommand. named
// is what its first word names.
func (named *Command) UnknownError(words [][]byte) error {
	if named != nil && named.Traits&HidesSubcommands == 0 {
		return errUnknownSub(named, words[1])
	}
	return errUnknown(words)
}

// sub finds a subcommand by its name in any case.
func (row *Command) sub(name []byte) *Command {
	if len(name) > maxName {
		return nil // which may be a megabyte, and would be looked at once for each
	}
	for _, sub := range row.Subs {
		if _, word, _ := strings.Cut(sub.Name, "|"); strings.EqualFold(string(name), word) {
			return sub
		}
	}
	return nil
}

// TakesMany says whether a call of the row may have any number of words, each of which counts.
func (row *Command) TakesMany() bool {
	return len(row.Args) > 0 && row.Args[len(row.Args)-1].many
}
