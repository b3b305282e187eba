//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"cellserver/bench/report"
)

// measurement is what a scenario does.
type measurement func(ctx context.Context, b *bench) (report.Scenario, error)

// scenario is one measurement, with a name for --only.
type scenario struct {
	name  string
	about string
	run   measurement
}

// scenarios returns all scenarios, in the order in which they are run and published.
func scenarios(o *options) []scenario {
	few, many, million := 100_000, o.mostKeys, o.mostKeys/10
	peers := o.field(set, lua)
	overTCP, manyKeys := o.overTCP(), o.manyKeys(few)
	usual := func(pipeline, connections, keys int) cpuLoad {
		return cpuLoad{pipeline: pipeline, connections: connections, keys: keys, limit: limitUsual}
	}
	lasting := func(pipeline int) cpuLoad {
		return cpuLoad{pipeline: pipeline, connections: 50, keys: many, limit: limitLasting}
	}
	overSocket := func(pipeline int) cpuLoad {
		return cpuLoad{pipeline: pipeline, connections: 50, keys: few, limit: limitUsual, unix: true}
	}
	local := withSocket(o.field(overTCP))

	return slices.Concat([]scenario{
		{"cpu-p1", "P=1, 50 connections, 100k keys", usual(1, 50, few).cpu(peers)},
		{"cpu-p16", "P=16, 50 connections, 100k keys", usual(16, 50, few).cpu(peers)},
		{"cpu-p64", "P=64, 50 connections, 100k keys", usual(64, 50, few).cpu(peers)},
		{"cpu-p1-c1", "P=1, 1 connection, 100k keys", usual(1, 1, few).cpu(o.field())},
		{"cpu-p64-c1", "P=64, 1 connection, 100k keys", usual(64, 1, few).cpu(o.field())},
		{"cpu-p1-c500", "P=1, 500 connections, 100k keys", usual(1, 500, few).cpu(o.field())},
		{"cpu-p64-c500", "P=64, 500 connections, 100k keys", usual(64, 500, few).cpu(o.field())},
		{"cpu-p1-hot", "P=1, 50 connections, one key", usual(1, 50, 1).cpu(o.field(manyKeys))},
		{"cpu-p64-hot", "P=64, 50 connections, one key", usual(64, 50, 1).cpu(o.field(manyKeys))},
		{"cpu-p1-10m", "P=1, 50 connections, " + inWords(many), lasting(1).cpu(o.field())},
		{"cpu-p64-10m", "P=64, 50 connections, " + inWords(many), lasting(64).cpu(o.field())},
		{"cpu-p1-unix", "P=1, 50 connections, 100k keys, Unix socket", overSocket(1).cpu(local)},
		{"cpu-p64-unix", "P=64, 50 connections, 100k keys, Unix socket", overSocket(64).cpu(local)},
		{"cpu-p64-churn", "P=64, 50 connections, every key new and gone 2 s later",
			usual(64, 50, everyKeyNew).cpu(o.churning(manyKeys))},
		{"limiters-p1", "P=1, 50 connections, 100k keys (90 where a log is full), every limiter and CL.THROTTLE",
			usual(1, 50, few).cpu(o.limiters(90))},
		{"limiters-p64", "P=64, 50 connections, 100k keys (1000 where a log is full), every limiter and CL.THROTTLE",
			usual(64, 50, few).cpu(o.limiters(1000))},
		{"options-p1", "P=1, 50 connections, 100k keys, options and quotas", usual(1, 50, few).cpu(o.withOptions())},
		{"options-p64", "P=64, 50 connections, 100k keys, options and quotas", usual(64, 50, few).cpu(o.withOptions())},
		{"latency-50", "50 % of redis-server's maximum", latencyLoad{0.5, 50, few}.latency(o.field())},
		{"latency-80", "80 % of redis-server's maximum", latencyLoad{0.8, 50, few}.latency(o.field())},
	}, o.durabilityScenarios(few, million, many), o.memoryScenarios(million, many), o.storeScenarios(few),
		o.compareScenarios(few, million))
}

// durabilityScenarios are about --dir.
func (o *options) durabilityScenarios(few, million, many int) []scenario {
	// A pass is made each second. After a fill, the indexes of the shards grow for about 18 s.
	const settle, rest = 1500 * time.Millisecond, 20 * time.Second
	usual := cpuLoad{pipeline: 64, connections: 50, keys: few, limit: limitUsual, settle: settle}
	lasting := func(pipeline int) cpuLoad {
		return cpuLoad{pipeline: pipeline, connections: 50, keys: many, limit: limitLasting, rest: rest, settle: settle}
	}
	return []scenario{
		{"dir-p64", "P=64, 50 connections, 100k keys, with --dir and without", usual.cpu(o.withDir())},
		{"dir-p1-10m", "P=1, 50 connections, " + inWords(many) + ", with --dir and without", lasting(1).cpu(o.withDir())},
		{"dir-p64-10m", "P=64, 50 connections, " + inWords(many) + ", with --dir and without",
			lasting(64).cpu(o.withDir())},
		{"dir-snapshot", "50 % of the maximum of a server with --dir, " + inWords(many) + ", while they are written",
			duringSnapshots{0.5, 50, many}.latency(o.durable())},
		{"dir-files", inWords(many) + " with --dir: how fast they are written and loaded, and how long passes take",
			durability{many, few}.measure(o)},
		{"dir-load", inWords(million) + ": the CPU time of loading them, compared with redis-server",
			loading(million).measure(o)},
	}
}

