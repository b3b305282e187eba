// Package option describes the settings of a server as values: a name, the values it may have, a
// default, help, and what happens when it is changed at run time. Command-line flags, environment
// variables, CONFIG GET and CONFIG SET, --help and the configuration page of the documentation are
// all derived from one List of them.
package option

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Option is a setting.
type Option struct {
	Name   string // the name of the directive in redis.conf, where there is one
	Group  string // heading in --help and on the configuration page
	Help   string // one line, without the default and the range
	Use    string // a sentence: when to set it; of options that Redis does not have
	Kind   Kind   // the values that it may have, and its current value
	Change Change // what CONFIG SET may do with it

	Secret    bool // the value does not appear in --help, in errors and in logs
	Protected bool // CONFIG SET changes it only for privileged clients: see enable-protected-configs
	FlagOnly  bool // CONFIG GET does not show it
	Words     bool // the value is several words, which need no quotes in a configuration file
	Joined    bool // several lines of a configuration file set the value together

	defaultValue string // the default
}

// Default returns the value that the option had when it was added to its list, as Kind.String
// formats it.
func (o *Option) Default() string { return o.defaultValue }

// explained returns the help, with the sentence on its use.
func (o *Option) explained() string {
	if o.Use == "" {
		return o.Help
	}
	return o.Help + ". " + o.Use
}

// Change is what CONFIG SET may do with an option.
type Change uint8

const (
	AtStart   Change = iota // the value is fixed at the start; CONFIG SET accepts the current value only
	Immutable               // the same, but CONFIG SET refuses every value, as Redis does for some directives
	Live                    // CONFIG SET changes it
)

// Conflict is the error of an option whose value contradicts another option's.
type Conflict struct{ Name, Reason string }

func (e *Conflict) Error() string { return e.Reason }

// List is the list of a server's options, in the order in which they are shown. Add, OnChange,
// Flags, Parse and Environment must be called before the server runs. The other methods are safe
// for use by many goroutines.
type List struct {
	mu      sync.Mutex
	options []*Option
	byName  map[string]*Option
	hooks   []hook
}

// hook applies changed options.
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
		o.defaultValue = o.Kind.String()
		l.options = append(l.options, o)
		l.byName[o.Name] = o
	}
	return nil
}

// OnChange registers a function that is called after CONFIG SET has changed one or more of the
// named options. If it returns an error, all options get their previous values, and it is called
// again.
func (l *List) OnChange(apply func() error, names ...string) {
	for _, name := range names {
		if l.byName[name] == nil {
			panic("option: OnChange of " + name + ", which is not in the list")
		}
	}
	l.hooks = append(l.hooks, hook{names, apply})
}

// Lookup returns the option with a name, in upper or lower case, or nil if there is none.
func (l *List) Lookup(name string) *Option { return l.byName[strings.ToLower(name)] }

// All returns the options in their order.
func (l *List) All() []*Option { return slices.Clone(l.options) }

// WithLock calls f while no other goroutine reads or changes an option.
func (l *List) WithLock(f func()) {
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

// The reasons for which CONFIG SET refuses a change, in Redis's words.
var (
	ErrUnknown   = errors.New("unknown option")
	ErrImmutable = errors.New("can't set immutable config")
	ErrProtected = errors.New("can't set protected config")
	ErrDuplicate = errors.New("duplicate parameter")
)

// ChangeError is the error of Set: an option that cannot be changed, and the reason.
type ChangeError struct {
	Name   string
	Reason error
}

func (e *ChangeError) Error() string { return e.Name + ": " + e.Reason.Error() }
func (e *ChangeError) Unwrap() error { return e.Reason }

// Set changes several options, or nothing if one cannot be changed. Names may be in upper or
// lower case. Only a privileged caller may change protected options. The error is a *ChangeError.
func (l *List) Set(pairs []Value, privileged bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	changes, err := l.changes(pairs, privileged)
	if err != nil {
		return err
	}
	done := 0
	for ; done < len(changes) && err == nil; done++ {
		err = changes[done].set()
	}
	applied := 0
	if err == nil {
		applied, err = l.apply(changes)
	}
	if err == nil {
		return nil
	}
	for _, c := range slices.Backward(changes[:done]) {
		_ = c.option.Kind.Set(c.from) // this cannot fail: it was the value
	}
	for _, h := range l.hooks[:applied] {
		if h.trigger(changes) != "" {
			_ = h.apply() // this cannot fail: it succeeded with these values
		}
	}
	return err
}

// change is the change of an option, with its values before and after.
type change struct {
	option   *Option
	from, to string
}

// changes finds the options, and checks whether each may be changed.
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

// set changes the value of the option.
func (c change) set() error {
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

// apply calls the hooks of the changed options. It returns the number of hooks that it has handled.
func (l *List) apply(changes []change) (applied int, err error) {
	for i, h := range l.hooks {
		name := h.trigger(changes)
		if name == "" {
			continue
		}
		if err := h.apply(); err != nil {
			return i + 1, &ChangeError{name, err}
		}
	}
	return len(l.hooks), nil
}

// trigger returns the name of the first changed option for which the hook is registered, "" if
// there is none.
func (h hook) trigger(changes []change) string {
	for _, c := range changes {
		if slices.Contains(h.names, c.option.Name) {
			return c.option.Name
		}
	}
	return ""
}
