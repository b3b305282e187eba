package policy

import (
	"errors"
	"fmt"
	"strings"

	"cellserver/internal/option"
)

// Settings are the values of the family's options.
type Settings struct {
	Path   string // of a file or folder with policies; empty if there are none
	Prefix string // of the names of the keys of policies
}

// Options describes the settings.
func (s *Settings) Options() []*option.Option {
	return []*option.Option{
		{Name: "policies", Group: option.Limits, Kind: option.Text(&s.Path, "path"),
			Help: "file with policies for CL.TAKE, in YAML, or folder with such files (*.yaml, *.yml)",
			Use:  "Set it to keep limits in files on the server, in place of arguments of each call."},
		{Name: "policies-prefix", Group: option.Limits, Kind: option.Text(&s.Prefix, "text"),
			Help: "beginning of the names of the keys of policies",
			Use:  "Set it if other keys may have names such as api:{alice}:throttle."},
	}
}

// Begin applies the settings, and reads the policies for the first time. It refuses a prefix with braces: in a cluster,
// the text in the first braces of a key chooses its slot, and this text has to be the subject.
func (f *Family) Begin(s *Settings) error {
	if strings.ContainsRune(s.Prefix, '{') {
		return errors.New("--policies-prefix: the prefix may not contain {: all keys of a subject must have the same slot")
	}
	f.prefix = s.Prefix
	if err := f.Files.Load(); err != nil {
		return fmt.Errorf("--policies: %w", err)
	}
	return nil
}
