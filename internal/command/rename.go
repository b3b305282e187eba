package command

import (
	"fmt"
	"slices"
	"strings"
)

// This file renames and removes commands (--rename-command). ACL rules, errors and COMMAND still
// use the old name.

// longestCommand bounds the length of a new name, in bytes.
const longestCommand = 1024

// Rename gives a command another name, or removes it if to is "". It must not run at the same time as
// a lookup.
func (t *Table) Rename(from, to string) error {
	from, to = strings.ToLower(from), strings.ToLower(to)
	row := t.ByName[from]
	switch {
	case row == nil || row.Parent != nil:
		return fmt.Errorf("there is no command %s", from)
	case to != "" && t.ByName[to] != nil:
		return fmt.Errorf("there is a command %s already", to)
	case strings.Contains(to, "|") || len(to) > longestCommand:
		return fmt.Errorf("a command's name has no | in it, and at most %d bytes", longestCommand)
	}
	t.setName(row, from, to)
	for _, sub := range row.Subs {
		_, word, _ := strings.Cut(sub.Name, "|")
		if to == "" {
			t.setName(sub, from+"|"+word, "")
		} else {
			t.setName(sub, from+"|"+word, to+"|"+word)
		}
	}
	if to == "" {
		t.Rows = slices.DeleteFunc(t.Rows, func(other *Command) bool { return other == row })
	}
	return nil
}

func (t *Table) setName(row *Command, from, to string) {
	delete(t.ByName, from)
	delete(t.byLongName, from)
	if to == "" {
		return
	}
	t.ByName[to] = row
	if len(to) > maxName {
		if t.byLongName == nil {
			t.byLongName = make(map[string]*Command)
		}
		t.byLongName[to] = row
	}
}

// NameOf returns the present name of a command; the old one if the command was removed.
func (t *Table) NameOf(command string) string {
	for name, row := range t.ByName {
		if row.Name == command {
			return name
		}
	}
	return command
}

// lookupLong is like Lookup for names longer than maxName, which only renamed commands have.
func (t *Table) lookupLong(name []byte) *Command {
	if t.byLongName == nil || len(name) > longestCommand {
		return nil
	}
	if row := t.byLongName[strings.ToLower(string(name))]; row != nil && row.Parent == nil {
		return row
	}
	return nil
}
