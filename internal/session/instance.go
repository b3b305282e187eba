package session

import (
	"log/slog"
	"sync"
	"time"

	"cellserver/internal/background"
	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/commands/access"
	"cellserver/internal/commands/admin"
	"cellserver/internal/commands/persistence"
	"cellserver/internal/commands/pubsub"
	"cellserver/internal/commands/tracking"
	"cellserver/internal/commands/transaction"
	"cellserver/internal/maxmemory"
	"cellserver/internal/metric"
	"cellserver/internal/stats"
	"cellserver/internal/store"
)

// Instance is the state that the sessions of one server share. It is safe for use by many
// goroutines. The package commands creates it.
type Instance struct {
	command.Server
	Store     store.Store
	ClientLog *slog.Logger // for messages that clients cause, and which may be very frequent
	Cleanups  []command.Cleanup
	Metrics   []metric.Group // of all families, for monitoring systems

	// The state of families that sessions use in each call or in each turn.
	Clients     *client.Registry
	Blocked     *client.BlockedClients
	Watches     *transaction.Watches
	Monitors    *admin.Monitors
	Tracking    *tracking.Table
	Notifier    *pubsub.Notifier
	Persistence *persistence.Family
	Accounts    *access.Accounts
	Memory      *maxmemory.Bound

	Background *background.Slots
	// MaxTurnTransaction is the most work of a transaction that is executed in a turn of its session. Tests change it.
	MaxTurnTransaction int

	running struct {
		background sync.Map // by client: calls that run outside of the event loop
		turns      sync.Map // by client: calls that its session makes in its turns
	}
	scriptsCalled sync.Once // for the hint that there are no scripts

	coroutines coroutines   // make calls, if calls of the store may block
	waiting    waitingCalls // calls that a limiter has not admitted yet
}

// Begin initializes the fields that the package commands does not set.
func (in *Instance) Begin() {
	in.Background, in.MaxTurnTransaction = background.NewSlots(), command.TurnWork
	in.Tracking.Busy, in.Notifier.Busy = &in.Background.Busy, &in.Background.Busy
	in.Notifier.Running = in.runningCall
	in.beginOverlapping()
	in.waiting.begin(in)
}

// runningCall returns the call that a client is making; nil if it is not known. Only the goroutine
// that makes the call may use it.
func (in *Instance) runningCall(by int64) *command.Call {
	if c, outside := in.running.background.Load(by); outside {
		return c.(*command.Call)
	}
	if c, ok := in.running.turns.Load(by); ok {
		return c.(*command.Call)
	}
	return nil
}

// Now returns the current instant: nanoseconds on the store's clock.
func (in *Instance) Now() int64 { return in.Clock.Now() }

// Departed returns a channel that receives a value when a client has disconnected. Several
// disconnections may share one value.
func (in *Instance) Departed() <-chan struct{} { return in.Clients.Departed() }

// NoteDeparture sends to Departed although no client has disconnected, so that the receiver looks
// again whether there is capacity for a connection.
func (in *Instance) NoteDeparture() { in.Clients.NoteDeparture() }

// Unauthenticated returns the registry of connections that have not logged in. Sessions enter and
// leave it themselves.
func (in *Instance) Unauthenticated() *client.Unauthenticated { return in.Clients.Unauthenticated() }

// Connected returns the number of connected clients.
func (in *Instance) Connected() int { return in.Clients.Count() }

// NeedsPassword reports whether clients have to log in.
func (in *Instance) NeedsPassword() bool { return in.Accounts.RequiresAuth() }

// CountRefused counts a connection that was refused.
func (in *Instance) CountRefused() { in.Stats.Refused.Add(1) }

// BoundPushes sets how many bytes of messages may wait for one client; 0 means any number.
func (in *Instance) BoundPushes(bytes int) { in.Clients.SetMaxPushes(bytes) }

// UnblockAll ends the waits of all blocked clients, as if they had timed out. It is called before
// the server stops.
func (in *Instance) UnblockAll() { in.Blocked.End() }

// WakeAll wakes every session.
func (in *Instance) WakeAll() {
	for _, c := range in.Clients.All() {
		c.Peer.Wake()
	}
}

// CutIdle disconnects clients that have neither sent nor read anything for longer than timeout. It
// spares clients that wait for a reply, and, as in Redis, subscribers and monitors.
func (in *Instance) CutIdle(timeout time.Duration) {
	now := in.Now()
	for _, c := range in.Clients.AllUnsorted() {
		if time.Duration(now-c.LastSeen.Load()) > timeout && c.State() == client.Running &&
			!c.Profile.ReceivesMessages() {
			c.Peer.Cut()
		}
	}
}

// SampleEvery is the interval at which Sample is to be called.
const SampleEvery = 100 * time.Millisecond

// Sample updates the rates and sizes that INFO shows, and the history of decisions, applies the bounds of memory, and
// does what is due for the folder of keys. One goroutine calls it every SampleEvery.
func (in *Instance) Sample() {
	now := in.Now()
	in.Stats.Rates.Add(now, in.Stats.Made(), in.Stats.Traffic.Sum())
	in.Stats.Policies.Sample(now / int64(time.Second))
	in.Clients.SampleBuffers(now)
	in.Clients.RetryEviction()
	in.SampleMemory()
	in.Persistence.Tick()
	in.coroutines.trim()
}

// CheckEvery is the interval at which SampleMemory is to be called, in addition to Sample, while memory
// is full.
const CheckEvery = 10 * time.Millisecond

// SampleMemory applies maxmemory. The goroutine that calls Sample calls it.
func (in *Instance) SampleMemory() {
	in.Hooks.Set(command.Full, in.Memory.Check())
	if !in.Memory.Exceeded() { // CONFIG SET may have raised the bound during the check
		in.Hooks.Set(command.Full, false)
	}
}

// IsFull reports whether maxmemory was exceeded when it was applied last.
func (in *Instance) IsFull() bool { return in.Hooks.Has(command.Full) }

// CountTraffic returns new traffic counters, for one goroutine that reads from or writes to
// clients.
func (in *Instance) CountTraffic() *stats.Traffic { return in.Stats.Traffic.Register() }

// Yield lets calls in the background run. An event loop calls it after each turn.
func (in *Instance) Yield() { in.Background.YieldThread() }
