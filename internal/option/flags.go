package option

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// Flags returns a flag set with a flag for each option whose kind is not Fixed.
func (l *List) Flags(program string) *pflag.FlagSet {
	f := pflag.NewFlagSet(program, pflag.ContinueOnError)
	f.SortFlags = false
	for _, o := range l.options {
		if !o.IsFixed() {
			f.Var(o.Kind, o.Name, o.Help)
		}
	}
	return f
}

// Parse parses a command line. The error for an unknown option suggests a similar name.
func (l *List) Parse(f *pflag.FlagSet, args []string) error {
	err := f.Parse(args)
	var conflict *Conflict
	if errors.As(err, &conflict) {
		return conflict // without the value, which pflag's error contains, and which may be a password
	}
	if unknown, is := err.(*pflag.NotExistError); is {
		name := unknown.GetSpecifiedName()
		if short := unknown.GetSpecifiedShortnames(); short != "" {
			return fmt.Errorf("unknown option -%s: options begin with --; --help lists them", short)
		}
		if meant := l.Nearest(name); meant != "" {
			return fmt.Errorf("unknown option --%s; did you mean --%s?", name, meant)
		}
		return fmt.Errorf("unknown option --%s; --help lists the options", name)
	}
	return err
}

// EnvironmentName returns the environment variable of an option: with the prefix CELLSERVER_, that
// of tcp-backlog is CELLSERVER_TCP_BACKLOG.
func EnvironmentName(prefix, option string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(option, "-", "_"))
}

// Environment sets options from environment variables with a prefix, unless the command line has
// set them, and marks their flags as changed. It returns the variables with the prefix that name no
// option, each with a suggestion if there is a similar one.
//
// For every service in a namespace, Kubernetes sets variables such as NAME_PORT=tcp://ADDRESS:PORT
// and NAME_SERVICE_HOST. They are neither used nor returned.
func (l *List) Environment(f *pflag.FlagSet, prefix string, environ []string) (unknown []string, err error) {
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		rest, ours := strings.CutPrefix(name, prefix)
		if !ours || strings.HasPrefix(value, "tcp://") || isKubernetes(rest) {
			continue
		}
		option := strings.ReplaceAll(strings.ToLower(rest), "_", "-")
		o, flag := l.Lookup(option), f.Lookup(option)
		switch {
		case o == nil || flag == nil:
			unknown = append(unknown, l.suggest(prefix, name, option))
		case flag.Changed:
		default:
			if err := o.Kind.Set(value); err != nil && o.Secret {
				return nil, fmt.Errorf("%s: %w", name, err)
			} else if err != nil {
				return nil, fmt.Errorf("%s=%s: %w", name, value, err)
			}
			flag.Changed = true
		}
	}
	return unknown, nil
}

// isKubernetes reports whether Kubernetes sets the variable for a service. rest is the name of the
// variable without the prefix.
func isKubernetes(rest string) bool {
	return strings.HasPrefix(rest, "SERVICE_") || strings.HasPrefix(rest, "PORT_")
}

// suggest returns the name of an unknown variable, with the most similar one that exists.
func (l *List) suggest(prefix, variable, option string) string {
	if meant := l.Nearest(option); meant != "" {
		return fmt.Sprintf("%s (did you mean %s?)", variable, EnvironmentName(prefix, meant))
	}
	return variable
}

// Nearest returns the name of the option that is most similar to a word, "" if there is none.
func (l *List) Nearest(word string) string {
	names := make([]string, len(l.options))
	for i, o := range l.options {
		names[i] = o.Name
	}
	return Nearest(word, names)
}

// Nearest returns the name that is most similar to a word, "" if there is none. At most two letters may
// differ, or a third of the letters of a longer word. If no name is so similar, it returns the shortest
// name that begins with the word, of three letters or more.
func Nearest(word string, names []string) string {
	best, least := "", max(2, len(word)/3)+1
	for _, name := range names {
		if d := distance(word, name); d < least {
			best, least = name, d
		}
	}
	if best != "" || len(word) < 3 {
		return best
	}
	for _, name := range names {
		if strings.HasPrefix(name, word) && (best == "" || len(name) < len(best)) {
			best = name
		}
	}
	return best
}

// distance returns the Levenshtein distance between two words: the number of letters to insert,
// remove or replace to turn one into the other.
func distance(a, b string) int {
	const longest = 64 // no option has a longer name, so longer words are not similar to any
	if len(a) > longest || len(b) > longest {
		return longest
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
