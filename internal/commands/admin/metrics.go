package admin

import (
	"runtime"
	"strconv"

	"cellserver/internal/command"
	"cellserver/internal/meter"
	"cellserver/internal/metric"
	"cellserver/internal/store"
)

// The metrics have the figures of INFO. They are named here in the order in which they are read.
var (
	buildInfo = metric.NewGauge("build_info", "Always 1; the labels say what runs.", "version", "goversion")
	clockSet  = metric.NewGauge("clock_offset_seconds",
		"How far the wall clock was set since the start. Limits depend on elapsed time alone.")

	connections       = metric.NewGauge("connections", "Connected clients.")
	connectionsMax    = metric.NewGauge("connections_max", "Clients that may be connected at once (maxclients).")
	connectionsNew    = metric.NewGauge("connections_unauthenticated", "Connections that have not logged in, where there is a password.")
	connectionsTotal  = metric.NewCounter("connections_total", "Connections that became clients.")
	connectionsDenied = metric.NewCounter("connections_refused_total", "Connections that were refused: too many, or by protected mode.")
	connectionsCut    = metric.NewCounter("connections_cut_total",
		"Clients that were disconnected for their memory: unread replies (output), unanswered input (input), "+
			"maxmemory-clients (memory), maxmemory-unauthenticated (unauthenticated).", "reason")
	clientMemory = metric.NewGauge("clients_memory_bytes", "Memory that all clients hold: input, replies, messages, queued calls.")

	received      = metric.NewCounter("received_bytes_total", "Bytes read from clients.")
	sent          = metric.NewCounter("sent_bytes_total", "Bytes written to clients.")
	reads         = metric.NewCounter("reads_total", "Reads from the sockets of clients.")
	writes        = metric.NewCounter("writes_total", "Writes to the sockets of clients.")
	hits          = metric.NewCounter("keyspace_hits_total", "Keys that were read and existed.")
	misses        = metric.NewCounter("keyspace_misses_total", "Keys that were read and did not exist.")
	errorReplies  = metric.NewCounter("errors_total", "Error replies by their code, such as OOM, which refuses calls that need memory.", "code")
	slowCalls     = metric.NewCounter("slow_calls_total", "Calls that took at least slowlog-log-slower-than.")
	slowLogLength = metric.NewGauge("slow_log_entries", "Calls that SLOWLOG keeps.")
)

// Metrics lists the metrics that the family reads itself.
func (a *Admin) Metrics(server *command.Server) []metric.Group {
	groups := []metric.Group{
		{Metrics: []*metric.Metric{buildInfo, clockSet}, Read: func(out *metric.Samples) {
			out.Int(buildInfo, 1, a.Version, runtime.Version())
			out.Float(clockSet, float64(server.Clock.Offset())/1e9)
		}},
		{
			Metrics: []*metric.Metric{
				connections, connectionsMax, connectionsNew, connectionsTotal, connectionsDenied, connectionsCut,
				clientMemory,
			},
			Read: func(out *metric.Samples) { a.readConnections(server, out) },
		},
		{
			Metrics: []*metric.Metric{received, sent, reads, writes, hits, misses, errorReplies, slowCalls,
				slowLogLength},
			Read: func(out *metric.Samples) { readTraffic(server, out) },
		},
		a.memoryMetrics(server), callMetrics(server),
	}
	groups = append(groups, loopMetrics(server)...)
	groups = append(groups, storeMetrics(a.Store)...)
	return append(groups, tripMetrics(a.Store)...)
}

func (a *Admin) readConnections(server *command.Server, out *metric.Samples) {
	s, unauthenticated := &server.Stats, a.Clients.Unauthenticated().Stats()
	out.Int(connections, int64(a.Clients.Count()))
	if most, err := strconv.ParseInt(a.Options.Show("maxclients"), 10, 64); err == nil {
		out.Int(connectionsMax, most)
	}
	out.Int(connectionsNew, int64(unauthenticated.Connections))
	out.Int(connectionsTotal, s.Connections.Load())
	out.Int(connectionsDenied, s.Refused.Load())
	out.Int(connectionsCut, a.Clients.OutputCut(), "output")
	out.Int(connectionsCut, s.QueryCut.Load(), "input")
	out.Int(connectionsCut, a.Clients.Eviction().Evicted, "memory")
	out.Int(connectionsCut, unauthenticated.Cut, "unauthenticated")
	out.Int(clientMemory, a.Clients.HeldBytes())
}

func readTraffic(server *command.Server, out *metric.Samples) {
	s := &server.Stats
	moved := s.Traffic.Sum()
	out.Int(received, moved.In)
	out.Int(sent, moved.Out)
	out.Int(reads, moved.Reads)
	out.Int(writes, moved.Writes)
	out.Int(hits, s.Hits.Load())
	out.Int(misses, s.Misses.Load())
	refused := int64(0)
	s.Codes.Each(func(code string, count int64) {
		if code == "OOM" {
			refused = count
			return
		}
		out.Int(errorReplies, count, code)
	})
	out.Int(errorReplies, refused, "OOM") // even if there is none: an increase needs a number to begin with
	out.Int(slowCalls, s.SlowLog.Total())
	out.Int(slowLogLength, int64(s.SlowLog.Count()))
}

