//go:build linux

package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"cellserver/bench/load"
	"cellserver/bench/report"
)

// durable is a cellserver that keeps its keys in a folder.
func (o *options) durable() contender {
	c := o.throttle().named("cellserver CL.THROTTLE, --dir")
	c.start = append(c.start, "--dir", "{dir}")
	return c
}

func (o *options) withDir() []contender {
	return []contender{o.throttle(), o.throttle().named(report.Throttle + " again"), o.durable()}
}

// duringSnapshots makes calls at a fixed rate, in alternating rounds: without a snapshot, and while
// snapshots of all keys are written.
type duringSnapshots latencyLoad

func (l duringSnapshots) latency(c contender) measurement {
	return func(ctx context.Context, b *bench) (s report.Scenario, err error) {
		entrants, err := b.enter(ctx, []contender{c}, limitLasting)
		defer func() { b.leave(entrants) }()
		if err != nil {
			return s, err
		}
		e := entrants[0]
		b.progress.say("filling " + e.name)
		if err := e.fill(ctx, load.NewCall(e.call, load.From(0)), l.keys); err != nil {
			return s, err
		}
		rate, err := latencyLoad(l).rate(ctx, b, e)
		if err != nil {
			return s, err
		}
		open := load.Open{Connections: l.connections, Rate: rate, For: b.openFor}
		names := []string{e.name, e.name + ", while a snapshot is written"}
		runs := make([]latencyRun, len(names))
		rounds := b.roundsOr(usualLatencyRounds)
		for round := range rounds {
			for i, name := range names {
				b.progress.round(round+1, rounds, fmt.Sprintf("%.0f calls/s to %s", rate, name))
				stop := func() error { return nil }
				if i == 1 {
					stop = rewriteAgain(ctx, e.process.tcp)
				}
				if err := runs[i].round(ctx, open, e, l.keys); err != nil {
					return s, fmt.Errorf("%s: %w", name, err)
				}
				if err := stop(); err != nil {
					return s, err
				}
			}
		}
		for i, name := range names {
			s.Latency = append(s.Latency, runs[i].result(name, open, runs[0]))
		}
		s.Inside = insideOf(entrants)
		return s, nil
	}
}

// rewriteAgain makes a server write snapshots, one after the other, until stop is called. stop
// waits for the last snapshot.
func rewriteAgain(parent context.Context, t load.Target) (stop func() error) {
	ctx, cancel := context.WithCancel(parent)
	ended := make(chan error)
	go func() {
		var err error
		for err == nil {
			err = rewrite(ctx, t)
		}
		if ctx.Err() != nil {
			err = nil
		}
		ended <- err
	}()
	return func() error {
		cancel()
		if err := <-ended; err != nil {
			return err
		}
		return waitFor(parent, t, "aof_rewrite_in_progress", 0)
	}
}

// rewrite writes a snapshot and waits for its end. If the server is writing a snapshot already,
// rewrite waits for its end first.
func rewrite(ctx context.Context, t load.Target) error {
	const begun, inProgress = "aof_rewrites", "aof_rewrite_in_progress"
	if err := waitFor(ctx, t, inProgress, 0); err != nil {
		return err
	}
	before, err := persistence(t, begun)
	if err != nil {
		return err
	}
	_, err = load.Ask(t, "BGREWRITEAOF")
	if err != nil && strings.Contains(err.Error(), "already in progress") { // the server has begun one itself
		return rewrite(ctx, t)
	}
	if err != nil {
		return err
	}
	if err := waitFor(ctx, t, begun, before+1); err != nil {
		return err
	}
	return waitFor(ctx, t, inProgress, 0)
}

// answersWithin is the longest wait for a field of INFO.
const answersWithin = 2 * time.Minute

// waitFor waits until a field of INFO persistence is at least value, or 0 if value is 0.
func waitFor(ctx context.Context, t load.Target, field string, value float64) error {
	for start := time.Now(); time.Since(start) < answersWithin; {
		if found, err := persistence(t, field); err != nil || found == value || value > 0 && found > value {
			return err
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s does not become %g", field, value)
}

// persistence returns a field of INFO persistence.
func persistence(t load.Target, field string) (float64, error) {
	return infoField(t, field, "persistence")
}

// infoField returns a field of INFO, from a section, or from the sections that INFO has by default.
func infoField(t load.Target, field string, section ...string) (float64, error) {
	info, err := load.Ask(t, append([]string{"INFO"}, section...)...)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(info) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), ":"); name == field {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("INFO has no field %s", field)
}

// durability measures the files of a folder.
type durability struct{ many, few int }

func (d durability) measure(o *options) measurement {
	return func(ctx context.Context, b *bench) (s report.Scenario, err error) {
		if err := d.large(ctx, b, o.durable(), &s); err != nil {
			return s, err
		}
		return s, d.small(ctx, b, o, &s)
	}
}

// large measures the files of many keys, and a restart.
func (d durability) large(ctx context.Context, b *bench, c contender, s *report.Scenario) error {
	entrants, err := b.enter(ctx, []contender{c}, limitLasting)
	defer func() { b.leave(entrants) }()
	if err != nil {
		return err
	}
	e := entrants[0]
	b.progress.say("filling " + e.name)
	if err := d.fast(ctx, b, e, s); err != nil {
		return err
	}
	b.progress.say("writing files of " + e.name)
	before, err := residentOf(e.process.id())
	if err != nil {
		return err
	}
	if err := resetPeak(e.process.id()); err != nil {
		return err
	}
	start := time.Now()
	if err := rewrite(ctx, e.process.tcp); err != nil {
		return err
	}
	s.Figures = append(s.Figures, seconds("a snapshot of "+inWords(d.many), start))
	during, err := residentOf(e.process.id())
	if err != nil {
		return err
	}
	s.Figures = append(s.Figures, report.Figure{
		What: "memory that a snapshot takes", Value: float64(max(0, during.most-before.now)) / (1 << 20), Unit: "MiB",
	}, folderSize(e.process.dir, "files with a snapshot"))
	start = time.Now()
	if _, err := load.Ask(e.process.tcp, "SAVE"); err != nil {
		return err
	}
	s.Figures = append(s.Figures, seconds("SAVE, an RDB file", start))
	return d.restart(ctx, b, c, e, s)
}

// fast fills a server as fast as possible, and reports the longest pass meanwhile, which may end
// after the last call.
func (d durability) fast(ctx context.Context, b *bench, e *entrant, s *report.Scenario) error {
	longest := 0.0
	watch, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for pause(watch, 200*time.Millisecond) == nil {
			longest = max(longest, passMilliseconds(e.process.tcp))
		}
	}()
	start := time.Now()
	err := e.fill(ctx, load.NewCall(e.call, load.From(0)), d.many)
	rate := float64(d.many) / time.Since(start).Seconds()
	cancel()
	<-ended
	if err == nil {
		err = nextPass(ctx, e.process.tcp)
	}
	longest = max(longest, passMilliseconds(e.process.tcp))
	s.Figures = append(s.Figures, report.Figure{What: "new keys a second, as fast as possible", Value: rate, Unit: "keys/s"},
		report.Figure{What: "longest pass meanwhile", Value: longest, Unit: "ms"})
	return err
}

