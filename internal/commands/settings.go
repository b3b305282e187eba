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
	"cellserver/internal/commands/pubsub"
	"cellserver/internal/commands/tracking"
	"cellserver/internal/option"
	"cellserver/internal/resp"
	"cellserver/internal/stats"
)

// Settings are the values of the commands' options.
type Settings struct {
	MaxBulk, MaxQuery        int // bytes of a word, and of a call or of calls that wait
	MaxKeySize               int // bytes
	MaxLogLimit              int // the largest limit of a CL.SLIDINGLOG
	MaxHolders               int // of a key's leases
	MaxTracked               int // keys that are remembered for clients that cache them, 0 for any number
	MaxMemory                int // bytes, 0 for no bound
	OOMDecision              string
	MaxClientMemory          client.MemoryLimit // that clients may hold together
	MaxUnauthenticatedMemory client.MemoryLimit // that those may who have not logged in

	Events string // of keys that are published, by Redis's letters

	SlowerThan  int // microseconds from which SLOWLOG keeps a call, -1 for none
	SlowCalls   int // that SLOWLOG keeps
	Spikes      int // milliseconds from which LATENCY remembers a call, 0 for none
	Tracking    string
	Percentiles []float64

	Password  string      // of the user default
	Users     [][]string  // each a name and its rules
	Channels  string      // what new users may use of them
	ACLLog    int         // entries that ACL LOG keeps
	Renamed   [][2]string // commands, and their names
	Debug     string      // which clients may use DEBUG: yes for all, local for those on this machine, no for none
	Protected string      // which may change the settings that are protected
}

// NewSettings returns the defaults.
func NewSettings() *Settings {
	words := resp.DefaultLimits()
	s := &Settings{
		MaxBulk: words.Bulk, MaxQuery: words.Query, MaxKeySize: 65536,
		MaxLogLimit: 100_000, MaxHolders: 10_000, MaxTracked: tracking.DefaultMaxTracked,
		SlowerThan: 10_000, SlowCalls: 128, Tracking: "yes",
		MaxClientMemory:          client.MemoryLimit{Percent: client.DefaultClientPercent},
		MaxUnauthenticatedMemory: client.MemoryLimit{Auto: true},
		OOMDecision:              "error", Channels: "resetchannels", ACLLog: 128, Debug: "no", Protected: "no",
	}
	s.Percentiles, _ = admin.ParsePercentiles("50 99 99.9")
	return s
}

// The groups of options.
const (
	Limits      = "Limits"
	Memory      = "Memory"
	Diagnostics = "Diagnostics"
	Access      = "Access"
)

// Options describes the settings.
func (s *Settings) Options() []*option.Option {
	return slices.Concat(s.limitOptions(), s.diagnosticOptions(), s.accessOptions(), fixedOptions())
}

