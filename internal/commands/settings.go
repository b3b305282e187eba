package commands

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/commands/access"
	"cellserver/internal/commands/admin"
	"cellserver/internal/commands/limiter"
	"cellserver/internal/commands/persistence"
	"cellserver/internal/commands/policy"
	"cellserver/internal/commands/pubsub"
	"cellserver/internal/commands/tracking"
	"cellserver/internal/option"
	"cellserver/internal/resp"
)

// Settings are the values of the options of commands: each family's, and the options that apply to
// every call.
type Settings struct {
	Limiter       limiter.Settings
	Policies      policy.Settings
	Tracking      tracking.Settings
	Notifications pubsub.Settings
	Persistence   persistence.Settings
	Admin         admin.Settings
	Access        access.Settings

	MaxBulk, MaxQuery        int                // bytes of an argument, and of a call or of unanswered input
	MaxKeySize               int                // bytes
	MaxMemory                int                // bytes, 0 for no bound
	MaxClientMemory          client.MemoryLimit // of all clients together
	MaxUnauthenticatedMemory client.MemoryLimit // of all clients together that have not logged in
	Renamed                  [][2]string        // pairs of a command and its new name
}

// NewSettings returns the defaults.
func NewSettings() *Settings {
	words := resp.DefaultLimits()
	return &Settings{
		Limiter: limiter.NewSettings(), Tracking: tracking.NewSettings(), Persistence: persistence.NewSettings(),
		Admin: admin.NewSettings(), Access: access.NewSettings(), MaxBulk: words.Bulk, MaxQuery: words.Query,
		MaxKeySize:               65536,
		MaxClientMemory:          client.MemoryLimit{Percent: client.DefaultClientPercent},
		MaxUnauthenticatedMemory: client.MemoryLimit{Auto: true},
	}
}

// Options describes the settings.
func (s *Settings) Options() []*option.Option {
	return slices.Concat(
		s.limitOptions(), s.memoryOptions(), s.Limiter.Options(), s.Policies.Options(), s.Tracking.Options(),
		s.Notifications.Options(),
		s.Persistence.Options(), s.Admin.Options(), s.Access.Options(), fixedOptions(), inertOptions(),
		[]*option.Option{
			{Name: "rename-command", Group: option.Access, Kind: renames{&s.Renamed}, FlagOnly: true, Words: true,
				Help: `a command and its new name, or "" to disable it: 'FLUSHALL ""'; may be repeated`},
		},
	)
}

func (s *Settings) limitOptions() []*option.Option {
	return []*option.Option{
		{Name: "client-query-buffer-limit", Group: option.Limits, Kind: option.Size(&s.MaxQuery, 64<<10, 1<<30),
			Change: option.Live,
			Help:   "bytes of a command, or of pipelined commands that wait; a client that sends more is disconnected"},
		{Name: "proto-max-bulk-len", Group: option.Limits, Kind: option.Size(&s.MaxBulk, 1<<10, 512<<20),
			Change: option.Live, Help: "bytes in an argument of a command"},
		{Name: "max-key-size", Group: option.Limits, Kind: option.Number(&s.MaxKeySize, 1, 64<<20),
			Help: "bytes in a key",
			Use:  "Raise it if names of keys are longer, such as URLs."},
	}
}

func (s *Settings) memoryOptions() []*option.Option {
	return []*option.Option{
		{Name: "maxmemory", Group: option.Memory, Kind: option.Size(&s.MaxMemory, 0, 1<<50), Change: option.Live,
			Help: "bytes of memory beyond which calls that may need more are refused (OOM); 0 for no bound; " +
				"in a container with a memory limit, two thirds of that if it is not set"},
		{Name: "maxmemory-clients", Group: option.Memory, Kind: client.MemoryLimitKind{To: &s.MaxClientMemory},
			Change: option.Live,
			Help: "memory that all clients may hold together (input, replies, messages, queued calls); the largest are disconnected; " +
				"percent are of maxmemory, without it of the machine or container; 0 for no bound"},
		{Name: "maxmemory-unauthenticated", Group: option.Memory,
			Kind: client.MemoryLimitKind{To: &s.MaxUnauthenticatedMemory, Auto: true}, Change: option.Live,
			Help: "memory for connections that have not logged in, where there is a password, and TLS handshakes; " +
				"the oldest are disconnected; auto is 1/16 of maxmemory, without it 16mb",
			Use: "Raise it if many clients log in at once and some are disconnected."},
	}
}

