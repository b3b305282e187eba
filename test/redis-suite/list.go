package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
)

// list is a file that names tests, with reasons:
//
//	# a comment at the head of the file
//
//	unit/multi
//	  name of a test
//	  name of another test
//	    why it need not pass
type list struct {
	path    string
	head    string // comments
	entries []entry
}

type entry struct {
	test
	reason string
}

func readList(path string) (*list, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	l := &list{path: path}
	unit := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		name := strings.TrimLeft(line, " ")
		switch depth := len(line) - len(name); {
		case name == "":
		case depth == 0 && name[0] == '#':
			l.head += line + "\n"
		case depth == 0:
			unit = name
		case depth == 2 && unit != "":
			l.entries = append(l.entries, entry{test: test{unit, name}})
		case depth == 4 && len(l.entries) > 0:
			last := &l.entries[len(l.entries)-1]
			last.reason = strings.TrimPrefix(last.reason+" "+name, " ")
		default:
			return nil, fmt.Errorf("%s: invalid line: %q", path, line)
		}
	}
	return l, nil
}

func (l *list) String() string {
	var out bytes.Buffer
	out.WriteString(l.head)
	unit := ""
	for _, e := range l.entries {
		if e.unit != unit {
			unit = e.unit
			fmt.Fprintf(&out, "\n%s\n", unit)
		}
		fmt.Fprintf(&out, "  %s\n", e.name)
		if e.reason != "" {
			fmt.Fprintf(&out, "    %s\n", e.reason)
		}
	}
	return out.String()
}

func (l *list) write() error { return os.WriteFile(l.path, []byte(l.String()), 0o644) }

// of returns the list's entries about these units.
func (l *list) of(units []string) *list {
	return l.where(func(t test) bool { return slices.Contains(units, t.unit) })
}

// where returns the entries whose tests are to be kept.
func (l *list) where(keep func(test) bool) *list {
	kept := &list{path: l.path, head: l.head}
	for _, e := range l.entries {
		if keep(e.test) {
			kept.entries = append(kept.entries, e)
		}
	}
	return kept
}

func (l *list) has(t test) bool {
	return slices.ContainsFunc(l.entries, func(e entry) bool { return e.test == t })
}

func (l *list) tests() (all []test) {
	for _, e := range l.entries {
		all = append(all, e.test)
	}
	return all
}
