package admin

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/resp"
	"cellserver/internal/stats"
)

// Monitors holds the clients to which MONITOR shows every call.
type Monitors struct {
	Hooks *command.Hooks

	mu      sync.Mutex
	clients []*client.Client // never changed in place, so that push can read it without the lock
}

// The bounds of what a monitor is shown. Redis has none, and sends a call of a megabyte to each
// monitor.
const (
	shownWords = 128       // words of a call
	shownBytes = 1024      // bytes of a word
	maxShown   = 256 << 10 // bytes of the calls of a transaction
)

func (a *Admin) monitor() *command.Command {
	return &command.Command{
		Name: "monitor", Group: "server", Category: "none", Since: "1.0.0", Complexity: "O(1)",
		Flags:   command.Admin | command.Dangerous | command.NoScript | command.Loading | command.Stale,
		Summary: "Shows this client every further call, except calls of administrative commands.",
		Reply:   "OK, and then one line per call: Unix time, database and client, the arguments. RESET ends it.",
		Run: func(c *command.Call) error {
			if c.InTransaction {
				return command.Refusal("ERR MONITOR isn't allowed for DENY BLOCKING client")
			}
			if !c.Client.Profile.Monitoring {
				if !a.Monitors.add(c.Client) {
					return command.Refusal("ERR too many clients monitor")
				}
				a.Monitors.Hooks.Set(command.Monitored, true)
				c.Session.TakeSlowPath()
			}
			c.Out.Status("OK")
			return nil
		},
	}
}

// maxMonitors bounds the monitors, because every call of any client is sent to each of them before
// the next call is made.
const maxMonitors = 64

func (ms *Monitors) add(c *client.Client) bool {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if len(ms.clients) == maxMonitors {
		return false
	}
	ms.clients = append(slices.Clone(ms.clients), c)
	c.SetMonitors(true)
	return true
}

// remove ends MONITOR for a client.
func (ms *Monitors) remove(c *client.Client) {
	if !c.Profile.Monitoring {
		return
	}
	c.SetMonitors(false)
	ms.mu.Lock()
	defer ms.mu.Unlock()
	ms.clients = slices.DeleteFunc(slices.Clone(ms.clients), func(other *client.Client) bool { return other == c })
	if len(ms.clients) == 0 {
		ms.Hooks.Set(command.Monitored, false)
	}
}

// Cleanup ends MONITOR for the client.
func (ms *Monitors) Cleanup() command.Cleanup {
	return command.Cleanup{
		Reset: func(c *command.Call) { ms.remove(c.Client) },
		Close: func(c *client.Client, _ command.Session) { ms.remove(c) },
	}
}

// Show sends a call that was made to the monitors. Calls of a transaction are sent when it is over:
// see ShowTransaction. Before that its keys are locked, and pushing takes locks.
func (ms *Monitors) Show(c *command.Call, row *command.Command, words [][]byte) {
	if row.Flags&command.Admin != 0 {
		return
	}
	unix := c.Unix(c.Server.Clock.Now()) / 1000
	line := fmt.Appendf(nil, "+%d.%06d [%d %s]", unix/1e6, unix%1e6, c.View.Selected(), monitorAddress(c.Client))
	for _, word := range stats.Shorten(c.Server.Redact(row, words), shownWords, shownBytes) {
		line = resp.AppendQuoted(append(line, ' '), word)
	}
	line = append(line, '\r', '\n')
	if !c.InTransaction {
		ms.push(line)
	} else if len(c.MonitorLines)+len(line) <= maxShown {
		c.MonitorLines = append(c.MonitorLines, line...)
	}
}

// ShowTransaction sends the calls that EXEC has made to the monitors.
func (ms *Monitors) ShowTransaction(c *command.Call) {
	if c.MonitorLines != nil {
		ms.push(c.MonitorLines)
		c.MonitorLines = nil
	}
}

func (ms *Monitors) push(lines []byte) {
	ms.mu.Lock()
	clients := ms.clients
	ms.mu.Unlock()
	for _, c := range clients {
		c.Push(lines) // it disconnects a client that reads too slowly
	}
}

// monitorAddress returns a client's address as MONITOR shows it.
func monitorAddress(c *client.Client) string {
	if strings.HasPrefix(c.Peer.Local, "/") {
		return "unix:" + strings.TrimSuffix(c.Peer.Local, ":0")
	}
	return c.Peer.Remote
}
