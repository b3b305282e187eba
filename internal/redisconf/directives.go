package redisconf

import (
	"fmt"
	"slices"
	"strings"
)

// group is a group of directives about one subject.
type group struct {
	about string
	names []string
}

// harmless are directives of Redis that are skipped, whatever their values: they tune a feature
// that this server does not have, or that it implements in its own way.
var harmless = []group{
	{"process", strings.Fields(`daemonize pidfile always-show-logo set-proc-title proc-title-template locale-collate
		crash-log-enabled crash-memcheck-enabled disable-thp ignore-warnings oom-score-adj-values
		syslog-ident syslog-facility hide-user-data-from-log bio_cpulist aof_rewrite_cpulist bgsave_cpulist
		io-threads-do-reads max-new-connections-per-cycle max-new-tls-connections-per-cycle bind-source-addr
		socket-mark-id`)},
	{"memory and data structures", strings.Fields(`hz dynamic-hz activerehashing activedefrag
		active-defrag-ignore-bytes active-defrag-threshold-lower active-defrag-threshold-upper
		active-defrag-cycle-min active-defrag-cycle-max active-defrag-max-scan-fields active-expire-effort
		jemalloc-bg-thread maxmemory-samples maxmemory-eviction-tenacity lfu-log-factor lfu-decay-time
		lazyfree-lazy-eviction lazyfree-lazy-expire lazyfree-lazy-server-del lazyfree-lazy-user-del
		lazyfree-lazy-user-flush hash-max-listpack-entries hash-max-listpack-value hash-max-ziplist-entries
		hash-max-ziplist-value list-max-listpack-size list-max-ziplist-size list-compress-depth
		set-max-intset-entries set-max-listpack-entries set-max-listpack-value zset-max-listpack-entries
		zset-max-listpack-value zset-max-ziplist-entries zset-max-ziplist-value hll-sparse-max-bytes
		stream-node-max-bytes stream-node-max-entries lua-time-limit busy-reply-threshold`)},
	{"files", strings.Fields(`rdbcompression rdbchecksum rdb-del-sync-files sanitize-dump-payload
		rdb-save-incremental-fsync appendfilename appenddirname no-appendfsync-on-rewrite
		auto-aof-rewrite-percentage auto-aof-rewrite-min-size aof-load-truncated aof-use-rdb-preamble
		aof-timestamp-enabled aof-disable-auto-gc aof-rewrite-incremental-fsync`)},
	{"replication and cluster", strings.Fields(`masterauth masteruser replica-serve-stale-data
		slave-serve-stale-data replica-read-only slave-read-only repl-diskless-sync repl-diskless-sync-delay
		repl-diskless-sync-max-replicas repl-diskless-load repl-ping-replica-period repl-ping-slave-period
		repl-timeout repl-disable-tcp-nodelay repl-backlog-size repl-backlog-ttl replica-priority
		slave-priority replica-announced replica-announce-ip slave-announce-ip replica-announce-port
		slave-announce-port replica-ignore-maxmemory slave-ignore-maxmemory replica-lazy-flush
		slave-lazy-flush replica-ignore-disk-write-errors replica-full-sync-buffer-limit
		propagation-error-behavior min-replicas-max-lag min-slaves-max-lag tls-replication tls-cluster
		tls-client-cert-file tls-client-key-file tls-client-key-file-pass cluster-config-file
		cluster-node-timeout cluster-port cluster-replica-validity-factor cluster-slave-validity-factor
		cluster-migration-barrier cluster-allow-replica-migration cluster-require-full-coverage
		cluster-replica-no-failover cluster-slave-no-failover cluster-allow-reads-when-down
		cluster-allow-pubsubshard-when-down cluster-link-sendbuf-limit cluster-announce-hostname
		cluster-announce-human-nodename cluster-announce-ip cluster-announce-port cluster-announce-tls-port
		cluster-announce-bus-port cluster-preferred-endpoint-type`)},
	{"TLS", strings.Fields(`tls-dh-params-file tls-session-cache-size tls-session-cache-timeout`)},
}