// fixedOptions returns options of Redis that tools read with CONFIG GET. They have one value, which
// describes this server.
func fixedOptions() []*option.Option {
	return []*option.Option{
		{Name: "maxmemory-policy", Group: option.Memory, Kind: option.Fixed("noeviction"), Change: option.Live,
			Help: "nothing is evicted"},
		{Name: "daemonize", Group: option.Diagnostics, Kind: option.Fixed("no"), Change: option.Immutable,
			Help: "it runs in the foreground"},
	}
}

// apply makes the settings take effect, now and whenever they change.
func (f *families) apply(s *Settings, in *Instance) error {
	in.MaxKeySize = s.MaxKeySize
	limitClients := func() {
		in.Clients.SetMaxMemory(s.MaxClientMemory)
		in.Clients.SetMaxMemoryUnauthenticated(s.MaxUnauthenticatedMemory)
		in.Clients.UpdateLimits(in.Memory.Limit(), in.Memory.Available)
	}
	limitClients()
	effects := slices.Concat(
		f.limiters.Effects(&s.Limiter, in.SetMaxWaiting), f.tracking.Effects(&s.Tracking),
		in.Notifier.Effects(&s.Notifications),
		f.persistence.Effects(&s.Persistence), f.admin.Effects(&s.Admin, &in.Server), f.accounts.Effects(&s.Access),
		[]option.Effect{
			option.On(func() { setLimits(in, s) }, "client-query-buffer-limit", "proto-max-bulk-len"),
			option.On(func() { f.setMaxMemory(in, int64(s.MaxMemory)) }, "maxmemory"),
			option.On(limitClients, "maxmemory-clients", "maxmemory-unauthenticated"),
		})
	if err := f.admin.Options.Apply(effects...); err != nil {
		return err
	}
	for _, r := range s.Renamed {
		if err := in.Table.Rename(r[0], r[1]); err != nil {
			return fmt.Errorf("--rename-command: %w", err)
		}
	}
	if err := f.policies.Begin(&s.Policies); err != nil {
		return err
	}
	f.admin.Options.OnChange(func() error { return f.accounts.SetPassword(s.Access.Password) }, "requirepass")
	return f.accounts.Configure(s.Access.Password, s.Access.Users)
}

func setLimits(in *Instance, s *Settings) {
	l := resp.DefaultLimits()
	l.Bulk, l.Query = s.MaxBulk, s.MaxQuery
	in.Limits.Store(&l)
}

// setMaxMemory sets maxmemory, in bytes; 0 means no bound.
func (f *families) setMaxMemory(in *Instance, bytes int64) {
	in.Memory.Set(bytes)
	in.Clients.UpdateLimits(bytes, in.Memory.Available)
	exceeded := in.Memory.Exceeded()
	in.Hooks.Set(command.Full, exceeded)
	if exceeded {
		f.admin.Log.Warn("maxmemory is exceeded: calls that may need memory are refused",
			"used", in.Memory.Used(), "maxmemory", bytes)
	}
}

// renames are pairs of a command's name and its new name.
type renames struct{ to *[][2]string }

func (r renames) Set(text string) error {
	words := strings.Fields(text)
	if len(words)%2 != 0 {
		return errors.New(`it must be a command and a name for it, or "" for none, such as 'FLUSHALL ""'`)
	}
	for ; len(words) > 0; words = words[2:] {
		*r.to = append(*r.to, [2]string{words[0], strings.Trim(words[1], `"'`)})
	}
	return nil
}

func (r renames) Check(string) error { return nil }
func (r renames) String() string     { return "" }
func (r renames) Show() string       { return "" }
func (r renames) Type() string       { return "names" }
func (r renames) Range() string      { return "" }
