package commands

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"log/slog"

	"cellserver/internal/acl"
	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/commands/access"
	"cellserver/internal/commands/explain"
	"cellserver/internal/commands/persistence"
	"cellserver/internal/commands/policy"
	"cellserver/internal/commands/pubsub"
	"cellserver/internal/maxmemory"
	"cellserver/internal/meter"
	"cellserver/internal/metric"
	"cellserver/internal/option"
	"cellserver/internal/session"
	"cellserver/internal/store"
)

// ACLFile is the file that ACL LOAD and ACL SAVE read and write.
type ACLFile = access.ACLFile

// Folder is the folder in which keys survive a restart.
type Folder = persistence.Folder

// PolicyFiles are the policies in force, and their files, which are read again.
type PolicyFiles = policy.Files

// Post has a report posted, in JSON. It never blocks.
type Post = func(id string, body []byte)

// Config is the configuration of an Instance. Fields that are zero have defaults.
type Config struct {
	Store store.Store
	// NewLocal returns an empty store in memory that decides while Store fails, with --store-fails
	// local. It is needed if Store may block.
	NewLocal func() store.Store
	Folder   Folder    // in which keys survive a restart; nil if they do not
	Version  string    // of cellserver
	Settings *Settings // the defaults if nil
	// Options are all options of the server, for CONFIG. They include the options of Settings, which are
	// the default.
	Options   *option.List
	Port      int // shown by INFO
	Log       *slog.Logger
	ClientLog *slog.Logger       // for messages that clients cause, which may be very frequent; by default, Log
	Stop      func()             // called by SHUTDOWN, which is refused if it is nil
	ACLFile   access.ACLFile     // nil if there is none
	Policies  *PolicyFiles       // by default, there are none
	Info      []command.InfoPart // of INFO, after the parts of the commands
	Metrics   []metric.Group     // after the metrics of the commands
	Post      Post               // posts reports of policies with notify; nil if there is no webhook
	// Rewrite writes the configuration file, with the given users, in lines as --user has them. It is nil
	// if there is no such file.
	Rewrite func(users []string) error
	Turns   *meter.MaxCPUTime // of the turns of event loops, shown by INFO; nil if not measured
	Holds   *meter.MaxCPUTime // of the holds of locks, shown by INFO; nil if not measured
}