// promise is a directive of Redis that promises something which this server does not do.
type promise struct {
	name   string
	allows []string // values that promise nothing; such a directive is skipped
	advice string
}

const (
	noReplicas = "there is no replication: leave it out; several servers share their limits with the directive store"
	noModules  = "there are no modules: leave it out; the limiters are built in"
	cpuList    = "it is not supported: leave it out, and use taskset, or CPUAffinity in the systemd unit"
	onSignal   = "the server always shuts down in the same way: leave it out"
)

// promises lists the directives that are refused, except with one of the values that promise nothing.
var promises = []promise{
	{"replicaof", []string{"no one"}, noReplicas},
	{"slaveof", []string{"no one"}, noReplicas},
	{"min-replicas-to-write", []string{"0"}, noReplicas},
	{"min-slaves-to-write", []string{"0"}, noReplicas},
	{"cluster-enabled", []string{"no"},
		"there is no cluster mode: leave it out; with the directive store, the keys can be in a Redis cluster"},
	{"maxmemory-policy", []string{"noeviction"},
		"nothing is evicted, because a limiter whose key is gone admits its client again: use noeviction, or leave it out"},
	{"include", nil, "other files are not read: copy the lines of that file into this one"},
	{"loadmodule", nil, noModules},
	{"enable-module-command", []string{"no"}, noModules},
	{"syslog-enabled", []string{"no"},
		"there is no syslog: leave it out; the log goes to logfile, or to standard error, which systemd collects"},
	{"supervised", []string{"no", "auto", "systemd"},
		"upstart is not supported: leave it out; systemd is notified if the unit has Type=notify"},
	{"oom-score-adj", []string{"no"}, "it is not supported: leave it out, and use OOMScoreAdjust in the systemd unit"},
	{"server_cpulist", nil, cpuList},
	{"server-cpulist", nil, cpuList},
	{"shutdown-on-sigint", []string{"default"}, onSignal},
	{"shutdown-on-sigterm", []string{"default"}, onSignal},
	{"tls-key-file-pass", []string{""},
		"a key with a passphrase cannot be read: decrypt it with openssl pkey, and leave it out"},
	{"gopher-enabled", []string{"no"}, "there is no Gopher: leave it out"},
}

// verdict says how to treat a directive that may be one of Redis's.
type verdict struct {
	known  bool   // it is in harmless or promises
	advice string // for a directive that is refused; empty if it is skipped
}

// judge says how to treat a directive.
func judge(name string, args []string) verdict {
	value := strings.ToLower(strings.Join(args, " "))
	if name == "appendonly" && value == "no" {
		return verdict{known: true} // with dir, changes are always written, which is more than the directive asks for
	}
	for _, p := range promises {
		if p.name != name {
			continue
		}
		if slices.Contains(p.allows, value) || len(args) == 1 && value == "" {
			return verdict{known: true}
		}
		return verdict{known: true, advice: p.advice}
	}
	isHarmless := slices.ContainsFunc(harmless, func(g group) bool { return slices.Contains(g.names, name) })
	return verdict{known: isHarmless}
}

// Markdown returns the skipped and the refused directives, for the documentation.
func Markdown() string {
	var out strings.Builder
	out.WriteString("These directives are skipped:\n\n| | |\n|---|---|\n")
	for _, g := range harmless {
		fmt.Fprintf(&out, "| %s | `%s` |\n", g.about, strings.Join(g.names, "` `"))
	}
	out.WriteString("\nThese are refused, unless they have one of the values that promise nothing:\n\n" +
		"| Directive | Skipped if | |\n|---|---|---|\n")
	for _, p := range promises {
		allowed := slices.DeleteFunc(slices.Clone(p.allows), func(value string) bool { return value == "" })
		for i, value := range allowed {
			allowed[i] = "`" + value + "`"
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s |\n", p.name, strings.Join(allowed, ", "), p.advice)
	}
	return out.String()
}
