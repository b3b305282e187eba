// Package admin is the commands about the server itself: INFO, CONFIG, MEMORY, LATENCY, SLOWLOG,
// MONITOR, SHUTDOWN, DEBUG, and what Redis has of them that is refused here.
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

// Admin is the commands and what they need of a server.
type Admin struct {
	Version string // of cellserver
	RunID   string // 40 hexadecimal digits that no other run has
	Port    int
	Started int64 // instant, nanoseconds on the store's clock

	Store    store.Store
	Options  *option.List
	Clients  *client.Registry
	Memory   *maxmemory.Bound
	Monitors Monitors
	Info     []command.InfoPart     // of all families, in order
	IsSecret func(word []byte) bool // says whether CONFIG SET of an option must not be logged

	Log  *slog.Logger
	Stop func() // what SHUTDOWN calls; nil if it is refused
	// Debug and Protected say which clients may call DEBUG, and change protected settings: yes for
	// all, local for those on this machine, no for none.
	Debug, Protected string
}

// Commands lists the family in reading order.
func (a *Admin) Commands() []*command.Command {
	return []*command.Command{
		&command.Introspection, a.info(), a.config(), &timeNow, a.memory(), &role, a.lastSave(), &save, &bgSave, &lolwut,
		&function, &script, &module, a.shutdown(), a.debug(), &slowlog, &latency, a.monitor(),
		&cluster, &readOnly, &readWrite, &asking,
	}
}

// countCalls adds what the calling session has counted in this turn to the statistics, for a call
// that shows or resets them.
func countCalls(c *command.Call) {
	if c.Session != nil && !c.InTransaction {
		c.Session.CountCalls()
	}
}

var timeNow = command.Command{
	Name: "time", Group: "server", Category: "none", Since: "2.6.0", Complexity: "O(1)",
	Flags: command.Loading | command.Stale | command.Fast, Cost: command.Constant,
	Traits: command.Sessionless, Summary: "Returns the time of day.", Tips: command.Varying,
	Reply: "Two elements: Unix seconds, and the microseconds that have passed in this second.",
	Run: func(c *command.Call) error {
		us := c.Unix(c.View.Now()) / 1000
		c.Out.Array(2)
		c.Out.BulkString(strconv.FormatInt(us/1e6, 10))
		c.Out.BulkString(strconv.FormatInt(us%1e6, 10))
		return nil
	},
}
