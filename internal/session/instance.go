package session

import (
	"cellserver/internal/background"
	"log/slog"
	"sync"
	"time"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/commands/access"
	"cellserver/internal/commands/admin"
	"cellserver/internal/commands/pubsub"
	"cellserver/internal/commands/tracking"
	"cellserver/internal/commands/transaction"
	"cellserver/internal/maxmemory"
	"cellserver/internal/stats"
	"cellserver/internal/store"
)

// Instance is what the sessions of one server share. It is safe for use by many goroutines. The
// package commands fills it in.
type Instance struct {
	command.Server
	Store     store.Store
	ClientLog *slog.Logger // for what clients cause, which may be very often
	Undos     []command.Undo

	// The state of families that sessions call for each of their calls, or for each turn.
	Clients  *client.Registry
	Blocked  *client.BlockedClients
	Watches  *transaction.Watches
	Monitors *admin.Monitors
	Tracking *tracking.Table
	Notifier *pubsub.Notifier
	Accounts *access.Accounts
	Memory   *maxmemory.Bound

	Background *background.Places
	// MaxTurnTransaction is what a transaction may cost that its session executes in its turn, in the
	// units of command.TurnUnits. Tests change it.
	MaxTurnTransaction int

	slowCalls sync.Map // by client: calls that run outside of the event loop
	ownCalls  sync.Map // by client: calls that its session makes in its turns
}

// Begin prepares an instance that has been filled in.
func (in *Instance) Begin() {
	in.Background, in.MaxTurnTransaction = background.NewPlaces(), command.TurnUnits
	in.Tracking.Busy, in.Notifier.Busy = &in.Background.Busy, &in.Background.Busy
	in.Notifier.Running = in.running
}

// running is the call that a client makes, nil if that is not known. It is for the goroutine on
// which the call runs.
func (in *Instance) running(by int64) *command.Call {
	if c, outside := in.slowCalls.Load(by); outside {
		return c.(*command.Call)
	}
	if c, ok := in.ownCalls.Load(by); ok {
		return c.(*command.Call)
	}
	return nil
}

// Now is the present instant, nanoseconds on the store's clock.
func (in *Instance) Now() int64 { return in.Clock.Now() }

// Departed receives when a client has gone: once, if several have gone since it was last read.
func (in *Instance) Departed() <-chan struct{} { return in.Clients.Departed() }

// NoteDeparture has Departed receive because something has gone that counts like a client.
func (in *Instance) NoteDeparture() { in.Clients.NoteDeparture() }

// Unauthenticated are the connections that have not logged in. Sessions enter and leave it by themselves.
func (in *Instance) Unauthenticated() *client.Unauthenticated { return in.Clients.Unauthenticated() }

// Connected is the number of connected clients.
func (in *Instance) Connected() int { return in.Clients.Count() }

// NeedsPassword reports whether clients have to log in.
func (in *Instance) NeedsPassword() bool { return in.Accounts.RequiresAuth() }

// CountRefused counts a connection that was refused.
func (in *Instance) CountRefused() { in.Stats.Refused.Add(1) }

// CountOutputCut counts a client that was disconnected because it reads too slowly.
func (in *Instance) CountOutputCut() { in.Clients.CountOutputCut() }

// BoundPushes bounds the bytes that wait to be pushed to one client, from now on; 0 for no bound.
func (in *Instance) BoundPushes(bytes int) { in.Clients.SetMaxPushes(bytes) }

// UnblockAll ends what clients wait for, as if its time were over: the server is about to stop.
func (in *Instance) UnblockAll() { in.Blocked.End() }

// WakeAll wakes every session.
func (in *Instance) WakeAll() {
	for _, c := range in.Clients.All() {
		c.Peer.Wake()
	}
}

// CutIdle disconnects the clients that have neither sent nor read anything for a while, and wait
// for no reply. As in Redis it spares subscribers and monitors.
func (in *Instance) CutIdle(timeout time.Duration) {
	now := in.Now()
	for _, c := range in.Clients.AllUnsorted() {
		if time.Duration(now-c.LastSeen.Load()) > timeout && !c.Parked.Load() && !c.Profile.ReceivesMessages() {
			c.Peer.Cut()
		}
	}
}

// SampleEvery is how often Sample is to be called.
const SampleEvery = 100 * time.Millisecond

// Sample measures how fast things go and how much memory is used, and applies the bounds of memory.
// One goroutine calls it every SampleEvery.
func (in *Instance) Sample() {
	now := in.Now()
	in.Stats.Rates.Add(now, in.Stats.Made(), in.Stats.Traffic.Sum())
	in.Clients.SampleBuffers(now)
	in.Clients.RetryEviction()
	in.Hooks.Set(command.Full, in.Memory.Look(in.Now))
}

// CountTraffic returns counters for one goroutine that reads from clients or writes to them.
func (in *Instance) CountTraffic() *stats.Traffic { return in.Stats.Traffic.Register() }

// Yield lets calls in the background run, if there are any. An event loop calls it after each turn.
func (in *Instance) Yield() { in.Background.Yield() }
