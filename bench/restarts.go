//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"cellserver/bench/report"
)

// durableRival is a server with the options that make it keep its state, and a call that shows
// whether a limit is used up.
type durableRival struct {
	name  string
	start []string // with {port} and {state} in it
	call  string   // made twice; a third call, after the restart, shows whether the server has forgotten them
	kept  func(reply any) bool
}

// durableRivals are the servers, with the usual options about their state. Scripts and modules in a
// redis-server keep their state as the redis-server does.
func (o *options) durableRivals() []durableRival {
	const throttle = "CL.THROTTLE key 0 1 3600 1"
	limited := func(reply any) bool { return firstOf(reply) == 1 }
	cellserver := []string{o.server, "--loglevel", "warning", "--port", "{port}"}
	redisServer := []string{"redis-server", "--port", "{port}", "--dir", "{state}"}
	counted := func(reply any) bool { n, _ := reply.(int64); return n == 3 }
	all := []durableRival{
		{report.Cellserver, cellserver, throttle, limited},
		{report.Cellserver + " --dir", append(cellserver[:len(cellserver):len(cellserver)], "--dir", "{state}"), throttle,
			limited},
		{report.RedisServer, redisServer, "INCR key", counted},
		{report.RedisServer + " --appendonly yes",
			append(redisServer[:len(redisServer):len(redisServer)], "--appendonly", "yes"), "INCR key", counted},
	}
	if o.throttlecrab != "" {
		all = append(all, durableRival{report.Throttlecrab, o.crab().start, "THROTTLE key 1 1 3600 1",
			func(reply any) bool { return firstOf(reply) == 0 }})
	}
	return all
}

// firstOf returns the first integer of a reply, or -1 if there is none.
func firstOf(reply any) int64 {
	values, _ := reply.([]any)
	if len(values) == 0 {
		return -1
	}
	n, isNumber := values[0].(int64)
	if !isNumber {
		return -1
	}
	return n
}

// restarts uses up a limit, restarts each server, and checks whether the limit is still used up: after
// a shutdown, and after a crash two seconds later.
func (o *options) restarts(ctx context.Context, b *bench) (s report.Scenario, err error) {
	const beforeCrash = 2 * time.Second
	for i, r := range o.durableRivals() {
		row := report.Restart{Server: r.name}
		dir := filepath.Join(b.dir, "restart"+strconv.Itoa(i))
		b.progress.say("restarting " + r.name)
		if row.Shutdown, err = r.survives(ctx, b, dir+"-shutdown", (*process).stop); err == nil {
			row.Crash, err = r.survives(ctx, b, dir+"-crash", func(p *process) {
				_ = pause(ctx, beforeCrash)
				p.kill()
			})
		}
		if err != nil {
			return s, fmt.Errorf("%s: %w", r.name, err)
		}
		s.Restarts = append(s.Restarts, row)
	}
	return s, ctx.Err()
}

// survives reports whether the limit is still used up after end has ended the server and it was started again.
func (r durableRival) survives(ctx context.Context, b *bench, dir string, end func(*process)) (bool, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return false, err
	}
	command := make([]string, len(r.start))
	for i, word := range r.start {
		command[i] = strings.ReplaceAll(word, "{state}", dir)
	}
	first, err := b.cores.start(ctx, command, b.dir)
	if err != nil {
		return false, err
	}
	_, err = r.ask(ctx, first, 2)
	end(first)
	if err != nil {
		return false, err
	}
	second, err := b.cores.start(ctx, command, b.dir)
	if err != nil {
		return false, err
	}
	defer second.stop()
	reply, err := r.ask(ctx, second, 1)
	return err == nil && r.kept(reply), err
}

// ask makes the call a number of times, and returns the last reply.
func (r durableRival) ask(ctx context.Context, p *process, times int) (reply any, err error) {
	client := redis.NewClient(&redis.Options{Addr: p.tcp.Address, Protocol: 2, MaxRetries: -1, DisableIdentity: true})
	defer client.Close()
	words := []any{}
	for word := range strings.FieldsSeq(r.call) {
		words = append(words, word)
	}
	for range times {
		if reply, err = client.Do(ctx, words...).Result(); err != nil {
			return nil, err
		}
	}
	return reply, nil
}
