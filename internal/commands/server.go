package commands

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

// Commands about the server itself.

var timeNow = command.Command{
	Name: "time", Group: "server", Category: "none", Since: "2.6.0", Complexity: "O(1)",
	Flags: command.Loading | command.Stale | command.Fast, Cost: command.Constant,
	Traits: command.Sessionless, Summary: "Returns the time of day.", Tips: command.Varying,
	Reply: "Two elements: Unix seconds, and the microseconds that have passed in this second.",
	Run: func(c *command.Call) error {
		us := c.Unix(c.View.Now()) / 1000
		c.Out.Array(2)
		c.Out.BulkString(strconv.FormatInt(us/1e6, 10))
		c.Out.BulkString(strconv.FormatInt(us%1e6, 10))
		return nil
	},
}

var config = command.Command{
	Name: "config", Group: "server", Category: "none", Since: "2.0.0",
	Complexity: "Depends on the subcommand.", Min: 2,
	Summary: "Commands about the server's settings.", AnyMore: true,
	Subs: []*command.Command{&configGet, &configResetStat, &configRewrite, &configSet, command.HelpOf("config", "5.0.0")},
}

var configGet = command.Command{
	Name: "config|get", Group: "server", Category: "none", Since: "2.0.0",
	Complexity: "O(N) in the number of settings",
	Flags:      command.Admin | command.Dangerous | command.NoScript | command.Loading | command.Stale,
	Summary:    "Returns the settings whose names match.",
	Args:       []command.Arg{command.Word("parameter").Many()}, Reply: "A map of names and values.",
	Run: func(c *command.Call) error {
		names, err := c.Match(c.Many())
		if err != nil {
			return err
		}
		found := instanceOf(c).options.Matching(names.Any)
		if err := names.Err(); err != nil {
			return err
		}
		c.Out.Map(len(found))
		for _, v := range found {
			c.Out.BulkString(v.Name)
			c.Out.BulkString(v.Value)
		}
		return nil
	},
}

var info = command.Command{
	Name: "info", Group: "server", Since: "1.0.0", Complexity: "O(1)",
	Flags: command.Loading | command.Stale | command.Dangerous, Traits: command.AnyKey,
	Category: "none", Summary: "Describes the server.",
	Tips:  []string{"nondeterministic_output", command.AllShards, "response_policy:special"},
	Args:  []command.Arg{command.Word("section").Optional().Many()},
	Reply: "Lines of field:value, by section; all sections but commandstats and latencystats if none is named.",
	Run: func(c *command.Call) error {
		wanted := c.Many()
		foldOwn(c)
		var out strings.Builder
		for _, s := range sections {
			if !s.wanted(wanted) {
				continue
			}
			if out.Len() > 0 {
				out.WriteString("\r\n")
			}
			fmt.Fprintf(&out, "# %s\r\n", s.name)
			s.write(c, &out)
		}
		c.Out.Verbatim("txt", out.String())
		return nil
	},
}

// section is a part of INFO. Fields are in Redis's names, and only those that this server has
// something to say about.
type section struct {
	name  string
	write func(c *command.Call, out *strings.Builder)
	asked bool // shown only where it is asked for, or all are
}

func (s section) wanted(names [][]byte) bool {
	if len(names) == 0 {
		return !s.asked
	}
	return slices.ContainsFunc(names, func(name []byte) bool {
		n := strings.ToLower(string(name))
		return n == "all" || n == "everything" || n == "default" && !s.asked || n == strings.ToLower(s.name)
	})
}

var sections = []section{
	{"Server", infoServer, false}, {"Clients", infoClients, false}, {"Memory", infoMemory, false},
	{"Persistence", infoPersistence, false},
	{"Stats", infoStats, false}, {"Replication", infoReplication, false}, {"CPU", infoCPU, false},
	{"Modules", infoModules, false},
	{"Commandstats", infoCommandStats, true}, {"Errorstats", infoErrorStats, false},
	{"Latencystats", infoLatencyStats, true},
	{"Cluster", infoCluster, false}, {"Cell", infoCell, false}, {"Keyspace", infoKeyspace, false},
}

func field(out *strings.Builder, name string, value any) { fmt.Fprintf(out, "%s:%v\r\n", name, value) }

func infoServer(c *command.Call, out *strings.Builder) {
	up := (c.View.Now() - instanceOf(c).started) / 1e9
	field(out, "redis_version", redisVersion)
	field(out, "cellserver_version", instanceOf(c).version)
	field(out, "redis_mode", "standalone")
	field(out, "os", runtime.GOOS+" "+runtime.GOARCH)
	field(out, "arch_bits", strconv.IntSize)
	field(out, "go_version", runtime.Version())
	field(out, "process_id", os.Getpid())
	field(out, "goroutines", runtime.NumGoroutine())
	field(out, "run_id", instanceOf(c).runID)
	field(out, "tcp_port", instanceOf(c).port)
	field(out, "server_time_usec", c.Unix(c.View.Now())/1000)
	field(out, "uptime_in_seconds", up)
	field(out, "uptime_in_days", up/86400)
}

