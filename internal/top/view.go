package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"cellserver/internal/resp"
)

// view shows two samples of a server.
type view struct {
	address     string
	before, now *sample // before is nil if there is none to compare with
}

// line is a line of the view.
type line struct {
	text    string
	heading bool
}

// mostCommands bounds the table of commands.
const mostCommands = 6

// around is the lines around a list: an empty one, and the heading.
const around = 2

// unknown is shown for a rate that cannot be computed yet.
const unknown = "-"

// lines returns the view. If height is not 0, the lists of keys are as long as fits into it.
func (v *view) lines(height int) []line {
	all := append(v.summary(), v.warnings()...)
	decisions, commands := v.decisions(), v.commands()
	if height > 0 {
		decisions, commands = share(decisions, commands, height-len(all)-v.now.leastForKeys())
	}
	all = append(append(all, decisions...), commands...)
	all = append(all, v.byPolicy(roomForPolicies(height, len(all)))...)
	all = append(all, v.now.policies.lines(roomForPolicies(height, len(all)))...)
	all = append(all, v.now.domains(roomForPolicies(height, len(all)))...)
	limited, seen := v.now.limited, v.now.seen
	if height > 0 {
		space := max(0, height-len(all)-2*around)
		room := max(space/2, space-seen.height())
		limited = limited.first(room)
		seen = seen.first(space - limited.height())
	}
	all = append(all, limited.lines("LIMITED MOST, in the last minute")...)
	return append(all, seen.lines("ASKED ABOUT MOST, in the last minute")...)
}

// leastKeys is how many keys of each list a small terminal shows before it shows tables.
const leastKeys = 3

// leastForKeys returns how many lines the lists of keys need at least.
func (s *sample) leastForKeys() int {
	return 2*around + min(leastKeys, s.limited.height()) + min(leastKeys, s.seen.height())
}

// share cuts two tables so that they fit into so many lines together. What one leaves is the other's.
func share(a, b []line, room int) (shortA, shortB []line) {
	forB := min(len(b), max(room/2, room-len(a)))
	shortA = fit(a, room-forB)
	return shortA, fit(b, room-len(shortA))
}

// fit cuts a table to so many lines, and says how much is left out. Of a table that has no room there is
// nothing.
func fit(table []line, room int) []line {
	switch more := len(table) - (room - 1); {
	case len(table) <= room:
		return table
	case room <= around:
		return nil
	default:
		return append(table[:room-1:room-1], line{text: fmt.Sprintf("and %d more", more)})
	}
}

// summary is the lines about the server as a whole.
func (v *view) summary() []line {
	s := v.now
	pairs := [][3][2]string{
		{{"calls/s", v.rate("total_commands_processed")},
			{"clients", ofMost(s, "connected_clients", "maxclients", count)},
			{"memory", ofMost(s, "used_memory", "maxmemory", bytes)}},
		{{"errors/s", v.rate("total_error_replies")}, {"waiting", count(s.number("blocked_clients"))},
			{"resident", bytes(s.number("used_memory_rss"))}},
		{{"keys", count(s.keysInAll())}, {"refused", count(s.number("rejected_connections"))}, {"CPU", v.cpu()}},
	}
	up := time.Duration(s.number("uptime_in_seconds")) * time.Second
	all := []line{{fmt.Sprintf("cellserver %s at %s, up %v", s.info["cellserver_version"], v.address, up), true}, {}}
	for _, row := range pairs {
		var text strings.Builder
		for _, pair := range row {
			fmt.Fprintf(&text, "%-9s %-18s ", pair[0], pair[1])
		}
		all = append(all, line{text: strings.TrimRight(text.String(), " ")})
	}
	return all
}

// warnings are lines about what needs an operator.
func (v *view) warnings() (all []line) {
	s := v.now
	for _, w := range []struct {
		is   bool
		text string
	}{
		{s.number("loading") != 0, "the server loads its keys: " + s.info["loading_loaded_perc"] + " %"},
		{s.number("store_failing") != 0, "the store fails; limiters answer: " + s.info["store_fails"]},
		{s.number("journal_failing_since") != 0, "changes cannot be written to the disk: " + s.info["journal_failure"]},
		{s.number("policies_failing") != 0, "the files with policies are not valid: the last valid policies are in force"},
		{s.number("maxmemory") > 0 && s.number("used_memory") >= s.number("maxmemory"),
			"the memory is full: calls that need more are refused"},
	} {
		if w.is {
			all = append(all, line{text: "! " + w.text})
		}
	}
	return all
}

// decisions are what each limiter has allowed and limited, the busiest first.
func (v *view) decisions() []line {
	const prefix = "cell_decisions_"
	all := []line{{}, {fmt.Sprintf("%-20s %12s %12s %10s", "DECISIONS", "allowed/s", "limited/s", "limited"), true}}
	for _, field := range v.busiest(prefix, "allowed", "limited") {
		// Names of limiters have a dot, which INFO replaces.
		name := strings.ToUpper(strings.Replace(strings.TrimPrefix(field, prefix), "_", ".", 1))
		allowed, known := v.partRate(field, "allowed")
		limited, _ := v.partRate(field, "limited")
		share := unknown
		if known && allowed+limited > 0 {
			share = fmt.Sprintf("%.1f %%", 100*limited/(allowed+limited))
		}
		all = append(all, line{text: fmt.Sprintf("%-20s %12s %12s %10s", name, shown(allowed, known),
			shown(limited, known), share)})
	}
	return all
}

