package commands

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/commands/access"
	"cellserver/internal/commands/limiter"
	"cellserver/internal/commands/pubsub"
	"cellserver/internal/commands/tracking"
	"cellserver/internal/meter"
	"cellserver/internal/option"
	"cellserver/internal/stats"
	"cellserver/internal/store"
)

// ACLFile is where ACL LOAD and ACL SAVE find users.
type ACLFile = access.ACLFile

// Config is what an Instance is made of. Zero numbers stand for their defaults.
type Config struct {
	Store    store.Store
	Version  string    // of cellserver
	Settings *Settings // the defaults if nil
	// All of the server's, the Settings' among them, for CONFIG; if nil there are the Settings'
	// alone.
	Options   *option.List
	Port      int // that INFO shows
	Log       *slog.Logger
	ClientLog *slog.Logger      // for what clients cause, which may be very often; Log if nil
	Stop      func()            // what SHUTDOWN calls; nil for nothing, and then it is refused
	ACLFile   access.ACLFile    // where ACL LOAD and ACL SAVE find users; nil for nowhere
	Turns     *meter.MaxCPUTime // what INFO shows of event loops; nil if nobody measures
	Holds     *meter.MaxCPUTime // and of locks
}

// Instance is what the sessions of one process share: the table of commands, the store, settings,
// clients, counters. It is safe for use by many goroutines.
type Instance struct {
	command.Server
	store store.Store

	clients *client.Registry
	hooks   atomic.Uint32 // bits: paused and the like
	memory  memoryBound

	server
	state
	figures
	besideLoops
}

// server is what the server says of itself, where it writes its log, and who may administer it.
type server struct {
	version   string
	options   *option.List
	port      int
	log       *slog.Logger
	clientLog *slog.Logger // for what clients cause
	stop      func()
	debug     string
	protected string // who may change what is protected: as debug
	runID     string
	started   int64 // instant, nanoseconds on the store's clock
}

// state is that of the families.
type state struct {
	limiters limiter.Family
	watches  watches
	waits    blockedClients
	monitors monitors
	tracking tracking.Table
	notifier notifier
	channels pubsub.Channels
	accounts access.Accounts
}

// figures are what INFO, SLOWLOG and LATENCY show.
type figures struct {
	stats         counters
	rows          []stats.Calls // by the rows' numbers
	codes         stats.Codes
	slowlog       stats.SlowLog
	latencyEvents stats.LatencyEvents
	latency       latencyTracking
	rates         stats.Rates
	traffic       stats.AllTraffic
	turns, holds  *meter.MaxCPUTime
}

// besideLoops is about calls that are made beside the event loops, and which call is running.
type besideLoops struct {
	slow      slowPlaces
	inTurn    int           // what a transaction may cost that its session makes in its turn
	long      chan struct{} // a place for the one whose reply gets long
	slowCalls sync.Map      // by client: calls that run beside the loop
	ownCalls  sync.Map      // by client: calls that its session makes in its turns
}

// counters count what INFO shows.
type counters struct {
	connections atomic.Int64 // ever accepted
	errors      atomic.Int64 // answered with an error
	rejected    atomic.Int64 // connections refused: too many, or not from here
	queryCut    atomic.Int64 // connections ended because they sent too much unread
	hits        atomic.Int64 // keys that were read, and were there
	misses      atomic.Int64 // and were not
	expired     atomic.Int64 // keys that had expired when INFO was told to count from 0
}