func infoClients(c *command.Call, out *strings.Builder) {
	field(out, "connected_clients", instanceOf(c).clients.Count())
	fields(out, "cluster_connections:0")
	if most := instanceOf(c).options.Show("maxclients"); most != "" {
		field(out, "maxclients", most)
	}
	_, input, replies := instanceOf(c).clients.Buffers()
	field(out, "client_recent_max_input_buffer", input)
	field(out, "client_recent_max_output_buffer", replies)
	field(out, "blocked_clients", instanceOf(c).waits.count())
	field(out, "tracking_clients", instanceOf(c).tracking.Figures().Clients)
	field(out, "pubsub_clients", instanceOf(c).channels.Clients.Load())
	clients, keys := instanceOf(c).watches.counts()
	field(out, "watching_clients", clients)
	fields(out, "clients_in_timeout_table:0")
	field(out, "total_watched_keys", keys)
	fields(out, "total_blocking_keys:0", "total_blocking_keys_on_nokey:0")
}

func infoPersistence(c *command.Call, out *strings.Builder) {
	fields(out, "loading:0", "async_loading:0", "rdb_changes_since_last_save:0", "rdb_bgsave_in_progress:0")
	field(out, "rdb_last_save_time", c.Unix(instanceOf(c).started)/1e9)
	fields(out, "rdb_last_bgsave_status:ok", "aof_enabled:0", "aof_rewrite_in_progress:0", "aof_rewrite_scheduled:0")
}

func infoReplication(c *command.Call, out *strings.Builder) {
	fields(out, "role:master", "connected_slaves:0", "master_failover_state:no-failover")
	field(out, "master_replid", instanceOf(c).runID)
	fields(out, "master_replid2:0000000000000000000000000000000000000000", "master_repl_offset:0", "second_repl_offset:-1",
		"repl_backlog_active:0", "repl_backlog_size:0", "repl_backlog_first_byte_offset:0", "repl_backlog_histlen:0")
}

func infoCPU(_ *command.Call, out *strings.Builder) {
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) != nil {
		return
	}
	field(out, "used_cpu_sys", fmt.Sprintf("%d.%06d", used.Stime.Sec, used.Stime.Usec))
	field(out, "used_cpu_user", fmt.Sprintf("%d.%06d", used.Utime.Sec, used.Utime.Usec))
	fields(out, "used_cpu_sys_children:0.000000", "used_cpu_user_children:0.000000")
	field(out, "gc_cpu_percent", fmt.Sprintf("%.3f", garbageShare()))
}

func infoCluster(_ *command.Call, out *strings.Builder) { field(out, "cluster_enabled", 0) }

// infoCell is what Redis has no field for. The offset is how far the wall clock has been set away
// from elapsed time since the start; decisions go by elapsed time alone.
func infoCell(c *command.Call, out *strings.Builder) {
	field(out, "cell_clock_offset_ms", c.Server.Clock.Offset()/1e6)
	infoDecisions(c, out)
	if turns := instanceOf(c).turns; turns != nil {
		field(out, "longest_loop_callback_usec", turns.Value().Microseconds())
		field(out, "loop_callbacks_over_1ms", turns.OverMillisecond())
	}
	if holds := instanceOf(c).holds; holds != nil {
		field(out, "longest_lock_hold_usec", holds.Value().Microseconds())
		field(out, "lock_holds_over_1ms", holds.OverMillisecond())
	}
}

// garbageShare is what the garbage collector has used of the CPU time that the process has used, in
// percent; as of its last cycle.
func garbageShare() float64 {
	samples := []metrics.Sample{{Name: "/cpu/classes/gc/total:cpu-seconds"}, {Name: "/cpu/classes/total:cpu-seconds"},
		{Name: "/cpu/classes/idle:cpu-seconds"}}
	metrics.Read(samples)
	used := samples[1].Value.Float64() - samples[2].Value.Float64()
	if used <= 0 {
		return 0
	}
	return 100 * samples[0].Value.Float64() / used
}

func infoKeyspace(c *command.Call, out *strings.Builder) {
	for n, u := range store.UsageOf(c.View) {
		if u.Keys > 0 {
			field(out, fmt.Sprintf("db%d", n), fmt.Sprintf("keys=%d,expires=%d,avg_ttl=0", u.Keys, u.Keys-u.NoExpiry))
		}
	}
}