func (s *Settings) limitOptions() []*option.Option {
	return []*option.Option{
		{Name: "client-query-buffer-limit", Group: Limits, Kind: option.Size(&s.MaxQuery, 64<<10, 1<<30), Change: option.Live,
			Help: "bytes of a command, or of pipelined commands that wait; a client that sends more is disconnected"},
		{Name: "proto-max-bulk-len", Group: Limits, Kind: option.Size(&s.MaxBulk, 1<<10, 512<<20), Change: option.Live,
			Help: "bytes in an argument of a command"},
		{Name: "max-key-size", Group: Limits, Kind: option.Number(&s.MaxKeySize, 1, 64<<20), Help: "bytes in a key"},
		{Name: "max-log-limit", Group: Limits, Kind: option.Number(&s.MaxLogLimit, 1, 10_000_000),
			Help: "the largest limit of CL.SLIDINGLOG, which keeps 16 bytes for each call in its window"},
		{Name: "max-holders", Group: Limits, Kind: option.Number(&s.MaxHolders, 1, 100_000),
			Help: "holders that may have leases of one key"},
		{Name: "tracking-table-max-keys", Group: Limits, Kind: option.Number(&s.MaxTracked, 0, 1<<30), Change: option.Live,
			Help: "keys remembered for clients that cache them (CLIENT TRACKING); 0 for any number, in 256 MiB"},

		{Name: "maxmemory", Group: Memory, Kind: option.Size(&s.MaxMemory, 0, 1<<50), Change: option.Live,
			Help: "bytes of memory beyond which calls that may need more are refused (OOM); 0 for no bound"},
		{Name: "maxmemory-clients", Group: Memory, Kind: client.MemoryLimitKind{To: &s.MaxClientMemory}, Change: option.Live,
			Help: "memory that all clients may hold together (input, replies, messages, queued calls); the largest are disconnected; " +
				"percent are of maxmemory, without it of the machine or container; 0 for no bound"},
		{Name: "maxmemory-unauthenticated", Group: Memory,
			Kind:   client.MemoryLimitKind{To: &s.MaxUnauthenticatedMemory, Auto: true},
			Change: option.Live,
			Help: "memory for connections that have not logged in, where there is a password, and TLS handshakes; " +
				"the oldest are disconnected; auto is 1/16 of maxmemory, without it 16mb"},

		{Name: "oom-decision", Group: Memory, Kind: option.Choice(&s.OOMDecision, "error", "limit"), Change: option.Live,
			Help: "how a limiter answers, beyond maxmemory, about a key that it would have to add: an error (OOM), or limited"},
	}
}

func (s *Settings) diagnosticOptions() []*option.Option {
	return []*option.Option{
		{Name: "notify-keyspace-events", Group: Diagnostics, Kind: keyEvents{&s.Events}, Change: option.Live,
			Help: "events of keys that are published, by Redis's letters: KEA for all"},
		{Name: "slowlog-log-slower-than", Group: Diagnostics, Kind: option.Number(&s.SlowerThan, -1, command.MaxInt),
			Change: option.Live,
			Help:   "microseconds from which SLOWLOG keeps a call; -1 for none; below 1000, every call is measured, which costs about 0.1 us each"},
		{Name: "slowlog-max-len", Group: Diagnostics, Kind: option.Number(&s.SlowCalls, 0, stats.MaxSlowCalls),
			Change: option.Live,
			Help:   "calls that SLOWLOG keeps"},
		{Name: "latency-monitor-threshold", Group: Diagnostics, Kind: option.Number(&s.Spikes, 0, command.MaxInt),
			Change: option.Live,
			Help:   "milliseconds from which LATENCY records a call; 0 for none"},
		{Name: "latency-tracking", Group: Diagnostics, Kind: yesNo{&s.Tracking}, Change: option.Live,
			Help: "count by command how long calls take; quick ones are sampled"},
		{Name: "latency-tracking-info-percentiles", Group: Diagnostics, Kind: percentiles{&s.Percentiles},
			Change: option.Live,
			Help:   "percentiles of these times that INFO shows"},
	}
}

func (s *Settings) accessOptions() []*option.Option {
	return []*option.Option{
		{Name: "requirepass", Group: Access, Kind: secret{&s.Password}, Change: option.Live, Secret: true,
			Help: "password of the user default; better in a file, or in the environment"},
		{Name: "user", Group: Access, Kind: users{&s.Users}, Secret: true, FlagOnly: true,
			Help: "a user and its rules, such as 'alice on #HASH ~app:* +@all'; may be repeated; in the environment, one per line"},
		{Name: "acl-pubsub-default", Group: Access, Kind: option.Choice(&s.Channels, "resetchannels", "allchannels"),
			Change: option.Live,
			Help:   "which channels new users may use"},
		{Name: "acllog-max-len", Group: Access, Kind: option.Number(&s.ACLLog, 0, access.MaxLogEntries), Change: option.Live,
			Help: "denied commands and failed logins that ACL LOG keeps"},
		{Name: "rename-command", Group: Access, Kind: renames{&s.Renamed}, FlagOnly: true,
			Help: `a command and its new name, or "" to disable it: 'FLUSHALL ""'; may be repeated`},
		{Name: "enable-debug-command", Group: Access, Kind: option.Choice(&s.Debug, "no", "yes", "local"),
			Change: option.Immutable,
			Help:   "which clients may use DEBUG: none, all, or those on this machine"},
		{Name: "enable-protected-configs", Group: Access, Kind: option.Choice(&s.Protected, "no", "yes", "local"),
			Change: option.Immutable,
			Help:   "which clients may change protected settings with CONFIG SET: none, all, or those on this machine"},
	}
}

