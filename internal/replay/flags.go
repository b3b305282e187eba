package replay

import (
	"github.com/spf13/pflag"

	"cellserver/internal/option"
	"cellserver/internal/weblog"
)

// Flags describes the options of the subcommand replay or suggest, for the manual page and the completions.
func Flags(name string) (flags []option.Flag) {
	set := new(options).replayFlags(&Environment{})
	if name == "suggest" {
		set = new(suggestion).flags(&Environment{})
	}
	words := map[string][]string{"clients": {"give-up", "retry"}, "hide": {"auto", "yes", "no"},
		"format": weblog.Formats()}
	set.VisitAll(func(f *pflag.Flag) {
		one := option.Flag{Name: f.Name, Type: f.Value.Type(), Help: f.Usage, Words: words[f.Name]}
		switch {
		case f.Name == "html" || f.Name == "instead-of":
			one.Type = option.PathType
		case one.Type == "bool":
			one.Type = ""
		}
		flags = append(flags, one)
	})
	return flags
}