// commands are the commands that are called most, and what a call of them costs.
func (v *view) commands() []line {
	const prefix = "cmdstat_"
	all := []line{{}, {fmt.Sprintf("%-20s %12s %12s %10s", "COMMANDS", "calls/s", "us per call", "p99, us"), true}}
	fields := v.busiest(prefix, "calls")
	for _, field := range fields[:min(len(fields), mostCommands)] {
		name := strings.TrimPrefix(field, prefix)
		calls, known := v.partRate(field, "calls")
		perCall, found := v.now.part(field, "usec_per_call")
		if !found {
			perCall = unknown
		}
		p99, found := v.now.part("latency_percentiles_usec_"+name, "p99")
		if p99 = strings.TrimSuffix(p99, ".000"); !found {
			p99 = unknown
		}
		all = append(all, line{text: fmt.Sprintf("%-20s %12s %12s %10s", strings.ReplaceAll(name, "|", " "),
			shown(calls, known), perCall, p99)})
	}
	return all
}

// busiest returns the fields of INFO with a prefix. Fields whose parts have grown most since the sample
// before come first, then the fields with the largest parts.
func (v *view) busiest(prefix string, parts ...string) (fields []string) {
	for field := range v.now.info {
		if strings.HasPrefix(field, prefix) {
			fields = append(fields, field)
		}
	}
	sum := func(s *sample, field string) (n float64) {
		for _, part := range parts {
			n += s.partNumber(field, part)
		}
		return n
	}
	slices.SortFunc(fields, func(a, b string) int {
		grownA, grownB := 0.0, 0.0
		if v.before != nil {
			grownA, grownB = sum(v.now, a)-sum(v.before, a), sum(v.now, b)-sum(v.before, b)
		}
		return cmp.Or(cmp.Compare(grownB, grownA), cmp.Compare(sum(v.now, b), sum(v.now, a)), cmp.Compare(a, b))
	})
	return fields
}

// seconds returns the time between the samples, 0 if it is not known: there is one sample, or the
// server was started again, or its clock was set.
func (v *view) seconds() float64 {
	if v.before == nil || v.before.info["run_id"] != v.now.info["run_id"] {
		return 0
	}
	return max(0, (v.now.at - v.before.at).Seconds())
}

// perSecond returns the rate of a counter. A counter that has fallen was reset.
func (v *view) perSecond(before, now float64) (rate float64, known bool) {
	seconds := v.seconds()
	if seconds == 0 || now < before {
		return 0, false
	}
	return (now - before) / seconds, true
}

func (v *view) partRate(field, part string) (rate float64, known bool) {
	if v.before == nil {
		return 0, false
	}
	return v.perSecond(v.before.partNumber(field, part), v.now.partNumber(field, part))
}

// rate returns the rate of a counter of INFO.
func (v *view) rate(field string) string {
	if v.before == nil {
		return unknown
	}
	return shown(v.perSecond(v.before.number(field), v.now.number(field)))
}

// cpu returns the CPU time per second, of all cores.
func (v *view) cpu() string {
	if v.before == nil {
		return unknown
	}
	used := func(s *sample) float64 { return s.number("used_cpu_user") + s.number("used_cpu_sys") }
	rate, known := v.perSecond(used(v.before), used(v.now))
	if !known {
		return unknown
	}
	return fmt.Sprintf("%.1f %%", 100*rate)
}

// shown returns a rate as it is shown: whole, unless it is small.
func shown(rate float64, known bool) string {
	switch {
	case !known:
		return unknown
	case rate > 0 && rate < 9.95:
		return fmt.Sprintf("%.1f", rate)
	}
	return fmt.Sprintf("%.0f", rate)
}

func count(n float64) string { return fmt.Sprintf("%.0f", n) }

// bytes returns a number of bytes in the largest unit that it fills.
func bytes(n float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	unit := 0
	for ; n >= 1024 && unit < len(units)-1; unit++ {
		n /= 1024
	}
	if unit == 0 {
		return fmt.Sprintf("%.0f B", n)
	}
	return fmt.Sprintf("%.1f %s", n, units[unit])
}

// ofMost returns a field, and the field that bounds it if that is not 0.
func ofMost(s *sample, field, bound string, show func(float64) string) string {
	text := show(s.number(field))
	if most := s.number(bound); most > 0 {
		text += " of " + show(most)
	}
	return text
}

// height returns the number of lines of the list, without its heading.
func (t topKeys) height() int {
	if t.err != nil || len(t.keys) == 0 {
		return 1
	}
	return len(t.keys)
}

// first returns the first n entries of the list.
func (t topKeys) first(n int) topKeys {
	n = min(len(t.keys), max(n, 0))
	return topKeys{keys: t.keys[:n], more: len(t.keys) - n, err: t.err}
}

// lines returns the list under its heading. Keys are in quotes and in ASCII, as redis-cli prints them,
// whatever bytes they consist of.
func (t topKeys) lines(heading string) []line {
	all := []line{{}, {heading, true}}
	switch {
	case t.err != nil:
		return append(all, line{text: t.err.Error()})
	case len(t.keys) == 0 && t.more > 0:
		return append(all, line{text: fmt.Sprintf("%d keys, and no room for them", t.more)})
	case len(t.keys) == 0:
		return append(all, line{text: "none"})
	}
	for _, k := range t.keys {
		all = append(all, line{text: fmt.Sprintf("%12d  %s", k.count, resp.AppendQuoted(nil, []byte(k.name)))})
	}
	return all
}
