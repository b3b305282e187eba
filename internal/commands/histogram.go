package commands

import (
	"errors"
	"strconv"
	"strings"
	"sync/atomic"

	"cellserver/internal/command"
	"cellserver/internal/stats"
)

// latency-tracking: how long calls take, by command. Redis takes the time of every call. Here a
// quick call takes no longer than to take the time: so it is taken of the first call of a command,
// and then of some, one turn's first in sampleEvery; the others are taken to be as those. So the
// numbers of calls are exact, and the times are a sample's. Calls that are not quick are all
// measured.
type latencyTracking struct {
	on          atomic.Bool
	percentiles atomic.Pointer[[]float64] // of 100, that INFO shows
}

// isNew says that the time of no call of a row is known.
func (in *Instance) isNew(row *command.Command) bool {
	r := in.statsOf(row)
	return r.Timed.Load() == 0 || r.Tracked.Load() == 0 && in.latency.on.Load()
}

// trackLatency begins, or ends, to count calls by how long they take. What was counted stays.
func (in *Instance) trackLatency(on bool) {
	if in.latency.on.Swap(on) == on {
		return
	}
	for i := range in.rows {
		r := &in.rows[i]
		if on {
			r.Untracked.Add(r.Calls.Load()) // of which those before the end were taken off
		} else {
			r.Untracked.Add(-r.Calls.Load())
		}
	}
}

// parsePercentiles reads what latency-tracking-info-percentiles says: numbers from 0 to 100, with
// spaces between.
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

// shownPercent is a percentile as Redis writes it: at most six digits behind the point, and no
// zeroes at the end.
func shownPercent(p float64) string {
	return strings.TrimSuffix(strings.TrimRight(strconv.FormatFloat(p, 'f', 6, 64), "0"), ".")
}

func (in *Instance) showPercentiles(list []float64) { in.latency.percentiles.Store(&list) }

var latencyHistogram = aboutLatency(command.Command{
	Name: "latency|histogram", Since: "7.0.0",
	Summary: "Returns how long calls took, by command; quick calls are sampled.",
	Args:    []command.Arg{command.Word("command").Optional().Many()},
	Reply:   "A map from names to maps: calls; histogram_usec, the number of calls below each number of microseconds.",
	Run: func(c *command.Call) error {
		foldOwn(c)
		wanted := make(map[*command.Command]bool)
		names := c.Many()
		for _, name := range names {
			wanted[c.Server.Table.Named(name)] = true
		}
		var rows []*command.Command
		instanceOf(c).eachStats(func(row *command.Command, r *stats.Calls) {
			if r.Tracked.Load() > 0 && (len(names) == 0 || wanted[row] || row.Parent != nil && wanted[row.Parent]) {
				rows = append(rows, row)
			}
		})
		c.Out.Map(len(rows))
		for _, row := range rows {
			c.Out.BulkString(row.Name)
			calls, pairs := instanceOf(c).statsOf(row).Histogram(instanceOf(c).latency.on.Load())
			c.Out.Map(2)
			c.Out.BulkString("calls")
			c.Out.Int(calls)
			c.Out.BulkString("histogram_usec")
			c.Out.Map(len(pairs) / 2)
			for _, n := range pairs {
				c.Out.Int(n)
			}
		}
		return nil
	},
})
