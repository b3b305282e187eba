package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// verdict has the results of all runs.
type verdict struct {
	units                 []string
	skipped, notYet       *list
	again                 *list                    // tests that may be run once more
	redis, cell           []result                 // of the whole suite, by each server
	redisKnows, cellKnows map[string]bool          // commands
	sent                  map[test]map[string]bool // the commands that a test sends
	alone                 map[test]bool            // whether a listed test passes alone
}

// promised are the commands that cellserver has or will have: a test that sends only these needs a
// reason to be in skipped.txt. A container command is listed with each subcommand, or with * for all.
var promised = []string{
	"client|kill", "client|pause", "client|unpause", "client|reply", "client|no-evict", "client|unblock",
	"client|tracking", "client|caching", "client|trackinginfo", "client|getredir", "client|help", "client|list",
	"command|getkeysandflags", "command|help", "config|set", "config|resetstat", "config|rewrite",
	"slowlog|*", "latency|*", "memory|usage", "memory|stats", "memory|doctor", "memory|purge", "memory|help", "monitor",
	"object|*", "role", "wait", "save", "bgsave", "bgrewriteaof", "lastsave", "shutdown", "acl|*",
	"subscribe", "unsubscribe", "psubscribe", "punsubscribe", "publish",
	"pubsub|channels", "pubsub|numsub", "pubsub|numpat", "pubsub|help", "lolwut",
	"function|flush", "script|flush", "module|list", "debug",
}

func isPromised(command string) bool {
	container, sub, _ := strings.Cut(command, "|")
	if sub == "" { // a container command, whose subcommand is unknown
		container += "|"
		return slices.Contains(promised, command) ||
			slices.ContainsFunc(promised, func(p string) bool { return strings.HasPrefix(p, container) })
	}
	return slices.Contains(promised, command) || slices.Contains(promised, container+"|*")
}

// beyond returns the commands in a test that Redis has and cellserver will never have.
func (v *verdict) beyond(t test) (commands []string) {
	for _, command := range slices.Sorted(maps.Keys(v.sent[t])) {
		if v.redisKnows[command] && !v.cellKnows[command] && !isPromised(command) {
			commands = append(commands, command)
		}
	}
	return commands
}

// outcomes returns the results by test. A test passes if it passes every time.
func outcomes(results []result) map[test]result {
	all := map[test]result{}
	for _, r := range results {
		if before, twice := all[r.test]; !twice || before.ok {
			all[r.test] = r
		}
	}
	return all
}

// faults returns a line for each fault.
func (v *verdict) faults() (faults []string) {
	say := func(t test, format string, args ...any) {
		faults = append(faults, fmt.Sprintf("%s: %s: ", t.unit, t.name)+fmt.Sprintf(format, args...))
	}
	redis, cell := outcomes(v.redis), outcomes(v.cell)
	for _, r := range v.redis {
		mine, ran := cell[r.test]
		listed := v.skipped.has(r.test) || v.notYet.has(r.test)
		switch {
		case r.name == outside || !redis[r.test].ok || listed: // if redis-server fails, cellserver need not pass
		case !ran:
			say(r.test, "did not run")
		case !mine.ok:
			say(r.test, "%s", firstLine(mine.why))
		}
	}
	for _, r := range v.cell {
		if r.name == outside && !r.ok {
			say(r.test, "%s", firstLine(r.why))
		}
	}
	for _, e := range slices.Concat(v.skipped.entries, v.notYet.entries) {
		if _, ran := redis[e.test]; !ran {
			say(e.test, "is on a list, but there is no such test")
		}
		if v.alone[e.test] {
			say(e.test, "is on a list, but passes: remove it with -update")
		}
	}
	for _, e := range v.again.entries {
		if _, ran := redis[e.test]; !ran || e.reason == "" {
			say(e.test, "may be run again, but there is no such test, or no reason is given")
		}
	}
	for _, e := range v.skipped.entries {
		if e.reason == "" && len(v.beyond(e.test)) == 0 {
			say(e.test, "is skipped, but sends nothing that cellserver will not have, and no reason is given")
		}
	}
	return faults
}

// firstLine returns the beginning of a failure.
func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	if len(line) > 200 {
		line = line[:200] + "..."
	}
	return line
}

// report prints how many tests there are of each kind, by unit, and returns how many pass.
func (v *verdict) report(out io.Writer, title string) int {
	cell := outcomes(v.cell)
	row := "%-24s %6v %6v %7v %7v %8v\n"
	fmt.Fprintf(out, row, title, "redis", "ok", "failed", "skipped", "not yet")
	var all [5]int
	for _, unit := range v.units {
		var n [5]int
		for t, r := range outcomes(v.redis) {
			if t.unit != unit || t.name == outside || !r.ok {
				continue
			}
			n[0]++
			switch {
			case v.skipped.has(t):
				n[3]++
			case v.notYet.has(t):
				n[4]++
			case cell[t].ok:
				n[1]++
			default:
				n[2]++
			}
		}
		fmt.Fprintf(out, row, unit, n[0], n[1], n[2], n[3], n[4])
		for i := range all {
			all[i] += n[i]
		}
	}
	fmt.Fprintf(out, row, "all", all[0], all[1], all[2], all[3], all[4])
	remark(out, "redis-server itself fails", v.redis, func(r result) bool { return !r.ok })
	remark(out, "passed when run again", v.cell, func(r result) bool { return r.late })
	return all[1]
}

// remark prints the names of the results for which of returns true.
func remark(out io.Writer, what string, results []result, of func(result) bool) {
	for _, r := range results {
		if of(r) {
			fmt.Fprintf(out, "%s: %s: %s\n", what, r.unit, r.name)
		}
	}
}