var (
	turnLongest = metric.NewGauge("loop_turn_longest_seconds", "The longest turn of an event loop since the start, in CPU time (--measure-pauses loops).")
	turnsLong   = metric.NewCounter("loop_turns_over_millisecond_total", "Turns of event loops of more than a millisecond (--measure-pauses loops).")
	holdLongest = metric.NewGauge("lock_hold_longest_seconds", "The longest time that a lock was held since the start, in CPU time (--measure-pauses locks).")
	holdsLong   = metric.NewCounter("lock_holds_over_millisecond_total", "Times that a lock was held for more than a millisecond (--measure-pauses locks).")
)

// loopMetrics returns the metrics of what --measure-pauses measures, if anything.
func loopMetrics(server *command.Server) (groups []metric.Group) {
	for _, m := range []struct {
		measured *meter.MaxCPUTime
		longest  *metric.Metric
		over     *metric.Metric
	}{{server.Stats.Turns, turnLongest, turnsLong}, {server.Stats.Holds, holdLongest, holdsLong}} {
		if m.measured == nil {
			continue
		}
		groups = append(groups,
			metric.Group{Metrics: []*metric.Metric{m.longest, m.over}, Read: func(out *metric.Samples) {
				out.Float(m.longest, m.measured.Value().Seconds())
				out.Int(m.over, m.measured.OverMillisecond())
			}})
	}
	return groups
}

// storeMetrics returns what a store in another program describes for INFO.
func storeMetrics(s store.Store) []metric.Group {
	described, ok := s.(store.Describer)
	if !ok {
		return nil
	}
	byField := make(map[string]*metric.Metric, len(storeFields))
	var list []*metric.Metric
	for _, f := range storeFields {
		byField[f.field] = f.metric
		list = append(list, f.metric)
	}
	return []metric.Group{{Metrics: list, Read: func(out *metric.Samples) {
		described.Describe(func(name string, value any) {
			m := byField[name]
			switch v := value.(type) {
			case int64:
				if m != nil {
					out.Int(m, v)
				}
			case int:
				if m != nil {
					out.Int(m, int64(v))
				}
			}
		})
	}}}
}

var storeTrips = metric.NewHistogram("store_round_trip_seconds",
	"How long pipelines to the store took, from the first byte written to the last reply read. "+
		"Pipelines without an answer do not count.")

// tripMetrics returns the durations of the round trips to a store in another program.
func tripMetrics(s store.Store) []metric.Group {
	counted, ok := s.(store.RoundTripper)
	if !ok {
		return nil
	}
	return []metric.Group{{Metrics: []*metric.Metric{storeTrips}, Read: func(out *metric.Samples) {
		below, count, sum := counted.RoundTrips()
		out.Histogram(storeTrips, sum, metric.Durations{Count: count, Buckets: below})
	}}}
}

// storeFields are the fields of the section Store of INFO that are metrics too.
var storeFields = []struct {
	field  string
	metric *metric.Metric
}{
	{"store_steps", metric.NewCounter("store_steps_total", "Steps that were given to the store (--store).")},
	{"store_steps_waiting", metric.NewGauge("store_steps_waiting", "Steps that have not ended yet.")},
	{"store_pipelines", metric.NewCounter("store_pipelines_total", "Pipelines sent to the store; each is a round trip.")},
	{"store_requests", metric.NewCounter("store_requests_total", "Requests in these pipelines.")},
	{"store_conflicts", metric.NewCounter("store_conflicts_total", "Writes that were not done because another server had written before.")},
	{"store_calls_contended", metric.NewCounter("store_contended_total", "Steps that ended because too many others use their key.")},
	{"store_steps_scripted", metric.NewCounter("store_steps_scripted_total", "Steps that the store made itself, on keys that several processes write.")},
	{"store_lease_spent", metric.NewCounter("store_lease_spent_total", "Calls that were allowed with tokens taken ahead (--store-lease).")},
	{"store_lease_refused", metric.NewCounter("store_lease_refused_total", "Calls that were refused without the store, shortly after a refusal (--store-lease).")},
	{"store_requests_resent", metric.NewCounter("store_requests_resent_total", "Requests that were sent again, because nothing had been done.")},
	{"store_requests_refused", metric.NewCounter("store_requests_refused_total", "Requests that the store refused.")},
	{"store_breaker_openings", metric.NewCounter("store_breaker_openings_total", "Times that the circuit breaker of a server of the store has opened.")},
	{"store_breakers_open", metric.NewGauge("store_breakers_open", "Servers of the store whose circuit breaker is open: calls on their keys fail at once.")},
	{"store_denials_known", metric.NewCounter("store_denials_known_total", "Decisions by a remembered value (--store-cache-denials).")},
	{"store_keys_known", metric.NewGauge("store_keys_known", "Keys whose values are remembered.")},
	{"store_keys_known_bytes", metric.NewGauge("store_keys_known_bytes", "Bytes of these keys and values.")},
	{"store_reached", metric.NewGauge("store_reached", "Whether a server of the store was reached since the start.")},
}
