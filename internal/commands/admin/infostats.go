package admin

import (
	"fmt"
	"strings"

	"cellserver/internal/command"
	"cellserver/internal/stats"
	"cellserver/internal/store"
)

// expiredKeys returns how many keys have expired since the start. It asks the call's own view,
// because a transaction must not use another. Swept is the number of these keys that were removed without a
// call on them.
func expiredKeys(view store.View) (expired, swept int64) {
	for _, u := range store.UsageOf(view) {
		expired += u.Expired
		swept += u.Swept
	}
	return expired, swept
}

func (a *Admin) infoStats(c *command.Call, out *command.InfoText) {
	s := &c.Server.Stats
	t := s.Traffic.Sum()
	calls, read, written := s.Rates.PerSecond()
	out.Add("total_connections_received", s.Connections.Load())
	out.Add("total_commands_processed", s.Made())
	out.Add("instantaneous_ops_per_sec", calls)
	out.Add("total_net_input_bytes", t.In)
	out.Add("total_net_output_bytes", t.Out)
	out.Fixed("total_net_repl_input_bytes:0", "total_net_repl_output_bytes:0")
	out.Add("instantaneous_input_kbps", ratio(read, 1024))
	out.Add("instantaneous_output_kbps", ratio(written, 1024))
	out.Fixed("instantaneous_input_repl_kbps:0.00", "instantaneous_output_repl_kbps:0.00")
	out.Add("rejected_connections", s.Refused.Load())
	out.Fixed("sync_full:0", "sync_partial_ok:0", "sync_partial_err:0")
	if c.Server.Abilities&store.ReportsUsage != 0 {
		expired, swept := expiredKeys(c.View)
		out.Add("expired_keys", expired-s.ExpiredThen.Load())
		out.Add("expired_keys_active", swept-s.SweptThen.Load())
	}
	out.Fixed("expired_stale_perc:0.00", "expired_time_cap_reached_count:0", "expire_cycle_cpu_milliseconds:0",
		"evicted_keys:0")
	out.Add("evicted_clients", a.Clients.Eviction().Evicted)
	out.Fixed("total_eviction_exceeded_time:0", "current_eviction_exceeded_time:0")
	out.Add("keyspace_hits", s.Hits.Load())
	out.Add("keyspace_misses", s.Misses.Load())
	out.Fixed("latest_fork_usec:0", "total_forks:0", "migrate_cached_sockets:0", "slave_expires_tracked_keys:0",
		"active_defrag_hits:0",
		"active_defrag_misses:0", "active_defrag_key_hits:0", "active_defrag_key_misses:0",
		"total_active_defrag_time:0",
		"current_active_defrag_time:0")
	out.Fixed("unexpected_error_replies:0")
	out.Add("total_error_replies", s.Errors.Load())
	out.Fixed("dump_payload_sanitizations:0")
	out.Add("total_reads_processed", t.Reads)
	out.Add("total_writes_processed", t.Writes)
	out.Fixed("io_threaded_reads_processed:0", "io_threaded_writes_processed:0", "reply_buffer_shrinks:0",
		"reply_buffer_expands:0")
	out.Add("client_query_buffer_limit_disconnections", s.QueryCut.Load())
	out.Add("client_output_buffer_limit_disconnections", a.Clients.OutputCut())
}

func infoCommandStats(c *command.Call, out *command.InfoText) {
	c.Server.EachCalled(func(row *command.Command, r *stats.Calls) {
		usec, perCall := r.Usec()
		out.Add("cmdstat_"+row.Name, fmt.Sprintf("calls=%d,usec=%d,usec_per_call=%.2f,rejected_calls=%d,failed_calls=%d",
			r.Calls.Load(), usec, perCall, r.Rejected.Load(), r.Failed.Load()))
	})
}

func infoErrorStats(c *command.Call, out *command.InfoText) {
	c.Server.Stats.Codes.Each(func(code string,
		count int64) {
		out.Add("errorstat_"+code, fmt.Sprintf("count=%d", count))
	})
}

func infoLatencyStats(c *command.Call, out *command.InfoText) {
	c.Server.EachCalled(func(row *command.Command, r *stats.Calls) {
		var shares []string
		for _, percent := range c.Server.Stats.Percentiles() {
			if usec, known := r.Percentile(percent / 100); known {
				shares = append(shares, fmt.Sprintf("p%s=%d.000", formatPercentile(percent), usec))
			}
		}
		if len(shares) > 0 {
			out.Add("latency_percentiles_usec_"+row.Name, strings.Join(shares, ","))
		}
	})
}
