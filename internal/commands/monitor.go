package commands

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/stats"
)

// MONITOR: clients that are shown every call.

// monitors are they. While there is none, nobody looks here.
type monitors struct {
	mu       sync.Mutex
	sessions []*client.Client
}

// The bounds of a call that is shown: Redis has none, and shows a call of a megabyte to each of
// them whole.
const (
	shownWords = 128
	shownBytes = 1024      // of a word
	maxShown   = 256 << 10 // bytes of a transaction's calls
)

var monitor = command.Command{
	Name: "monitor", Group: "server", Category: "none", Since: "1.0.0", Complexity: "O(1)",
	Flags:   command.Admin | command.Dangerous | command.NoScript | command.Loading | command.Stale,
	Summary: "Shows this client every further call, except those of administrative commands.",
	Reply:   "OK, and then one line per call: Unix time, database and client, the arguments. RESET ends it.",
	Run: func(c *command.Call) error {
		if c.InTransaction {
			return command.Refusal("ERR MONITOR isn't allowed for DENY BLOCKING client")
		}
		if s := sessionOf(c); !s.monitors {
			if !instanceOf(c).monitors.add(s.Client) {
				return command.Refusal("ERR too many clients monitor")
			}
			s.setMonitors(true)
			instanceOf(c).hooks.Or(monitored)
			s.slowPath = true
		}
		c.Out.Status("OK")
		return nil
	},
}

const errMonitors command.Refusal = "ERR Replica can't interact with the keyspace"

func (s *Session) setMonitors(on bool) {
	s.monitors = on
	s.Profile.Mu.Lock()
	defer s.Profile.Mu.Unlock()
	s.Profile.Monitoring = on
}

// maxMonitors bounds them: each call of anybody is shown to each of them before anything else is
// answered.
const maxMonitors = 64

func (ms *monitors) add(s *client.Client) bool {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if len(ms.sessions) == maxMonitors {
		return false
	}
	ms.sessions = append(slices.Clone(ms.sessions), s)
	return true
}

// stopMonitoring is for RESET, and for a session that ends.
func (s *Session) stopMonitoring() {
	if !s.monitors {
		return
	}
	s.setMonitors(false)
	in := s.instance
	in.monitors.mu.Lock()
	defer in.monitors.mu.Unlock()
	in.monitors.sessions = slices.DeleteFunc(slices.Clone(in.monitors.sessions),
		func(other *client.Client) bool { return other == s.Client })
	if len(in.monitors.sessions) == 0 {
		in.hooks.And(^monitored)
	}
}

// show tells them of a call that was made. In a transaction they are told when it is over: pushing
// takes locks, and keys are locked.
func show(c *command.Call, row *command.Command, words [][]byte) {
	if row.Flags&command.Admin != 0 {
		return
	}
	unix := c.Unix(c.Server.Clock.Now()) / 1000
	line := fmt.Appendf(nil, "+%d.%06d [%d %s]", unix/1e6, unix%1e6, c.View.Selected(), shownAddress(c.Client))
	for _, word := range stats.Shorten(redact(row, words), shownWords, shownBytes) {
		line = appendQuoted(append(line, ' '), word)
	}
	line = append(line, '\r', '\n')
	if !c.InTransaction {
		instanceOf(c).monitors.tell(line)
	} else if len(c.MonitorLines)+len(line) <= maxShown {
		c.MonitorLines = append(c.MonitorLines, line...)
	}
}

// showTransaction tells them of what EXEC has made.
func showTransaction(c *command.Call) {
	if c.MonitorLines != nil {
		instanceOf(c).monitors.tell(c.MonitorLines)
		c.MonitorLines = nil
	}
}

func (ms *monitors) tell(lines []byte) {
	ms.mu.Lock()
	sessions := ms.sessions
	ms.mu.Unlock()
	for _, s := range sessions {
		s.Push(lines) // one that reads too slowly is cut off
	}
}

func shownAddress(s *client.Client) string {
	if strings.HasPrefix(s.Peer.Local, "/") {
		return "unix:" + strings.TrimSuffix(s.Peer.Local, ":0")
	}
	return s.Peer.Remote
}

// appendQuoted writes a word in quotes, as Redis does: what is not printable in hexadecimal.
func appendQuoted(line, word []byte) []byte {
	line = append(line, '"')
	for _, b := range word {
		switch i := strings.IndexByte("\\\"\n\r\t\a\b", b); {
		case i >= 0:
			line = append(line, '\\', `\"nrtab`[i])
		case b < ' ' || b > '~':
			line = append(line, '\\', 'x')
			if b < 16 {
				line = append(line, '0')
			}
			line = strconv.AppendUint(line, uint64(b), 16)
		default:
			line = append(line, b)
		}
	}
	return append(line, '"')
}
