package transfer

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"cellserver/internal/option"
	"cellserver/internal/resp"
)

// bounds are the longest key and value that a server accepts. A folder must not have keys that its
// server would refuse: the server would also refuse most calls on them.
type bounds struct {
	key   int // bytes
	value int // bytes
}

func defaultBounds() bounds { return bounds{key: 65536, value: resp.DefaultLimits().Bulk} }

// define defines the options, which are also the server's.
func (b *bounds) define(f *pflag.FlagSet) {
	f.IntVar(&b.key, "max-key-size", b.key, "with --dir: longer keys are left out")
	f.Var(option.Size(&b.value, 1<<10, 512<<20), "proto-max-bulk-len", "with --dir: longer values are left out")
}

// refusal returns why a key is out of bounds, or "" if it is not.
func (b *bounds) refusal(it *item) string {
	switch {
	case len(it.key) > b.key:
		return fmt.Sprintf("longer than --max-key-size %d", b.key)
	case len(it.value) > b.value:
		return fmt.Sprintf("whose values are longer than --proto-max-bulk-len %s", option.FormatSize(b.value))
	}
	return ""
}

// fromEnvironment sets options from the server's environment. It ignores invalid values, because only
// the server needs all of its environment.
func fromEnvironment(f *pflag.FlagSet, prefix string, names ...string) {
	for _, name := range names {
		variable := prefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		if text, ok := os.LookupEnv(variable); ok {
			_ = f.Lookup(name).Value.Set(text)
		}
	}
}
