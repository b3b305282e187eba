package commands

import (
	"fmt"
	"strings"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/commands/access"
	"cellserver/internal/stats"
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
func foldOwn(c *command.Call) {
	if s := sessionOf(c); s != nil && !c.InTransaction {
		s.tallies[s.tally].calls--
		s.fold()
		s.tallies[s.tally].calls++
	}
}

// eachStats shows the rows that were called, in the table's order, containers' subcommands with
// them.
func (in *Instance) eachStats(show func(row *command.Command, r *stats.Calls)) {
	var visit func(row *command.Command)
	visit = func(row *command.Command) {
		if r := in.statsOf(row); r.Calls.Load() > 0 || r.Rejected.Load() > 0 {
			show(row, r)
		}
		for _, sub := range row.Subs {
			visit(sub)
		}
	}
	for _, row := range in.Table.Rows {
		visit(row)
	}
}

func infoStats(c *command.Call, out *strings.Builder) {
	in := instanceOf(c)
	s, t := &in.stats, in.traffic.Sum()
	calls, read, written := in.rates.PerSecond()
	field(out, "total_connections_received", s.connections.Load())
	field(out, "total_commands_processed", in.calls())
	field(out, "instantaneous_ops_per_sec", calls)
	field(out, "total_net_input_bytes", t.In)
	field(out, "total_net_output_bytes", t.Out)
	fields(out, "total_net_repl_input_bytes:0", "total_net_repl_output_bytes:0")
	field(out, "instantaneous_input_kbps", ratio(read, 1024))
	field(out, "instantaneous_output_kbps", ratio(written, 1024))
	fields(out, "instantaneous_input_repl_kbps:0.00", "instantaneous_output_repl_kbps:0.00")
	field(out, "rejected_connections", s.rejected.Load())
	fields(out, "sync_full:0", "sync_partial_ok:0", "sync_partial_err:0")
	field(out, "expired_keys", in.expired(c.View)-s.expired.Load())
	fields(out, "expired_stale_perc:0.00", "expired_time_cap_reached_count:0", "expire_cycle_cpu_milliseconds:0",
		"evicted_keys:0")
	field(out, "evicted_clients", in.clients.Eviction().Evicted)
	fields(out,
		"total_eviction_exceeded_time:0", "current_eviction_exceeded_time:0")
	field(out, "keyspace_hits", s.hits.Load())
	field(out, "keyspace_misses", s.misses.Load())
	field(out, "pubsub_channels", in.channels.Count(client.ToChannel))
	field(out, "pubsub_patterns", in.channels.Count(client.ToPattern))
	field(out, "pubsubshard_channels", in.channels.Count(client.ToShardChannel))
	fields(out, "latest_fork_usec:0", "total_forks:0", "migrate_cached_sockets:0", "slave_expires_tracked_keys:0",
		"active_defrag_hits:0",
		"active_defrag_misses:0", "active_defrag_key_hits:0", "active_defrag_key_misses:0", "total_active_defrag_time:0",
		"current_active_defrag_time:0")
	field(out, "tracking_total_keys", in.tracking.Figures().Keys)
	field(out, "tracking_total_items", in.tracking.Figures().Items)
	field(out, "tracking_total_prefixes", in.tracking.Figures().Prefixes)
	fields(out, "unexpected_error_replies:0")
	field(out, "total_error_replies", s.errors.Load())
	fields(out, "dump_payload_sanitizations:0")
	field(out, "total_reads_processed", t.Reads)
	field(out, "total_writes_processed", t.Writes)
	fields(out, "io_threaded_reads_processed:0", "io_threaded_writes_processed:0", "reply_buffer_shrinks:0",
		"reply_buffer_expands:0")
	field(out, "client_query_buffer_limit_disconnections", s.queryCut.Load())
	field(out, "client_output_buffer_limit_disconnections", in.clients.OutputCut())
	for why, reason := range access.Reasons {
		if reason != "" {
			field(out, "acl_access_denied_"+strings.Replace(reason, "command", "cmd", 1),
				in.accounts.DeniedLog.Denied[why].Load())
		}
	}
}

func infoModules(*command.Call, *strings.Builder) {}

func infoCommandStats(c *command.Call, out *strings.Builder) {
	instanceOf(c).eachStats(func(row *command.Command, r *stats.Calls) {
		usec, perCall := r.Usec()
		field(out, "cmdstat_"+row.Name, fmt.Sprintf("calls=%d,usec=%d,usec_per_call=%.2f,rejected_calls=%d,failed_calls=%d",
			r.Calls.Load(), usec, perCall, r.Rejected.Load(), r.Failed.Load()))
	})
}

func infoErrorStats(c *command.Call, out *strings.Builder) {
	instanceOf(c).codes.Each(func(code string,
		count int64) {
		field(out, "errorstat_"+code, fmt.Sprintf("count=%d", count))
	})
}

func infoLatencyStats(c *command.Call, out *strings.Builder) {
	instanceOf(c).eachStats(func(row *command.Command, r *stats.Calls) {
		if r.Tracked.Load() == 0 {
			return
		}
		var shares []string
		for _, percent := range *instanceOf(c).latency.percentiles.Load() {
			shares = append(shares, fmt.Sprintf("p%s=%d.000", shownPercent(percent), r.Percentile(percent/100)))
		}
		field(out, "latency_percentiles_usec_"+row.Name, strings.Join(shares, ","))
	})
}

// infoDecisions shows what the limiters have decided: how often they allowed, and limited.
func infoDecisions(c *command.Call, out *strings.Builder) {
	instanceOf(c).eachStats(func(row *command.Command, r *stats.Calls) {
		if row.Traits&command.Decides == 0 {
			return
		}
		limited := r.Limited.Load()
		field(out, "cell_decisions_"+strings.ReplaceAll(row.Name, ".", "_"), fmt.Sprintf("allowed=%d,limited=%d",
			max(r.Calls.Load()-r.Failed.Load()-limited, 0), limited))
	})
}