// fixedOptions are what tools ask Redis about, and what is true of this server without such a
// setting.
func fixedOptions() []*option.Option {
	return []*option.Option{
		{Name: "save", Group: Memory, Kind: option.Fixed(""), Change: option.Live, Help: "nothing is saved"},
		{Name: "appendonly", Group: Memory, Kind: option.Fixed("no"), Change: option.Live, Help: "nothing is saved"},
		{Name: "maxmemory-policy", Group: Memory, Kind: option.Fixed("noeviction"), Change: option.Live,
			Help: "nothing is evicted"},
		{Name: "daemonize", Group: Diagnostics, Kind: option.Fixed("no"), Change: option.Immutable,
			Help: "it runs in the foreground"},
	}
}

// heed makes the settings take effect, and has their changes do so.
func (f *families) heed(s *Settings, in *Instance) error {
	in.MaxKeySize, f.limiters.MaxLogLimit, f.limiters.MaxHolders = s.MaxKeySize, s.MaxLogLimit, s.MaxHolders
	f.admin.Debug, f.admin.Protected = s.Debug, s.Protected
	in.Stats.SlowLog.MaxEntries = s.SlowCalls
	share := func() { in.Clients.UpdateLimits(in.Memory.Most(), in.Memory.There) }
	in.Clients.SetMaxMemory(s.MaxClientMemory)
	in.Clients.SetMaxMemoryUnauthenticated(s.MaxUnauthenticatedMemory)
	effects := []struct {
		take  func() error
		names []string
	}{
		{done(func() { setLimits(in, s) }), []string{"client-query-buffer-limit", "proto-max-bulk-len"}},
		{done(func() { in.Tracking.SetMaxKeys(s.MaxTracked) }), []string{"tracking-table-max-keys"}},
		{done(func() { f.setMaxMemory(in, int64(s.MaxMemory)) }), []string{"maxmemory"}},
		{done(func() { in.Clients.SetMaxMemory(s.MaxClientMemory); share() }), []string{"maxmemory-clients"}},
		{done(func() { in.Clients.SetMaxMemoryUnauthenticated(s.MaxUnauthenticatedMemory); share() }),
			[]string{"maxmemory-unauthenticated"}},
		{done(func() { f.limiters.LimitWhenFull.Store(s.OOMDecision == "limit") }), []string{"oom-decision"}},
		{func() error { return in.Notifier.Set(s.Events) }, []string{"notify-keyspace-events"}},
		{done(func() { logSlowerThan(in, int64(s.SlowerThan)) }), []string{"slowlog-log-slower-than"}},
		{done(func() { in.Stats.SlowLog.SetMaxEntries(s.SlowCalls) }), []string{"slowlog-max-len"}},
		{done(func() { in.Stats.Latency.Threshold.Store(int64(s.Spikes)) }), []string{"latency-monitor-threshold"}},
		{done(func() { in.Stats.TrackLatency(s.Tracking == "yes") }), []string{"latency-tracking"}},
		{done(func() { in.Stats.ShowPercentiles(s.Percentiles) }), []string{"latency-tracking-info-percentiles"}},
		{done(func() { f.accounts.Channels.Store(s.Channels == "allchannels") }), []string{"acl-pubsub-default"}},
		{done(func() { f.accounts.DeniedLog.SetCapacity(s.ACLLog) }), []string{"acllog-max-len"}},
	}
	for _, e := range effects {
		if err := e.take(); err != nil {
			return err
		}
		f.admin.Options.OnChange(e.take, e.names...)
	}
	f.admin.Options.OnChange(func() error { return f.accounts.SetPassword(s.Password) }, "requirepass")
	for _, r := range s.Renamed {
		if err := in.Table.Rename(r[0], r[1]); err != nil {
			return fmt.Errorf("--rename-command: %w", err)
		}
	}
	return f.accounts.Configure(s.Password, s.Users)
}