// complete fills in what was left out.
func (c *Config) complete() error {
	if c.Settings == nil {
		c.Settings = NewSettings()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Options != nil {
		return nil
	}
	c.Options = new(option.List)
	return c.Options.Add(c.Settings.Options()...)
}

// New makes an instance over a store. It returns an error if the settings contradict one another,
// or name what is not there.
func New(c Config) (*Instance, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	in := &Instance{
		Server: command.Server{Clock: c.Store.Clock(), Databases: c.Store.Databases()},
		store:  c.Store,
		server: server{
			version: c.Version, options: c.Options, port: c.Port, log: c.Log, clientLog: cmp.Or(c.ClientLog, c.Log),
			stop:  c.Stop,
			runID: newRunID(), started: c.Store.Clock().Now(),
		},
		figures:     figures{turns: c.Turns, holds: c.Holds},
		besideLoops: besideLoops{slow: slowPlaces{free: maxSlow()}, long: make(chan struct{}, 1), inTurn: command.TurnUnits},
		clients:     client.NewRegistry(cmp.Or(c.ClientLog, c.Log)),
	}
	in.watches = watches{watchers: make(map[watchedKey]*watched), ages: make(map[int]age)}
	var err error
	if in.Table, err = command.NewTable(in.commands(), store.AbilitiesOf(c.Store)); err != nil {
		return nil, err
	}
	in.accounts.File = c.ACLFile
	in.accounts.Init(in.Table)
	in.accounts.Clients, in.accounts.Clock, in.accounts.DisconnectListeners = in.clients, in.Clock, in.endListeners
	in.accounts.Log, in.accounts.ClientLog = in.log, in.clientLog
	in.rows = make([]stats.Calls, len(in.Table.ByName)+1)
	in.waits = blockedClients{clock: c.Store.Clock(), sessions: make(map[*client.Client]blocking), next: store.Never,
		hooks: &in.hooks}
	in.watches.changes = in.changes()
	in.memory.begin(c.Store)
	in.clients.SetMaxMemory(c.Settings.MaxClientMemory)
	in.clients.SetMaxMemoryUnauthenticated(c.Settings.MaxUnauthenticatedMemory)
	in.tracking.Store, in.tracking.Clients, in.tracking.Busy = in.changes(), in.clients, &in.slow.about
	in.tracking.Init(c.Settings.MaxTracked)
	in.notifier.begin(in)
	return in, in.heed(c.Settings)
}

// newRunID is 40 hexadecimal digits that no other run of a server has, as Redis's run_id.
func newRunID() string {
	var id [20]byte
	rand.Read(id[:]) // never fails: crypto/rand ends the process rather than return weak bytes
	return hex.EncodeToString(id[:])
}

// What a transport needs of an instance beside its sessions.

// Departed is told when a client has gone: once, if several have gone since it was read.
func (in *Instance) Departed() <-chan struct{} { return in.clients.Departed() }

// NoteDeparture has Left told that something has gone which counts with the clients.
func (in *Instance) NoteDeparture() { in.clients.NoteDeparture() }

// Unauthenticated are those of the instance: sessions are among them by themselves.
func (in *Instance) Unauthenticated() *client.Unauthenticated { return in.clients.Unauthenticated() }

// shareMemory has the bounds of what clients hold worked out.
func (in *Instance) shareMemory() { in.clients.UpdateLimits(in.memory.most.Load(), in.memory.there) }

// Clients counts who is connected.
func (in *Instance) Clients() int { return in.clients.Count() }

// changes is the store, if it tells of changes, else nil: then what needs it is refused.
func (in *Instance) changes() store.Notifier {
	announcer, _ := in.store.(store.Notifier)
	return announcer
}

// Now is the present instant, nanoseconds on the store's clock.
func (in *Instance) Now() int64 { return in.store.Clock().Now() }

// CountRejected counts a connection that was refused at the door.
func (in *Instance) CountRejected() { in.stats.rejected.Add(1) }

// CountOutputCut counts a client that was cut off because it reads too little.
func (in *Instance) CountOutputCut() { in.clients.CountOutputCut() }

// BoundPushes bounds the bytes that wait to be pushed to one client, from now on; 0 is no bound.
func (in *Instance) BoundPushes(bytes int) { in.clients.SetMaxPushes(bytes) }

// WakeAll wakes every session.
func (in *Instance) WakeAll() {
	for _, s := range in.clients.All() {
		s.Peer.Wake()
	}
}

// CutIdle ends the connections that have sent nothing, and taken nothing, for a while, and are owed
// nothing. As in Redis it spares those that wait to be told something, which may be quiet for as
// long as they like: subscribers and monitors.
func (in *Instance) CutIdle(timeout time.Duration) {
	now := in.Now()
	for _, s := range in.clients.AllUnsorted() {
		if time.Duration(now-s.LastSeen.Load()) > timeout && !s.Parked.Load() && !s.Profile.ReceivesMessages() {
			s.Peer.Cut()
		}
	}
}
