package admin

import (
	"errors"
	"strconv"
	"strings"

	"cellserver/internal/command"
	"cellserver/internal/stats"
)

// parsePercentiles parses the setting latency-tracking-info-percentiles: numbers from 0 to 100,
// separated by spaces.
func parsePercentiles(text string) ([]float64, error) {
	const most = 100
	list := []float64{}
	for _, word := range strings.Fields(text) {
		p, err := strconv.ParseFloat(word, 64)
		switch {
		case err != nil || p != p || len(list) == most:
			return nil, command.Refusal("Invalid latency-tracking-info-percentiles parameters")
		case p < 0 || p > 100:
			return nil, errors.New("latency-tracking-info-percentiles parameters should sit between [0.0,100.0]")
		}
		list = append(list, p)
	}
	return list, nil
}

// formatPercentile formats a percentile as Redis does: with at most six decimals, and without
// trailing zeros.
func formatPercentile(p float64) string {
	return strings.TrimSuffix(strings.TrimRight(strconv.FormatFloat(p, 'f', 6, 64), "0"), ".")
}

var latencyHistogram = latencyCommand(command.Command{
	Name: "latency|histogram", Since: "7.0.0",
	Summary: "Returns the durations of timed calls, by command.",
	Args:    []command.Arg{command.Word("command").Optional().Many()},
	Reply:   "A map from names to maps: calls, the number of calls that were timed: all, or of quick commands a sample; histogram_usec, the number of them below each number of microseconds.",
	Run: func(c *command.Call) error {
		countCalls(c)
		wanted := make(map[*command.Command]bool)
		names := c.Many()
		for _, name := range names {
			wanted[c.Server.Table.Named(name)] = true
		}
		var rows []*command.Command
		c.Server.EachCalled(func(row *command.Command, r *stats.Calls) {
			if r.Timed.Load() > 0 && (len(names) == 0 || wanted[row] || row.Parent != nil && wanted[row.Parent]) {
				rows = append(rows, row)
			}
		})
		c.Out.Map(len(rows))
		for _, row := range rows {
			c.Out.BulkString(row.Name)
			timed, pairs := c.Server.Stats.Of(row.Number).Histogram()
			c.Out.Map(2)
			c.Out.Field("calls").Int(timed)
			c.Out.Field("histogram_usec").Map(len(pairs) / 2)
			for _, n := range pairs {
				c.Out.Int(n)
			}
		}
		return nil
	},
})
