package command

import (
	"fmt"
	"slices"
	"strings"

	"cellserver/internal/store"
)

// Table finds rows by name.
type Table struct {
	Rows       []*Command
	ByName     map[string]*Command
	abilities  store.Abilities
	byLongName map[string]*Command // commands that were renamed to names longer than maxName
}

// NewTable makes a table of copies of the rows, and computes the fields that are derived from them.
// The rows themselves are not changed: several tables may share them. Calls of a row that needs an
// ability which the store lacks are refused. The error names the first field that is wrong or
// missing.
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
		return nil, fmt.Errorf("%s: Name: two rows have this name", listed.Name)
	}
	row := new(Command)
	*row = *listed
	row.Parent = parent
	row.Grammar = newGrammar(row)
	row.FirstKey, _, _ = row.KeyPositions()
	row.access, row.oneStep = row.accesses(), row.oneStepWords()
	t.ByName[row.Name], row.Number = row, len(t.ByName)
	if parent != nil {
		row.Traits |= parent.Traits // subcommands have the traits of their container
	}
	if lacked := store.Abilities(row.Traits>>needsAt) &^ t.abilities; lacked != 0 {
		row.Run = func(*Call) error { return Refusal("ERR " + MissingAbility(lacked)) }
	}
	row.NotInMulti = errNotInMulti
	if t.abilities&store.IsExternal != 0 {
		row.restrictToNamedKeys()
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

// restrictToNamedKeys adapts the row to a store.External. A transaction over such a store
// touches only keys that are named, of one database, so a call that touches others is not queued.
func (row *Command) restrictToNamedKeys() {
	if row.NotExternal != "" {
		err := errExternal(row, row.NotExternal)
		row.Run = func(*Call) error { return err }
	}
	anyKey := row.Traits&AnyKey != 0 && row.KeyAccess == "" && row.Flags&(ReadOnly|Write) != 0
	if anyKey || row.Traits&SelectsDatabase != 0 {
		row.Flags |= NoMulti
		row.NotInMulti = Refusal(fmt.Sprintf("ERR %s is not possible in a transaction if the keys are in another program (--store): "+
			"a transaction touches only keys that are named, of one database", row.Upper()))
	}
	row.Traits &^= AnyKey
}

// maxName bounds a command's name, so that it can be folded to lower case on the stack.
const maxName = 32

// LookupCache holds the row of a session's latest call, and the name as the client spelled it. Most
// clients repeat the same command, and comparing a few bytes costs a quarter of a lookup.
type LookupCache struct {
	row     *Command
	spelled [maxName]byte
	length  int
}

// LookupCached is Lookup with a cache of one name.
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

// Lookup returns the row of a name in any case, or nil if there is none.
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
		return nil // "client|id" names a subcommand, not a command
	}
	return row
}

// Find returns the row of a call, or of its subcommand if it has one; nil if there is no such
// command.
func (t *Table) Find(words [][]byte) *Command { return t.Lookup(words[0]).Subcommand(words) }

// Subcommand returns the row of a call whose first word names row: the row of its subcommand, or row
// itself if it has no subcommands or the call names none; nil if there is no such subcommand.
func (row *Command) Subcommand(words [][]byte) *Command {
	if row != nil && row.Subs != nil && len(words) > 1 {
		return row.sub(words[1])
	}
	return row
}

// UnknownError returns the refusal of a call that has no row: an unknown command or subcommand. named
// is the row that its first word names, nil if there is none.
func (named *Command) UnknownError(words [][]byte) error {
	switch {
	case named == nil:
		return ErrUnknown(words)
	case named.Admit.UnknownSub != nil:
		return named.Admit.UnknownSub(words)
	}
	return errUnknownSubcommand(named, words[1])
}

// sub returns the subcommand of a name in any case, or nil.
func (row *Command) sub(name []byte) *Command {
	if len(name) > maxName {
		return nil // a name may be a megabyte long, and would be compared with every subcommand
	}
	for _, sub := range row.Subs {
		if _, word, _ := strings.Cut(sub.Name, "|"); strings.EqualFold(string(name), word) {
			return sub
		}
	}
	return nil
}

// TakesMany reports whether the last argument of the row repeats, so that each further word of a call
// adds to its cost.
func (row *Command) TakesMany() bool {
	return slices.ContainsFunc(row.Args, func(a Arg) bool { return a.repeats })
}