// complete sets the defaults.
func (c *Config) complete() error {
	if c.Settings == nil {
		c.Settings = NewSettings()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.ClientLog = cmp.Or(c.ClientLog, c.Log)
	if c.Policies == nil {
		c.Policies = new(PolicyFiles)
	}
	if c.Options != nil {
		return nil
	}
	c.Options = new(option.List)
	return c.Options.Add(c.Settings.Options()...)
}

// Instance is the state that the sessions of one server share.
type Instance = session.Instance

// New returns an instance over a store. It returns an error if the settings are inconsistent, or name
// something that does not exist.
func New(c Config) (*Instance, error) {
	in, _, err := newInstance(c)
	return in, err
}

func newInstance(c Config) (*Instance, *families, error) {
	if err := c.complete(); err != nil {
		return nil, nil, err
	}
	f, memory := newFamilies(), new(maxmemory.Bound)
	in := &Instance{
		Store: c.Store, ClientLog: c.ClientLog, Clients: client.NewRegistry(c.ClientLog), Memory: memory,
		Blocked: &f.connection.Blocked, Watches: &f.transactions, Monitors: &f.admin.Monitors,
		Tracking: &f.tracking, Persistence: &f.persistence, Accounts: &f.accounts,
		Notifier: &pubsub.Notifier{Channels: &f.channels},
	}
	in.Clock, in.Databases, in.Abilities = c.Store.Clock(), c.Store.Databases(), store.AbilitiesOf(c.Store)
	in.Stats.Turns, in.Stats.Holds = c.Turns, c.Holds
	memory.Begin(in.Now, c.Store, &f.decider.Fallback)
	in.Room = memory
	f.connect(&c, in)
	var err error
	if in.Table, err = command.NewTable(f.commands(), in.Abilities); err != nil {
		return nil, nil, err
	}
	f.explain.Find = in.Table.Find
	in.Stats.Begin(len(in.Table.ByName))
	in.Cleanups, f.admin.Info = f.cleanups(), append(f.info(), c.Info...)
	f.accounts.Init(in.Table)
	f.tracking.Init(c.Settings.Tracking.MaxKeys)
	in.Begin()
	f.announcer.Busy = &in.Background.Busy
	in.Metrics = append(f.metrics(in), c.Metrics...)
	return in, f, f.apply(c.Settings, in)
}

// connect sets the references that the families need to one another and to the server.
func (f *families) connect(c *Config, in *Instance) {
	clients, changes := in.Clients, announcer(c.Store)
	f.keyspace.OnFlush, f.keyspace.OnSwap = f.tracking.InvalidateAll, f.transactions.BeforeSwap
	f.keyspace.OnDenied = f.accounts.LogDenied
	f.keyspace.MaxLogLimit, f.keyspace.MaxHolders = c.Settings.Limiter.MaxLogLimit, c.Settings.Limiter.MaxHolders
	f.decider.Tokens, _ = c.Store.(store.TokenCounter)
	f.decider.Holds, _ = c.Store.(store.HoldCounter)
	f.policies.Files = c.Policies
	f.policies.Files.Log, f.policies.Files.Options.MaxLogLimit = c.Log, c.Settings.Limiter.MaxLogLimit
	f.policies.Files.Counts = &in.Stats.Policies
	f.announcer.Channels = &f.channels
	r := &f.policies.Reports
	r.Log, r.Publish, r.Listened, r.Lost = c.ClientLog, f.announcer.Announce, f.announcer.HasListeners, f.announcer.Lost
	r.Post = c.Post
	r.Begin()
	f.decider.Standings, _ = c.Store.(store.StandingReporter)
	if c.Store.MayBlock() {
		f.decider.Fallback.NewLocal, f.decider.Fallback.Log = c.NewLocal, c.Log
	}
	f.explain = explain.Family{Snapshot: f.policies.Snapshot, Waiting: in.WaitingCalls,
		IsFull: func() bool { return in.Hooks.Has(command.Full) }}
	f.transactions.Begin(changes)
	f.tracking.Store, f.tracking.Clients = changes, clients
	in.Notifier.Changes, in.Notifier.Hooks = changes, &in.Hooks
	f.connection.Clients, f.connection.Find, f.connection.Verify = clients, f.accounts.Find, f.accounts.Check
	f.connection.Blocked.Begin(in.Clock, in.SetPaused)
	a := &f.accounts
	a.File, a.Clients, a.Clock, a.DisconnectListeners = c.ACLFile, clients, in.Clock, f.disconnectSubscribers
	a.Log, a.ClientLog = c.Log, c.ClientLog
	d := &f.admin
	d.Version, d.RunID, d.Port, d.Started = c.Version, newRunID(), c.Port, in.Now()
	d.Store, d.Options, d.Clients, d.Memory = c.Store, c.Options, clients, in.Memory
	d.Log, d.Monitors.Hooks, d.Reload = c.Log, &in.Hooks, f.reload
	if rewrite := c.Rewrite; rewrite != nil {
		d.Rewrite = func() error { return rewrite(f.accounts.Configured()) }
	}
	p := &f.persistence
	p.Folder, p.Clock, p.Hooks, p.Started, p.Log, p.Stop = c.Folder, in.Clock, &in.Hooks, in.Now(), c.Log, c.Stop
	if c.Folder != nil {
		f.connection.Flush = c.Folder.Flush
	}
	p.External = in.Abilities&store.IsExternal != 0
	p.Begin()
}

// reload is DEBUG RELOAD.
func (f *families) reload(c *command.Call, save bool) error {
	if err := c.RefuseExternal("RELOAD is for keys in this process"); err != nil {
		return err
	}
	if save {
		if err := f.persistence.SaveIfDurable(c); err != nil {
			return err
		}
	}
	return f.keyspace.Reload(c)
}

// announcer returns the store if it announces changes; else nil, and then the table refuses the
// commands that need that.
func announcer(s store.Store) store.Notifier {
	changes, _ := s.(store.Notifier)
	return changes
}

// disconnectSubscribers disconnects the clients of an account that have a subscription to which its
// user has no right. If that includes own, the caller's own client, it is only reported.
func (f *families) disconnectSubscribers(a *client.Account, u *acl.User, own *client.Client) (disconnectOwn bool) {
	for kind := range client.SubscriptionKinds {
		f.channels.Each(kind, func(t *pubsub.Topic) bool {
			if u.MaySubscribe([]byte(t.Name), kind == client.ToPattern) {
				return true
			}
			f.channels.EachSubscriber(t, func(c *client.Client) {
				switch {
				case c.Account.Load() != a:
				case c == own:
					disconnectOwn = true
				default:
					f.accounts.Disconnect(c)
				}
			})
			return true
		}, func() {})
	}
	return disconnectOwn
}

// newRunID returns 40 random hexadecimal digits that identify this run of the server, as Redis's
// run_id.
func newRunID() string {
	var id [20]byte
	rand.Read(id[:]) // never fails: crypto/rand ends the process rather than return weak bytes
	return hex.EncodeToString(id[:])
}
