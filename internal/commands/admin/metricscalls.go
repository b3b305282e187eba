package admin

import (
	"cellserver/internal/command"
	"cellserver/internal/limit"
	"cellserver/internal/maxmemory"
	"cellserver/internal/metric"
	"cellserver/internal/stats"
	"cellserver/internal/store"
)

var (
	calls         = metric.NewCounter("commands_total", "Calls that were made, by command.", "command")
	callsFailed   = metric.NewCounter("commands_failed_total", "Calls that were made and answered with an error.", "command")
	callsRejected = metric.NewCounter("commands_rejected_total", "Calls that were refused before they were made: rights, number of arguments, memory.", "command")
	callTimes     = metric.NewHistogram("command_duration_seconds", "How long the timed calls took, without the network, "+
		"by command; all subcommands together. Of quick commands a sample is timed: commands_total counts all calls.", "command")
)

// callMetrics counts calls by command. The commands are in the table, so their number is bounded.
func callMetrics(server *command.Server) metric.Group {
	return metric.Group{
		Metrics: []*metric.Metric{calls, callsFailed, callsRejected, callTimes},
		Read: func(out *metric.Samples) {
			var times durations
			server.EachCalled(func(row *command.Command, r *stats.Calls) {
				out.Int(calls, r.Calls.Load(), row.Name)
				out.Int(callsFailed, r.Failed.Load(), row.Name)
				out.Int(callsRejected, r.Rejected.Load(), row.Name)
				times.add(row, r, out)
			})
			times.flush(out)
		},
	}
}

// durations adds up the durations of a container's subcommands, which follow one another. Together they are
// one histogram, because there are as many subcommands as commands, and a histogram is long.
type durations struct {
	of      *command.Command // the container, or the command
	sum     float64
	counted metric.Durations
}

func (d *durations) add(row *command.Command, r *stats.Calls, out *metric.Samples) {
	of := row
	if row.Parent != nil {
		of = row.Parent
	}
	below, count, sum := r.Durations()
	if of != d.of {
		d.flush(out)
		*d = durations{of, sum, metric.Durations{Count: count, Buckets: below}}
		return
	}
	d.sum += sum
	d.counted.Count += count
	for bound, n := range below {
		d.counted.Buckets[bound] += n
	}
}

func (d *durations) flush(out *metric.Samples) {
	if d.counted.Count > 0 {
		out.Histogram(callTimes, d.sum, d.counted, d.of.Name)
	}
}

var (
	memoryUsed     = metric.NewGauge("memory_used_bytes", "Memory in use: keys and everything else, with garbage that is not collected yet.")
	memoryPeak     = metric.NewGauge("memory_peak_bytes", "The largest memory_used_bytes that was measured.")
	memoryResident = metric.NewGauge("memory_resident_bytes", "Memory that the system has given to the process.")
	memoryMax      = metric.NewGauge("memory_max_bytes", "The bound beyond which calls that need memory are refused (maxmemory); 0 for none.")
	memoryFull     = metric.NewGauge("memory_full", "1 while calls that need memory are refused.")
	keysMemory     = metric.NewGauge("keys_memory_bytes", "Memory of the keys.")
	keyCount       = metric.NewGauge("keys", "Keys of all databases; limits that have recovered, and are not removed yet, count.")
	keysByKind     = metric.NewGauge("keys_by_kind", "The same keys by their kind, as CL.INSPECT calls it; all values are string.", "kind")
	keysForever    = metric.NewGauge("keys_without_expiry", "Keys that do not expire.")
	keysExpired    = metric.NewCounter("keys_expired_total", "Keys that have expired.")
)

func (a *Admin) memoryMetrics(server *command.Server) metric.Group {
	list := []*metric.Metric{memoryUsed, memoryPeak, memoryResident, memoryMax, memoryFull}
	if server.Abilities&store.ReportsUsage != 0 {
		list = append(list, keysMemory, keyCount, keysByKind, keysForever, keysExpired)
	}
	return metric.Group{Metrics: list, Read: func(out *metric.Samples) {
		out.Int(memoryUsed, a.Memory.Used())
		out.Int(memoryPeak, a.Memory.Peak())
		out.Int(memoryResident, maxmemory.Resident())
		out.Int(memoryMax, a.Memory.Limit())
		out.Bool(memoryFull, server.Hooks.Has(command.Full))
		if server.Abilities&store.ReportsUsage != 0 {
			readUsage(a.Store, server, out)
		}
	}}
}

func readUsage(s store.Store, server *command.Server, out *metric.Samples) {
	var sum store.Usage
	for _, u := range store.UsageOf(s) {
		sum.Keys, sum.NoExpiry = sum.Keys+u.Keys, sum.NoExpiry+u.NoExpiry
		sum.Bytes, sum.Expired = sum.Bytes+u.Bytes, sum.Expired+u.Expired
		for kind, n := range u.ByKind {
			sum.ByKind[kind] += n
		}
	}
	out.Int(keysMemory, sum.Bytes)
	out.Int(keyCount, int64(sum.Keys))
	for kind := limit.Throttle; !kind.IsValue(); kind++ {
		out.Int(keysByKind, int64(sum.ByKind[kind]), kind.String())
	}
	out.Int(keysByKind, int64(sum.ByKind[limit.Integer]+sum.ByKind[limit.Bytes]), "string")
	out.Int(keysForever, int64(sum.NoExpiry))
	out.Int(keysExpired, sum.Expired-server.Stats.ExpiredThen.Load())
}