// nextPass waits for the end of a pass.
func nextPass(ctx context.Context, t load.Target) error {
	const passes = "journal_passes"
	ended, err := persistence(t, passes)
	if err != nil {
		return err
	}
	return waitFor(ctx, t, passes, ended+1)
}

func passMilliseconds(t load.Target) float64 {
	micros, _ := persistence(t, "journal_last_pass_usec") // 0 while there is no answer
	return micros / 1e3
}

// restart stops a server, and measures until another has loaded its folder.
func (d durability) restart(ctx context.Context, b *bench, c contender, e *entrant, s *report.Scenario) error {
	b.progress.say("restarting " + e.name)
	start := time.Now()
	e.process.stop()
	s.Figures = append(s.Figures, seconds("SIGTERM until the end", start))
	for i, word := range c.start {
		if word == "{dir}" {
			c.start[i] = e.process.dir
		}
	}
	start = time.Now()
	again, err := b.cores.start(ctx, c.start, b.dir)
	if err != nil {
		return err
	}
	defer again.stop()
	if err := waitFor(ctx, again.tcp, "loading", 0); err != nil {
		return err
	}
	s.Figures = append(s.Figures, seconds("start until "+inWords(d.many)+" are loaded", start))
	keys, err := load.Ask(again.tcp, "DBSIZE")
	if err == nil && keys != strconv.Itoa(d.many) {
		err = fmt.Errorf("%s keys were loaded, of %d", keys, d.many)
	}
	return err
}

// changingFor is how long all keys change every second.
const changingFor = 10 * time.Second

// small changes some keys every second, and compares the CPU time with and without a folder.
func (d durability) small(ctx context.Context, b *bench, o *options, s *report.Scenario) error {
	entrants, err := b.enter(ctx, []contender{o.throttle(), o.durable()}, limitLasting)
	defer func() { b.leave(entrants) }()
	if err != nil {
		return err
	}
	var used [2][]float64
	var written, longest float64
	open := load.Open{Connections: 10, Rate: float64(d.few), For: changingFor}
	for range b.roundsOr(usualLatencyRounds) {
		for i, e := range entrants {
			b.progress.say(fmt.Sprintf("%d keys that change every second in %s", d.few, e.name))
			size := folderSize(e.process.dir, "").Value
			share, err := coreShare(ctx, open, e, load.NewCall(e.call, load.Around(d.few)))
			if err != nil {
				return err
			}
			used[i] = append(used[i], share)
			if i == 1 {
				written = max(written, (folderSize(e.process.dir, "").Value-size)/open.For.Seconds())
				longest = max(longest, passMilliseconds(e.process.tcp))
			}
		}
	}
	more := make([]float64, len(used[0]))
	for i := range more {
		more[i] = 100 * (used[1][i] - used[0][i])
	}
	what := fmt.Sprintf("%d keys that all change every second: ", d.few)
	s.Figures = append(s.Figures,
		report.Figure{What: what + "written", Value: written, Unit: "MiB/s"},
		report.Figure{What: what + "CPU time for it, median", Value: report.NewSpread(more).Middle, Unit: "% of a core"},
		report.Figure{What: what + "a pass", Value: longest, Unit: "ms"})
	return nil
}

// coreShare returns the share of a core that a server uses under a load.
func coreShare(ctx context.Context, open load.Open, e *entrant, call load.Call) (float64, error) {
	before, err := cpuTime(e.process.id())
	if err != nil {
		return 0, err
	}
	if _, err := open.Run(ctx, e.target, call); err != nil {
		return 0, err
	}
	after, err := cpuTime(e.process.id())
	return (after - before).Seconds() / open.For.Seconds(), err
}

func seconds(what string, start time.Time) report.Figure {
	return report.Figure{What: what, Value: time.Since(start).Seconds(), Unit: "s"}
}

// folderSize returns the size of the files in a folder.
func folderSize(dir, what string) report.Figure {
	var bytes int64
	_ = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil // the file has been removed meanwhile
		}
		if info, err := os.Stat(filepath.Join(dir, entry.Name())); err == nil && !info.IsDir() {
			bytes += info.Size()
		}
		return nil
	})
	return report.Figure{What: what, Value: float64(bytes) / (1 << 20), Unit: "MiB"}
}
