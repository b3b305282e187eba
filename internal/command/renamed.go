package command

import (
	"fmt"
	"slices"
	"strings"
)

// Commands that go by another name here, or by none (--rename-command). ACL rules, errors and
// COMMAND go by the name that they had.

// longestCommand bounds another name, in bytes.
const longestCommand = 1024

// Rename has a command go by another name, or by none if that is "". Nobody may look commands up
// meanwhile.
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

// lookupLong is Lookup for a name that is longer than any that a command has unless it was renamed.
func (t *Table) lookupLong(name []byte) *Command {
	if t.byLongName == nil || len(name) > longestCommand {
		return nil
	}
	if row := t.byLongName[strings.ToLower(string(name))]; row != nil && row.Parent == nil {
		return row
	}
	return nil
}
