package option

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// Flags makes a flag of each option.
func (l *List) Flags(program string) *pflag.FlagSet {
	f := pflag.NewFlagSet(program, pflag.ContinueOnError)
	f.SortFlags = false
	for _, o := range l.options {
		if _, is := o.Kind.(fixed); !is {
			f.Var(o.Kind, o.Name, o.Help)
		}
	}
	return f
}

// Parse reads a command line. An unknown option is refused with the name that was probably meant.
func (l *List) Parse(f *pflag.FlagSet, args []string) error {
	err := f.Parse(args)
	if unknown, is := err.(*pflag.NotExistError); is {
		name := unknown.GetSpecifiedName()
		if meant := l.nearest(name); meant != "" {
			return fmt.Errorf("unknown option --%s; did you mean --%s?", name, meant)
		}
		return fmt.Errorf("unknown option --%s; --help lists the options", name)
	}
	return err
}

// EnvironmentName is the variable of an option: prefix CELLSERVER_ and option tcp-backlog make
// CELLSERVER_TCP_BACKLOG.
func EnvironmentName(prefix, option string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(option, "-", "_"))
}

// Environment takes the options that the command line did not set from variables with a prefix. It
// returns the variables that name no option, each with the one that was probably meant, if any.
//
// A value that begins with tcp:// is ignored: for every service in a namespace Kubernetes sets
// variables such as NAME_PORT=tcp://ADDRESS:PORT, and NAME_SERVICE_HOST and the like, which are not
// reported either.
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
		case o == nil || flag == nil || o.FlagOnly:
			unknown = append(unknown, l.guess(prefix, name, option))
		case flag.Changed:
		default:
			if err := o.Kind.Set(value); err != nil && o.Secret {
				return nil, fmt.Errorf("%s: %w", name, err)
			} else if err != nil {
				return nil, fmt.Errorf("%s=%s: %w", name, value, err)
			}
		}
	}
	return unknown, nil
}

// isKubernetes recognizes the rest of the names of the variables that Kubernetes makes for a
// service.
func isKubernetes(rest string) bool {
	return strings.HasPrefix(rest, "SERVICE_") || strings.HasPrefix(rest, "PORT_")
}

func (l *List) guess(prefix, variable, option string) string {
	if meant := l.nearest(option); meant != "" {
		return fmt.Sprintf("%s (did you mean %s?)", variable, EnvironmentName(prefix, meant))
	}
	return variable
}

// nearest is the option whose name differs least from a word, by at most two letters or a third of
// them; "" if there is none.
func (l *List) nearest(word string) string {
	best, least := "", max(2, len(word)/3)+1
	for _, o := range l.options {
		if d := distance(word, o.Name); d < least {
			best, least = o.Name, d
		}
	}
	return best
}

// distance is the number of letters to insert, to remove or to replace that make one word of
// another (Levenshtein's).
func distance(a, b string) int {
	const longest = 64 // no option's name is longer, and a word may be
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
