//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"cellserver/bench/load"
	"cellserver/bench/report"
)

// loading is a number of keys. It measures the CPU time that servers use from their start until they have loaded them.
type loading int

// loader is a server that loads the same folder again and again.
type loader struct {
	name   string
	start  []string
	save   func(ctx context.Context, t load.Target) error // writes the files that will be loaded
	call   string
	dir    string
	millis []float64
}

func (o *options) loaders() []*loader {
	own := []string{o.server, "--loglevel", "warning", "--port", "{port}", "--dir", "{state}"}
	redisServer := []string{"redis-server", "--port", "{port}", "--dir", "{state}", "--save", ""}
	saves := func(_ context.Context, t load.Target) error {
		_, err := load.Ask(t, "SAVE")
		return err
	}
	const counter, expiring = "INCR {key}", "SET {key} 100 EX 86400"
	return []*loader{
		{name: report.RedisServer + " INCR", start: redisServer, save: saves, call: counter},
		{name: report.Cellserver + " INCR", start: own, save: rewrite, call: counter},
		{name: report.Cellserver + " CL.THROTTLE", start: own, save: rewrite, call: "CL.THROTTLE {key} 100 1 86400 90"},
		{name: report.RedisServer + " SET EX", start: redisServer, save: saves, call: expiring},
		{name: report.Cellserver + " SET EX", start: own, save: rewrite, call: expiring},
	}
}

// measure fills each server, and then starts them in turns.
func (keys loading) measure(o *options) measurement {
	return func(ctx context.Context, b *bench) (s report.Scenario, err error) {
		all := o.loaders()
		for i, l := range all {
			b.progress.say("filling " + l.name)
			l.dir = filepath.Join(b.dir, "load"+strconv.Itoa(i))
			if err := l.fill(ctx, b, int(keys)); err != nil {
				return s, fmt.Errorf("%s: %w", l.name, err)
			}
		}
		rounds := b.roundsOr(11)
		for round := range rounds {
			for _, l := range all {
				b.progress.round(round+1, rounds, l.name)
				if err := l.load(ctx, b, int(keys)); err != nil {
					return s, fmt.Errorf("%s: %w", l.name, err)
				}
			}
		}
		for _, l := range all {
			s.Figures = append(s.Figures,
				report.Figure{What: l.name + ": CPU time of a load, median", Value: report.NewSpread(l.millis).Middle, Unit: "ms"},
				folderSize(l.dir, l.name+": files"))
		}
		return s, nil
	}
}

func (l *loader) fill(ctx context.Context, b *bench, keys int) error {
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return err
	}
	p, err := l.run(ctx, b)
	if err != nil {
		return err
	}
	defer p.stop()
	if err := fillServer(ctx, p.tcp, load.NewCall(l.call, load.From(0)), keys); err != nil {
		return err
	}
	return l.save(ctx, p.tcp)
}

func (l *loader) run(ctx context.Context, b *bench) (*process, error) {
	start := make([]string, len(l.start))
	for i, word := range l.start {
		start[i] = strings.ReplaceAll(word, "{state}", l.dir)
	}
	return b.cores.start(ctx, start, b.dir)
}

// load starts a server, and adds the CPU time that it has used when it has loaded all keys.
func (l *loader) load(ctx context.Context, b *bench, keys int) error {
	p, err := l.run(ctx, b)
	if err != nil {
		return err
	}
	defer p.stop()
	if err := waitFor(ctx, p.tcp, "loading", 0); err != nil {
		return err
	}
	used, err := cpuTime(p.id())
	if err != nil {
		return err
	}
	l.millis = append(l.millis, used.Seconds()*1e3)
	found, err := load.Ask(p.tcp, "DBSIZE")
	if err == nil && found != strconv.Itoa(keys) {
		err = fmt.Errorf("%s keys were loaded, of %d", found, keys)
	}
	return err
}
