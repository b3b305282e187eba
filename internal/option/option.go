// Package option describes the settings of a server as values: a name, the values it may have, a
// default, help, and what happens when it is changed at run time. Command-line flags, environment
// variables, CONFIG GET and CONFIG SET, --help and the configuration page of the documentation all
// derive from one List of them.
package option

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Option is one setting.
type Option struct {
	Name   string // that of redis.conf's directive, where there is one
	Group  string // of --help and of the configuration page
	Help   string // one line, without the default and the range
	Kind   Kind   // which values it may have, and the one that it has
	Change Change // what CONFIG SET may do with it

	Secret    bool // the value is not shown in --help, in errors, or in a log
	Protected bool // CONFIG SET changes it only for clients with that right, as Redis's enable-protected-configs
	FlagOnly  bool // CONFIG GET does not show it

	initial string // the default
}

// Default is the value that the option had when it was added to its list, as a person writes it.
func (o *Option) Default() string { return o.initial }

// Change says what CONFIG SET may do with an option.
type Change uint8

const (
	AtStart   Change = iota // it is chosen at the start; CONFIG SET accepts the value that it has
	Immutable               // the same, but CONFIG SET refuses any value, as Redis does for some of its directives
	Live                    // CONFIG SET changes it
)

// List is the options of a server, in the order in which they are shown. Its methods are safe for
// use by many goroutines once the server runs; Add and OnChange are for the time before.
type List struct {
	mu      sync.Mutex
	options []*Option
	byName  map[string]*Option
	hooks   []hook
}

// hook is what makes changed options take effect.
type hook struct {
	names []string
	apply func() error
}

// Add appends options to the list. It returns an error if an option is incomplete, or if its name
// is taken.
func (l *List) Add(options ...*Option) error {
	if l.byName == nil {
		l.byName = make(map[string]*Option)
	}
	for _, o := range options {
		switch {
		case o.Name == "" || o.Name != strings.ToLower(o.Name):
			return fmt.Errorf("option %q: the name must be in lower case", o.Name)
		case o.Kind == nil || o.Help == "" || o.Group == "":
			return fmt.Errorf("option %s: it needs a Kind, a Help and a Group", o.Name)
		case l.byName[o.Name] != nil:
			return fmt.Errorf("option %s: there are two of that name", o.Name)
		}
		o.initial = o.Kind.String()
		l.options = append(l.options, o)
		l.byName[o.Name] = o
	}
	return nil
}

// OnChange has a function called after CONFIG SET has changed any of the named options, once
// however many of them it changed. If it returns an error, all options are set back, and it is
// called again.
func (l *List) OnChange(apply func() error, names ...string) {
	for _, name := range names {
		if l.byName[name] == nil {
			panic("option: OnChange of " + name + ", which is not in the list")
		}
	}
	l.hooks = append(l.hooks, hook{names, apply})
}

// Lookup finds an option by its name in any case, nil if there is none.
func (l *List) Lookup(name string) *Option { return l.byName[strings.ToLower(name)] }

// All returns the options in their order.
func (l *List) All() []*Option { return slices.Clone(l.options) }

// Hold calls a function while no option is read or changed.
func (l *List) Hold(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// Value is an option's name and value, as CONFIG GET shows them.
type Value struct{ Name, Value string }

// Matching returns the options whose names match, for CONFIG GET.
func (l *List) Matching(matches func(name string) bool) (found []Value) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.options {
		if !o.FlagOnly && matches(o.Name) {
			found = append(found, Value{o.Name, o.Kind.Show()})
		}
	}
	return found
}

// Show returns the value of an option as CONFIG GET shows it, "" if there is no such option.
func (l *List) Show(name string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if o := l.Lookup(name); o != nil {
		return o.Kind.Show()
	}
	return ""
}

// The reasons for which CONFIG SET is refused, in Redis's words.
var (
	ErrUnknown   = errors.New("unknown option")
	ErrImmutable = errors.New("can't set immutable config")
	ErrProtected = errors.New("can't set protected config")
	ErrDuplicate = errors.New("duplicate parameter")
)

// ChangeError is why Change changed nothing, and the option that is to blame.
type ChangeError struct {
	Name   string
	Reason error
}

func (e *ChangeError) Error() string { return e.Name + ": " + e.Reason.Error() }
func (e *ChangeError) Unwrap() error { return e.Reason }

// Set changes several options at once, or none of them. A name may be in any case; privileged
// clients may change protected options. The error is a *ChangeError.
func (l *List) Set(pairs []Value, privileged bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	changes, err := l.changes(pairs, privileged)
	if err != nil {
		return err
	}
	done := 0
	for ; done < len(changes) && err == nil; done++ {
		err = changes[done].make()
	}
	applied := 0
	if err == nil {
		applied, err = l.apply(changes)
	}
	if err == nil {
		return nil
	}
	for _, c := range slices.Backward(changes[:done]) {
		_ = c.option.Kind.Set(c.from) // which it was
	}
	for _, h := range l.hooks[:applied] {
		if h.concerns(changes) != "" {
			_ = h.apply() // as before
		}
	}
	return err
}

// change is an option that is to have another value.
type change struct {
	option   *Option
	from, to string
}

// changes finds the options, before any is changed.
func (l *List) changes(pairs []Value, privileged bool) (list []change, err error) {
	for _, p := range pairs {
		o := l.Lookup(p.Name)
		switch {
		case o == nil || o.FlagOnly:
			return nil, &ChangeError{p.Name, ErrUnknown}
		case o.Change == Immutable:
			return nil, &ChangeError{o.Name, ErrImmutable}
		case o.Protected && !privileged:
			return nil, &ChangeError{o.Name, ErrProtected}
		case slices.ContainsFunc(list, func(c change) bool { return c.option == o }):
			return nil, &ChangeError{o.Name, ErrDuplicate}
		}
		list = append(list, change{o, o.Kind.Show(), p.Value})
	}
	return list, nil
}

func (c change) make() error {
	if c.option.Change == AtStart {
		if c.to != c.from {
			return &ChangeError{c.option.Name, ErrImmutable}
		}
		return nil
	}
	err := c.option.Kind.Check(c.to)
	if err == nil {
		err = c.option.Kind.Set(c.to)
	}
	if err != nil {
		return &ChangeError{c.option.Name, err}
	}
	return nil
}

// apply makes the changes take effect. It returns how many hooks it has gone through.
func (l *List) apply(changes []change) (applied int, err error) {
	for i, h := range l.hooks {
		name := h.concerns(changes)
		if name == "" {
			continue
		}
		if err := h.apply(); err != nil {
			return i + 1, &ChangeError{name, err}
		}
	}
	return len(l.hooks), nil
}

// concerns returns the first changed option that the hook is about, "" if there is none.
func (h hook) concerns(changes []change) string {
	for _, c := range changes {
		if slices.Contains(h.names, c.option.Name) {
			return c.option.Name
		}
	}
	return ""
}
