package limiter

import (
	"cmp"
	"fmt"
	"strings"

	"cellserver/internal/calendar"
	"cellserver/internal/command"
	"cellserver/internal/stats"
)

// Info returns the parts of INFO about decisions: how often each command has allowed a call, and limited
// one, and how often the store has failed to decide.
func (l *Family) Info() []command.InfoPart {
	return append(l.Fallback.Info(), infoDecisions(), l.InfoTokens(), l.InfoHolds(), infoZones())
}

// infoZones shows the time zone database, and where it is from.
func infoZones() command.InfoPart {
	return command.InfoPart{Section: "Server", Write: func(_ *command.Call, out *command.InfoText) {
		version, path := calendar.Version()
		out.Add("tz_database_version", version)
		out.Add("tz_database", cmp.Or(path, "embedded"))
	}}
}

func infoDecisions() command.InfoPart {
	return command.InfoPart{Section: "Cell", Write: func(c *command.Call, out *command.InfoText) {
		c.Server.EachCalled(func(row *command.Command, calls *stats.Calls) {
			if row.Traits&command.Decides == 0 {
				return
			}
			limited := calls.Limited.Load()
			allowed := max(calls.Calls.Load()-calls.Failed.Load()-limited, 0)
			out.Add("cell_decisions_"+strings.ReplaceAll(row.Name, ".", "_"),
				fmt.Sprintf("allowed=%d,limited=%d", allowed, limited))
		})
	}}
}
