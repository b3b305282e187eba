package admin

import (
	"fmt"
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"cellserver/internal/command"
	"cellserver/internal/store"
)

func (a *Admin) info() *command.Command {
	return &command.Command{
		Name: "info", Group: "server", Since: "1.0.0", Complexity: "O(1)",
		Flags: command.Loading | command.Stale | command.Dangerous, Traits: command.AnyKey,
		Category: "none", Summary: "Describes the server.",
		Tips:  []string{"nondeterministic_output", command.AllShards, "response_policy:special"},
		Args:  []command.Arg{command.Word("section").Optional().Many()},
		Reply: "Lines of field:value, by section; all sections but commandstats and latencystats if none is named.",
		Run: func(c *command.Call) error {
			wanted := c.Many()
			countCalls(c)
			var out command.InfoText
			for _, s := range sections {
				if !s.isWanted(wanted) || s.mayBeMissing && !a.hasPart(s.name) {
					continue
				}
				if out.Len() > 0 {
					out.WriteString("\r\n")
				}
				fmt.Fprintf(&out, "# %s\r\n", s.name)
				for _, part := range a.Info {
					if part.Section == s.name {
						part.Write(c, &out)
					}
				}
			}
			c.Out.Verbatim("txt", out.String())
			return nil
		},
	}
}

// section is a section of INFO. It leaves out the fields of Redis that have no meaning here.
type section struct {
	name         string
	onRequest    bool // shown only if it is named, or all sections are requested
	mayBeMissing bool // left out if no family has a part of it
}

func (a *Admin) hasPart(section string) bool {
	return slices.ContainsFunc(a.Info, func(p command.InfoPart) bool { return p.Section == section })
}

func (s section) isWanted(names [][]byte) bool {
	if len(names) == 0 {
		return !s.onRequest
	}
	return slices.ContainsFunc(names, func(name []byte) bool {
		n := strings.ToLower(string(name))
		return n == "all" || n == "everything" || n == "default" && !s.onRequest || n == strings.ToLower(s.name)
	})
}

// sections are in Redis's order.
var sections = []section{
	{name: "Server"}, {name: "Clients"}, {name: "Memory"}, {name: "Persistence"}, {name: "Stats"},
	{name: "Replication"}, {name: "CPU"}, {name: "Modules"}, {name: "Commandstats", onRequest: true},
	{name: "Errorstats"}, {name: "Latencystats", onRequest: true}, {name: "Cluster"}, {name: "Cell"},
	{name: "Policies", mayBeMissing: true}, {name: "Envoy", mayBeMissing: true}, {name: "Store", mayBeMissing: true},
	{name: "Keyspace"},
}

// OwnInfo returns the parts of INFO that the family writes itself.
func (a *Admin) OwnInfo() []command.InfoPart {
	return append(describeStore(a.Store), []command.InfoPart{
		{Section: "Server", Write: a.infoServer}, {Section: "Clients", Write: a.infoClients},
		{Section: "Memory", Write: a.infoMemory},
		{Section: "Stats", Write: a.infoStats}, {Section: "Replication", Write: a.infoReplication},
		{Section: "CPU", Write: infoCPU}, {Section: "Commandstats", Write: infoCommandStats},
		{Section: "Errorstats", Write: infoErrorStats}, {Section: "Latencystats", Write: infoLatencyStats},
		{Section: "Cluster", Write: infoCluster}, {Section: "Cell", Write: infoCell},
		{Section: "Keyspace", Write: infoKeyspace},
	}...)
}

func (a *Admin) infoServer(c *command.Call, out *command.InfoText) {
	up := (c.Now() - a.Started) / 1e9
	out.Add("redis_version", command.RedisVersion)
	out.Add("cellserver_version", a.Version)
	out.Add("redis_mode", "standalone")
	out.Add("os", runtime.GOOS+" "+runtime.GOARCH)
	out.Add("arch_bits", strconv.IntSize)
	out.Add("go_version", runtime.Version())
	out.Add("process_id", os.Getpid())
	out.Add("goroutines", runtime.NumGoroutine())
	out.Add("run_id", a.RunID)
	out.Add("tcp_port", a.Port)
	out.Add("server_time_usec", c.Unix(c.Now())/1000)
	out.Add("uptime_in_seconds", up)
	out.Add("uptime_in_days", up/86400)
}

func (a *Admin) infoClients(c *command.Call, out *command.InfoText) {
	out.Add("connected_clients", a.Clients.Count())
	out.Fixed("cluster_connections:0")
	if most := a.Options.Show("maxclients"); most != "" {
		out.Add("maxclients", most)
	}
	_, input, replies := a.Clients.Buffers()
	out.Add("client_recent_max_input_buffer", input)
	out.Add("client_recent_max_output_buffer", replies)
}

func (a *Admin) infoReplication(c *command.Call, out *command.InfoText) {
	out.Fixed("role:master", "connected_slaves:0", "master_failover_state:no-failover")
	out.Add("master_replid", a.RunID)
	out.Fixed("master_replid2:0000000000000000000000000000000000000000", "master_repl_offset:0", "second_repl_offset:-1",
		"repl_backlog_active:0", "repl_backlog_size:0", "repl_backlog_first_byte_offset:0", "repl_backlog_histlen:0")
}

func infoCPU(_ *command.Call, out *command.InfoText) {
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) != nil {
		return
	}
	out.Add("used_cpu_sys", fmt.Sprintf("%d.%06d", used.Stime.Sec, used.Stime.Usec))
	out.Add("used_cpu_user", fmt.Sprintf("%d.%06d", used.Utime.Sec, used.Utime.Usec))
	out.Fixed("used_cpu_sys_children:0.000000", "used_cpu_user_children:0.000000")
	out.Add("gc_cpu_percent", fmt.Sprintf("%.3f", gcPercent()))
}

func infoCluster(_ *command.Call, out *command.InfoText) { out.Add("cluster_enabled", 0) }

// infoCell writes the section for which Redis has no fields. The offset is how far the wall clock
// has been set since the start; decisions depend on elapsed time alone.
func infoCell(c *command.Call, out *command.InfoText) {
	out.Add("cell_clock_offset_ms", c.Server.Clock.Offset()/1e6)
	if turns := c.Server.Stats.Turns; turns != nil {
		out.Add("longest_loop_callback_usec", turns.Value().Microseconds())
		out.Add("loop_callbacks_over_1ms", turns.OverMillisecond())
	}
	if holds := c.Server.Stats.Holds; holds != nil {
		out.Add("longest_lock_hold_usec", holds.Value().Microseconds())
		out.Add("lock_holds_over_1ms", holds.OverMillisecond())
	}
}

func infoKeyspace(c *command.Call, out *command.InfoText) {
	for n, u := range store.UsageOf(c.View) {
		if u.Keys > 0 {
			out.Add(fmt.Sprintf("db%d", n), fmt.Sprintf("keys=%d,expires=%d,avg_ttl=0", u.Keys, u.Keys-u.NoExpiry))
		}
	}
}

// gcPercent returns the share of the garbage collector in the CPU time of the process, in percent,
// as of the last collection.
func gcPercent() float64 {
	samples := []metrics.Sample{{Name: "/cpu/classes/gc/total:cpu-seconds"}, {Name: "/cpu/classes/total:cpu-seconds"},
		{Name: "/cpu/classes/idle:cpu-seconds"}}
	metrics.Read(samples)
	used := samples[1].Value.Float64() - samples[2].Value.Float64()
	if used <= 0 {
		return 0
	}
	return 100 * samples[0].Value.Float64() / used
}
