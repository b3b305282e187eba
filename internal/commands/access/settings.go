package access

import (
	"strings"

	"cellserver/internal/option"
)

// Settings are the values of the family's options.
type Settings struct {
	Password string     // of the user "default"
	Users    [][]string // each is a name and its rules
	Channels string     // the channels of new users: resetchannels (none) or allchannels
	ACLLog   int        // entries that ACL LOG keeps
}

// NewSettings returns the defaults.
func NewSettings() Settings { return Settings{Channels: "resetchannels", ACLLog: 128} }

// Options describes the settings.
func (s *Settings) Options() []*option.Option {
	return []*option.Option{
		{Name: "requirepass", Group: option.Access, Kind: secret{&s.Password}, Change: option.Live, Secret: true,
			Help: "password of the user default; better in a file, or in the environment"},
		{Name: "user", Group: option.Access, Kind: users{&s.Users}, Secret: true, FlagOnly: true, Words: true,
			Help: "a user and its rules, such as 'alice on #HASH ~app:* +@all'; may be repeated; in the environment, one per line"},
		{Name: "acl-pubsub-default", Group: option.Access,
			Kind:   option.Choice(&s.Channels, "resetchannels", "allchannels"),
			Change: option.Live, Help: "which channels new users may use"},
		{Name: "acllog-max-len", Group: option.Access, Kind: option.Number(&s.ACLLog, 0, maxLogEntries),
			Change: option.Live,
			Help:   "denied commands and failed logins that ACL LOG keeps"},
	}
}

// Effects returns the effects of the settings that may change at run time. Configure applies the
// users and the password at the start.
func (as *Accounts) Effects(s *Settings) []option.Effect {
	return []option.Effect{
		option.On(func() { as.Channels.Store(s.Channels == "allchannels") }, "acl-pubsub-default"),
		option.On(func() { as.DeniedLog.setCapacity(s.ACLLog) }, "acllog-max-len"),
	}
}

// secret is the option.Kind of a password: CONFIG GET shows it, as in Redis, and --help does not.
type secret struct{ to *string }

func (s secret) Set(text string) error { *s.to = text; return nil }
func (s secret) Check(string) error    { return nil }
func (s secret) Show() string          { return *s.to }
func (s secret) Type() string          { return "password" }
func (s secret) Range() string         { return "" }

func (s secret) String() string {
	if *s.to == "" {
		return ""
	}
	return "(redacted)"
}

// users is the option.Kind of a list of users: a line for each, with its name and rules. Rules name
// commands, so they are checked later, by Configure, when the table of commands exists.
type users struct{ to *[][]string }

func (u users) Set(text string) error {
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) > 0 {
			*u.to = append(*u.to, words)
		}
	}
	return nil
}

func (u users) Check(string) error { return nil }
func (u users) String() string     { return "" }
func (u users) Show() string       { return "" }
func (u users) Type() string       { return "rules" }
func (u users) Range() string      { return "" }
