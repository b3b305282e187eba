package commands

import (
	"fmt"
	"strings"
)

// The sections of INFO that are counted by command, by error and by limiter.

// fields writes what is true of every server of this kind, as name:value.
func fields(out *strings.Builder, lines ...string) {
	for _, line := range lines {
		out.WriteString(line + "\r\n")
	}
}

// human writes bytes as Redis does in the fields that end with _human.
func human(bytes int64) string {
	value, unit := float64(bytes), 0
	for value >= 1024 && unit < 5 {
		value, unit = value/1024, unit+1
	}
	if unit == 0 {
		return fmt.Sprintf("%dB", bytes)
	}
	return fmt.Sprintf("%.2f%c", value, "BKMGTP"[unit])
}

// foldOwn has the session's own counts be seen, but for the present call, which is not over.
func (c *Call) foldOwn() {
	if s := c.Session; s != nil && !c.inTransaction {
		s.tallies[s.tally].calls--
		s.fold()
		s.tallies[s.tally].calls++
	}
}

// eachStats shows the rows that were called, in the table's order, containers' subcommands with them.
func (in *Instance) eachStats(show func(row *Command, r *rowStats)) {
	var visit func(row *Command)
	visit = func(row *Command) {
		if r := in.statsOf(row); r.calls.Load() > 0 || r.rejected.Load() > 0 {
			show(row, r)
		}
		for _, sub := range row.Subs {
			visit(sub)
		}
	}
	for _, row := range in.table.rows {
		visit(row)
	}
}

func infoModules(*Call, *strings.Builder) {}

func infoCommandStats(c *Call, out *strings.Builder) {
	c.instance.eachStats(func(row *Command, r *rowStats) {
		usec, perCall := r.usec()
		field(out, "cmdstat_"+row.Name, fmt.Sprintf("calls=%d,usec=%d,usec_per_call=%.2f,rejected_calls=%d,failed_calls=%d",
			r.calls.Load(), usec, perCall, r.rejected.Load(), r.failed.Load()))
	})
}

func infoErrorStats(c *Call, out *strings.Builder) {
	c.instance.codes.each(func(code string, count int64) { field(out, "errorstat_"+code, fmt.Sprintf("count=%d", count)) })
}

func infoLatencyStats(c *Call, out *strings.Builder) {
	c.instance.eachStats(func(row *Command, r *rowStats) {
		if r.timed.Load() > 0 {
			field(out, "latency_percentiles_usec_"+row.Name, fmt.Sprintf("p50=%d.000,p99=%d.000,p99.9=%d.000",
				r.percentile(.5), r.percentile(.99), r.percentile(.999)))
		}
	})
}

// infoDecisions shows what the limiters have decided: how often they allowed, and limited.
func infoDecisions(c *Call, out *strings.Builder) {
	c.instance.eachStats(func(row *Command, r *rowStats) {
		if !row.decides {
			return
		}
		limited := r.limited.Load()
		field(out, "cell_decisions_"+strings.ReplaceAll(row.Name, ".", "_"), fmt.Sprintf("allowed=%d,limited=%d",
			max(r.calls.Load()-r.failed.Load()-limited, 0), limited))
	})
}
