// Package admin is the commands about the server itself: INFO, CONFIG, MEMORY, LATENCY, SLOWLOG,
// MONITOR and DEBUG. It also has those commands of Redis that clients send to any server,
// and that make no difference here or are refused.
package admin

import (
	"log/slog"
	"strconv"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/maxmemory"
	"cellserver/internal/option"
	"cellserver/internal/store"
)

// Admin is the family, and what it needs of a server.
type Admin struct {
	Version string // of cellserver
	RunID   string // 40 hexadecimal digits that no other run has
	Port    int
	Started int64 // when the server started: an instant, nanoseconds on the store's clock

	Store    store.Store
	Options  *option.List
	Clients  *client.Registry
	Memory   *maxmemory.Bound
	Monitors Monitors
	Info     []command.InfoPart // of all families, in order

	Rewrite func() error // writes the configuration file; nil if there is none

	// Reload saves all keys, if save is set and there is a file for them, and replaces each by what
	// would be read from the file.
	Reload func(c *command.Call, save bool) error

	Log *slog.Logger
	// Debug and Protected are the clients that may call DEBUG, and that may change protected
	// settings: yes for all, local for those on this machine, no for none.
	Debug, Protected string
}

// Commands lists the family in reading order.
func (a *Admin) Commands() []*command.Command {
	return []*command.Command{
		&command.Introspection, a.info(), a.config(), &timeNow, a.memory(), &role, &lolwut,
		function, script(), module, a.debug(), slowlog, latency, a.monitor(),
		&cluster, &readOnly, &readWrite, &asking,
	}
}

// describeStore returns the part of INFO that the store writes itself, if it does.
func describeStore(s store.Store) []command.InfoPart {
	d, ok := s.(store.Describer)
	if !ok {
		return nil
	}
	write := func(_ *command.Call, out *command.InfoText) { d.Describe(out.Add) }
	return []command.InfoPart{{Section: "Store", Write: write}}
}

// Session is what the family needs of the session that makes a call.
type Session interface {
	// CountCalls adds the calls of this turn to the statistics, except the current one.
	CountCalls()
}

// countCalls adds what the calling session has counted in this turn to the statistics, before a
// call that shows or resets them.
func countCalls(c *command.Call) {
	if c.Session != nil && !c.InTransaction {
		c.Session.(Session).CountCalls()
	}
}

var timeNow = command.Command{
	Name: "time", Group: "server", Category: "none", Since: "2.6.0", Complexity: "O(1)",
	Flags: command.Loading | command.Stale | command.Fast, Cost: command.Constant,
	Traits: command.Sessionless, Summary: "Returns the time of day.", Tips: command.Varying,
	Reply: "Two elements: Unix seconds, and the microseconds that have passed in this second.",
	Run: func(c *command.Call) error {
		us := c.Unix(c.Now()) / 1000
		c.Out.Array(2)
		c.Out.BulkString(strconv.FormatInt(us/1e6, 10))
		c.Out.BulkString(strconv.FormatInt(us%1e6, 10))
		return nil
	},
}
