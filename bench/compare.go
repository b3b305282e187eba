//go:build linux

package main

import (
	"context"
	"errors"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"cellserver/bench/report"
)

// rival is a contender that makes decisions. It says how its calls and replies differ from those of
// CL.THROTTLE.
type rival struct {
	contender
	decide func(d decision) []any                   // a call
	answer func(d decision, n []float64) (a answer) // what the numbers of its reply mean
}

// limitCompared allows all calls of the scenarios that compare limiters, because a limited call changes
// nothing.
const limitCompared = "100000 1 3600 1"

// compareScenarios compare other limiters, if the options name them: --module, --throttlecrab.
func (o *options) compareScenarios(few, million int) []scenario {
	load := func(pipeline int) cpuLoad {
		return cpuLoad{pipeline: pipeline, connections: 50, keys: few, limit: limitCompared}
	}
	field := append([]contender{incr}, contendersOf(o.rivals())...)
	field = append(field, o.newer.instead(incr, lua, rateInLua())...)
	return []scenario{
		{"compare-p1", "P=1, 50 connections, 100k keys", load(1).cpu(field)},
		{"compare-p64", "P=64, 50 connections, 100k keys", load(64).cpu(field)},
		{"compare-latency", "50 % of redis-server's maximum", latencyLoad{0.5, 50, few}.latency(field)},
		{"compare-memory", inWords(million) + " of 17 bytes", alone(field, limitLasting, full(million))},
		{"compare-answers", "recorded replies of redis-cell 0.5.0", o.answers},
		{"compare-restarts", "a key whose limit is used up, and a restart", o.restarts},
	}
}

// rivals are cellserver and the limiters that it is compared with.
func (o *options) rivals() []rival {
	all := []rival{{contender: o.throttle(), decide: throttled("CL.THROTTLE"), answer: asThrottle}}
	if o.module != "" {
		loaded := append(redisServer[:len(redisServer):len(redisServer)], "--loadmodule", o.module)
		all = append(all, rival{contender: contender{name: report.RedisCell, start: loaded, call: throttleCall},
			decide: throttled("CL.THROTTLE"), answer: asThrottle})
	}
	if o.throttlecrab != "" {
		all = append(all, rival{contender: o.crab(), decide: crabCall, answer: asCrab})
	}
	return append(all, rival{contender: lua, decide: scripted(""), answer: asThrottle},
		rival{contender: rateInLua(), decide: scripted("rate:"), answer: asRedisRate})
}

// rateInLua is the script of redis_rate.
func rateInLua() contender {
	return contender{name: report.RedisRate, start: redisServer, script: scriptOfRedisRate(),
		call: "EVALSHA {sha} 1 rate:{key} {limit}"}
}

func contendersOf(rivals []rival) (all []contender) {
	for _, r := range rivals {
		all = append(all, r.contender)
	}
	return all
}

// crab is throttlecrab's server. The first number of its call is the limit instead of max_burst, which does
// not change the cost of a call.
func (o *options) crab() contender {
	return contender{name: report.Throttlecrab, call: "THROTTLE {key} {limit}",
		start: []string{o.throttlecrab, "--log-level", "error", "--redis", "--redis-host", "127.0.0.1", "--redis-port",
			"{port}"}}
}

// captured is the script of a limiter, taken from it without a server.
type captured struct {
	redis.Scripter
	script string
}

// noScript is the error of a server that does not know a script.
type noScript struct{}

func (noScript) Error() string { return "NOSCRIPT No matching script" }
func (noScript) RedisError()   {}

func (c *captured) EvalSha(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	return failed(ctx, noScript{})
}

func (c *captured) Eval(ctx context.Context, script string, _ []string, _ ...any) *redis.Cmd {
	c.script = script
	return failed(ctx, errors.New("there is no server"))
}

// Del is a method that redis_rate requires of a client. It is not called.
func (c *captured) Del(ctx context.Context, _ ...string) *redis.IntCmd { return redis.NewIntCmd(ctx) }

func failed(ctx context.Context, err error) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(err)
	return cmd
}

// scriptOfRedisRate returns the script that redis_rate runs, "" if it does not run one.
func scriptOfRedisRate() string {
	c := &captured{}
	limit := redis_rate.Limit{Rate: 1, Burst: 1, Period: time.Second}
	_, _ = redis_rate.NewLimiter(c).Allow(context.Background(), "key", limit) // fails: it has no server
	return c.script
}