// done is an effect that cannot fail.
func done(f func()) func() error {
	return func() error { f(); return nil }
}

func setLimits(in *Instance, s *Settings) {
	l := resp.DefaultLimits()
	l.Bulk, l.Query = s.MaxBulk, s.MaxQuery
	in.Limits.Store(&l)
}

// setMaxMemory changes how many bytes may be used; 0 is any number.
func (f *families) setMaxMemory(in *Instance, bytes int64) {
	in.Memory.Set(bytes)
	in.Clients.UpdateLimits(bytes, in.Memory.There)
	exceeded := in.Memory.Exceeded()
	in.Hooks.Set(command.Full, exceeded)
	if exceeded {
		f.admin.Log.Info("maxmemory is exceeded: calls that may need memory are refused",
			"used", in.Memory.Used(), "maxmemory", bytes)
	}
}

// logSlowerThan sets from how many microseconds on SLOWLOG keeps calls. If that is less than a quick
// call takes, all calls are timed.
func logSlowerThan(in *Instance, usec int64) {
	in.Stats.SlowLog.SlowerThan.Store(usec)
	in.Hooks.Set(command.Timed, 0 <= usec && usec < stats.FastCallMax)
}

// yesNo is a setting that Redis reads in any case, and refuses in other words than a choice.
type yesNo struct{ to *string }

func (y yesNo) Check(text string) error {
	if text = strings.ToLower(text); text != "yes" && text != "no" {
		return errors.New("argument must be 'yes' or 'no'")
	}
	return nil
}

func (y yesNo) Set(text string) error {
	if y.Check(text) != nil {
		return errors.New("it must be one of yes, no")
	}
	*y.to = strings.ToLower(text)
	return nil
}

func (y yesNo) String() string { return *y.to }
func (y yesNo) Show() string   { return *y.to }
func (y yesNo) Type() string   { return "yes|no" }
func (y yesNo) Range() string  { return "yes, no" }

// percentiles are numbers from 0 to 100, separated by spaces.
type percentiles struct{ to *[]float64 }

func (p percentiles) Set(text string) error {
	list, err := admin.ParsePercentiles(text)
	if err != nil {
		return errors.New(`it must be numbers from 0 to 100 with spaces between, such as "50 99 99.9"`)
	}
	*p.to = list
	return nil
}

func (p percentiles) Check(text string) error {
	_, err := admin.ParsePercentiles(text)
	return err
}

func (p percentiles) String() string {
	var words []string
	for _, percent := range *p.to {
		words = append(words, admin.ShownPercent(percent))
	}
	return strings.Join(words, " ")
}

func (p percentiles) Show() string  { return p.String() }
func (p percentiles) Type() string  { return "percentiles" }
func (p percentiles) Range() string { return "0 to 100, separated by spaces" }

// keyEvents are the letters of notify-keyspace-events, kept as Redis shows them.
type keyEvents struct{ to *string }

func (k keyEvents) Set(text string) error {
	canonical, err := pubsub.ParseEvents(text)
	if err == nil {
		*k.to = canonical
	}
	return err
}

func (k keyEvents) Check(text string) error {
	_, err := pubsub.ParseEvents(text)
	return err
}

func (k keyEvents) String() string { return *k.to }
func (k keyEvents) Show() string   { return *k.to }
func (k keyEvents) Type() string   { return "letters" }
func (k keyEvents) Range() string  { return "any of A" + pubsub.EventLetters }

// secret is a password: CONFIG GET shows it, as Redis does, and --help does not.
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

// users are lines of a user's name and its rules. The rules are checked when there are commands
// that they are about.
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

// renames are pairs of a command's name and another for it.
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