func (o *options) memoryScenarios(million, many int) []scenario {
	return []scenario{
		{"memory-1m", inWords(million) + " of 17 bytes", alone(o.weighed(), limitLasting, full(million))},
		{"memory-sizes", inWords(million) + " of 8 to 200 bytes, 104 in the mean",
			alone(o.weighed(), limitLasting, mixed(million))},
		{"memory-limiters", inWords(million) + " of 17 bytes, every limiter and a counter",
			alone(o.kept(), limitLasting, full(million))},
		{"memory-growth", inWords(million) + " to " + inWords(many) + " of 17 bytes",
			alone([]contender{o.throttle()}, limitLasting, growing(many))},
		{"memory-expired", inWords(many) + " of 17 bytes, each gone 20 s later",
			alone([]contender{o.throttle(), setExpiring(expireAfter)}, limitExpiring, expiring(many))},
		{"memory-connections", "1000 idle connections of each kind", idleConnections(1000, idlings)},
	}
}

// The limits of the scenarios about --store. With many keys, each call lets its key exist ten
// minutes longer. With a single key, such calls would soon move its expiry far into the future.
var (
	keysLimit = admitting{burst: 100_000, perHour: 6}
	hotLimit  = admitting{burst: 100_000_000, perHour: 36_000}
)

// storeScenarios are about --store. No call comes close to a limit.
func (o *options) storeScenarios(few int) (all []scenario) {
	several := []int{1, 2, 4}
	groups := []group{{servers: 1}, {servers: 2}, {servers: 4}, {servers: 8}, {4, 2 * time.Millisecond}}
	for _, kind := range []backend{redisBackend, valkeyBackend} {
		keys := storeLoad{backend: kind, keys: few, callers: 256, servers: several, limit: keysLimit,
			share: kind.most, ownMicros: 12}
		if kind.name == redisBackend.name {
			keys.module = o.module
		}
		hot, alone, latency := keys, keys, keys
		hot.keys, hot.limit, hot.share, hot.ownMicros = 1, hotLimit, 1.0/50, 0
		alone.callers, alone.servers, alone.share = 1, []int{1}, 0
		latency.callers = 20
		share := storeShare{backend: kind, groups: groups, callers: 32, timeout: 100 * time.Millisecond, maxTries: 16}
		name := "store-" + kind.name
		all = append(all,
			scenario{name, "keys in " + kind.program + ", 100k keys, 256 callers", keys.cpu},
			scenario{name + "-hot", "keys in " + kind.program + ", one key, 256 callers", hot.cpu},
			scenario{name + "-alone", "keys in " + kind.program + ", 100k keys, one caller", alone.cpu},
			scenario{name + "-latency", fmt.Sprintf("keys in %s, 100k keys, %d calls/s", kind.program, modestRate),
				latency.latency},
			scenario{name + "-share", "keys in " + kind.program + ", one key, 32 callers of each cellserver", share.measure})
	}
	return all
}

func (o *options) overTCP() contender {
	c := o.throttle().named("cellserver CL.THROTTLE over TCP")
	c.tcp = true
	return c
}

func (o *options) manyKeys(keys int) contender {
	c := o.throttle().named("cellserver CL.THROTTLE, 100k keys")
	c.keys = keys
	return c
}

// In the scenarios with expiring keys, the keys expire soon: after a call with max_burst 0, a key
// exists for one period.
const (
	churnAfter    = 2 * time.Second // how long a key with limitUsual exists after one call
	expireAfter   = 20 * time.Second
	limitExpiring = "0 1 20 1"
)

// churning are contenders whose calls all have new keys, and cellserver with existing keys.
func (o *options) churning(reuse contender) []contender {
	redis := setExpiring(churnAfter)
	return append([]contender{redis, redis.named(redis.name + " again"), o.throttle(), reuse}, o.guests()...)
}

// weighed are the contenders whose memory is compared.
func (o *options) weighed() []contender {
	return append([]contender{incr, lua, o.throttle()}, o.guests()...)
}

func withSocket(contenders []contender) (with []contender) {
	for _, c := range contenders {
		if c.hasSocket() {
			with = append(with, c)
		}
	}
	return with
}

func inWords(keys int) string {
	if keys%1_000_000 == 0 {
		return fmt.Sprintf("%dM keys", keys/1_000_000)
	}
	return fmt.Sprintf("%d keys", keys)
}
