package limiter

import (
	"fmt"
	"strings"

	"cellserver/internal/command"
	"cellserver/internal/stats"
)

// Info is what INFO says of the decisions: by command, how often it allowed and how often it
// limited.
func (l *Family) Info() command.InfoPart {
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
