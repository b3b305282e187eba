package redisconf

import (
	"fmt"

	"github.com/spf13/pflag"

	"cellserver/internal/option"
)

// Flags adds a flag for each directive of Redis that is not an option of this server, so that command
// lines for redis-server work. As in a file, the flag is ignored, or refused with advice. Flags adds
// the names of ignored flags to ignored.
func Flags(f *pflag.FlagSet, ignored *[]string) {
	add := func(name string) {
		if f.Lookup(name) == nil {
			f.Var(&foreign{name, ignored}, name, "")
		}
	}
	for _, g := range harmless {
		for _, name := range g.names {
			add(name)
		}
	}
	for _, p := range promises {
		add(p.name)
	}
}

// foreign is the value of a flag that Flags adds.
type foreign struct {
	name    string
	ignored *[]string
}

func (v *foreign) Set(text string) error {
	if verdict := judge(v.name, []string{text}); verdict.advice != "" {
		return &option.Conflict{Name: v.name, Reason: fmt.Sprintf("--%s: %s", v.name, verdict.advice)}
	}
	*v.ignored = append(*v.ignored, v.name)
	return nil
}

func (v *foreign) String() string { return "" }
func (v *foreign) Type() string   { return "value" }
