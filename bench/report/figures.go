package report

import (
	"bytes"
	"fmt"
	"math"
	"slices"
)

// The scenarios of the figures.
var (
	cpuScenarios     = []string{"cpu-p1", "cpu-p16", "cpu-p64", "cpu-p1-c500", "cpu-p1-unix", "cpu-p1-10m", "cpu-p64-10m"}
	latencyScenarios = []string{"latency-50", "latency-80"}
)

// figure is a row of a table of figures, and its scenario.
type figure struct {
	from  *Scenario
	cells []string
}

// figures are the rows of tables. A table has only rows that were measured in one run, of one
// commit, on one machine.
type figures []figure

var heading = []string{"", "cellserver", "redis-server", "ratio", "redis-server to itself"}

// write writes a table for each run, and names the run below the table.
func (all figures) write(b *bytes.Buffer, heading []string) {
	for len(all) > 0 {
		first := all[0].from
		t, others := table{heading}, figures{}
		for _, f := range all {
			if f.from.Commit == first.Commit && f.from.Machine == first.Machine {
				t = append(t, f.cells)
			} else {
				others = append(others, f)
			}
		}
		fmt.Fprintf(b, "%s\n%s\n", t.String(), first.run())
		if all = others; len(all) > 0 {
			b.WriteString("\n")
		}
	}
}

// run says where and when a scenario was measured.
func (s Scenario) run() string {
	m := s.Machine
	peers := ""
	if s.Peers != "" {
		peers = ", " + s.Peers
	}
	return fmt.Sprintf("Commit %s, %s; %s, %d cores, %s, redis-server %s%s.", s.Commit, s.Date, m.CPU, m.Cores, m.Go,
		m.Redis, peers)
}

// fewFigures returns the figures of the README.
func (r *Results) fewFigures() string {
	var few figures
	few = append(few, r.cpuFigures("cpu-p1", "cpu-p64")...)
	if latency := r.latencyFigures("latency-80"); len(latency) > 0 {
		few = append(few, latency[1])
	}
	few = append(few, r.memoryFigures()...)
	var b bytes.Buffer
	few.write(&b, heading)
	return b.String()
}

// allFigures returns the figures of docs/performance.md, and the existing plots.
func (r *Results) allFigures() string {
	var b bytes.Buffer
	slices.Concat(r.cpuFigures(cpuScenarios...), r.latencyFigures(latencyScenarios...), r.memoryFigures(),
		r.growthFigures()).
		write(&b, heading)
	r.writeLimiters(&b)
	for _, p := range plots {
		if p.title != "" && p.draw(r) != nil {
			fmt.Fprintf(&b, "\n![%s](../bench/plots/%s)\n", p.title, p.name)
		}
	}
	return b.String()
}

func (r *Results) cpuFigures(scenarios ...string) (all figures) {
	for _, name := range scenarios {
		s := r.Find(name)
		if s == nil {
			continue
		}
		redis, cell := cpuOf(s, Incr), cpuOf(s, Throttle)
		itself := ""
		if again := cpuOf(s, Incr+" again"); again.Server != "" {
			itself = ratio(again.Ratio.Middle)
		}
		all = append(all, figure{s, []string{"CPU per call, " + s.About, micros(cell.Micros.Middle),
			micros(redis.Micros.Middle), ratio(cell.Ratio.Middle), itself}})
	}
	return all
}

func (r *Results) latencyFigures(scenarios ...string) (all figures) {
	for _, name := range scenarios {
		s := r.Find(name)
		if s == nil {
			continue
		}
		redis, cell, again := latencyOf(s, Incr), latencyOf(s, Throttle), latencyOf(s, Incr+" again")
		for i, p := range Percentiles {
			itself := ""
			if again.Server != "" {
				itself = ratio(again.Ratio[i].Middle)
			}
			all = append(all, figure{s, []string{fmt.Sprintf("p%g latency at %s", p, s.About),
				wholeMicros(cell.Micros[i].Middle), wholeMicros(redis.Micros[i].Middle), ratio(cell.Ratio[i].Middle), itself}})
		}
	}
	return all
}

func (r *Results) memoryFigures() figures {
	s := r.Find("memory-1m")
	if s == nil {
		return nil
	}
	redis, cell := memoryOf(s, Incr).PerKey(), memoryOf(s, Throttle).PerKey()
	return figures{{s, []string{"bytes per key, " + s.About, oneDecimal(cell), oneDecimal(redis), ratio(cell / redis),
		""}}}
}

func (r *Results) growthFigures() figures {
	s := r.Find("memory-growth")
	if s == nil {
		return nil
	}
	settled, _ := MostPerKey(s.Growth)
	return figures{{s, []string{"bytes per key, maximum, " + s.About, oneDecimal(settled.PerKey()), "", "", ""}}}
}

// writeLimiters writes what a call of each limiter costs, as a multiple of CL.THROTTLE's. P=1 and
// P=64 share a table if they were measured in one run.
func (r *Results) writeLimiters(b *bytes.Buffer) {
	one, many := r.Find("limiters-p1"), r.Find("limiters-p64")
	if one == nil || many == nil {
		return
	}
	var ones, manies, both figures
	for i, row := range one.CPU[1:] {
		server, p1, p64 := row.Server, ratio(row.Ratio.Middle), ratio(many.CPU[i+1].Ratio.Middle)
		ones, manies = append(ones, figure{one, []string{server, p1}}), append(manies, figure{many, []string{server, p64}})
		both = append(both, figure{one, []string{server, p1, p64}})
	}
	const title = "CPU per call, CL.THROTTLE = 1"
	b.WriteString("\n")
	if one.run() == many.run() {
		both.write(b, []string{title, "P=1", "P=64"})
		return
	}
	ones.write(b, []string{title, "P=1"})
	b.WriteString("\n")
	manies.write(b, []string{title, "P=64"})
}

// tableOf returns a table of a scenario's results, whose first row is the head. Without the scenario, it is empty.
func (r *Results) tableOf(scenario string, rows func(s *Scenario) [][]string) string {
	s := r.Find(scenario)
	if s == nil {
		return ""
	}
	table := rows(s)
	var all figures
	for _, row := range table[1:] {
		all = append(all, figure{s, row})
	}
	var b bytes.Buffer
	all.write(&b, table[0])
	return b.String()
}

// limiterMemory returns what a key of each limiter takes, for docs/limiters.md.
func (r *Results) limiterMemory() string {
	return r.tableOf("memory-limiters", func(s *Scenario) [][]string {
		rows := [][]string{{"bytes per key, " + s.About, "resident"}}
		for _, m := range s.Memory {
			rows = append(rows, []string{m.Server, oneDecimal(m.PerKey())})
		}
		return rows
	})
}

// The figures that stand in sentences.

// keyOverhead is how many bytes a key of CL.THROTTLE takes in addition to its name.
func (r *Results) keyOverhead() string {
	const nameLength = 17 // the length of keys in memory-1m
	s := r.Find("memory-1m")
	if s == nil {
		return ""
	}
	return fmt.Sprintf("%.0f", memoryOf(s, Throttle).PerKey()-nameLength)
}

// pipelinedShare is the CPU time per call with P=64 as a share of the CPU time with P=1.
func (r *Results) pipelinedShare() string {
	one, many := r.Find("cpu-p1"), r.Find("cpu-p64")
	if one == nil || many == nil {
		return ""
	}
	return fmt.Sprintf("%.0f %%", 100*cpuOf(many, Throttle).Micros.Middle/cpuOf(one, Throttle).Micros.Middle)
}

// callsAlone and callsPipelined are the calls a second on one core, in thousands, with P=1 and P=64.
func (r *Results) callsAlone() string     { return r.thousands("cpu-p1") }
func (r *Results) callsPipelined() string { return r.thousands("cpu-p64") }

func (r *Results) thousands(scenario string) string {
	s := r.Find(scenario)
	if s == nil {
		return ""
	}
	thousands := int(math.Round(cpuOf(s, Throttle).Throughput / 1000))
	if thousands < 1000 {
		return fmt.Sprintf("%d,000", thousands)
	}
	return fmt.Sprintf("%d,%03d,000", thousands/1000, thousands%1000)
}

// mostExpensiveLimiter is by how much the most expensive limiter exceeds CL.THROTTLE with P=1.
func (r *Results) mostExpensiveLimiter() string {
	s := r.Find("limiters-p1")
	if s == nil {
		return ""
	}
	most := 1.0
	for _, row := range s.CPU {
		most = max(most, row.Ratio.Middle)
	}
	return fmt.Sprintf("%.0f %%", math.Ceil(100*(most-1)))
}

// twoOfAll is the CPU time of a CL.ALL of two limiters with P=64, as a multiple of CL.THROTTLE's.
func (r *Results) twoOfAll() string {
	s := r.Find("limiters-p64")
	if s == nil {
		return ""
	}
	return fmt.Sprintf("%.1f", cpuOf(s, "CL.ALL of two").Ratio.Middle)
}

func oneDecimal(n float64) string   { return fmt.Sprintf("%.1f", n) }
func micros(us float64) string      { return fmt.Sprintf("%.2f us", us) }
func wholeMicros(us float64) string { return fmt.Sprintf("%.0f us", us) }

// The servers that the figures compare.
const (
	Incr     = "redis-server INCR"
	Lua      = "redis-server, GCRA in Lua"
	Throttle = "cellserver CL.THROTTLE"
)

func cpuOf(s *Scenario, server string) (found CPU) {
	for _, row := range s.CPU {
		if row.Server == server {
			found = row
		}
	}
	return found
}

func latencyOf(s *Scenario, server string) Latency {
	for _, row := range s.Latency {
		if row.Server == server {
			return row
		}
	}
	none := make([]Spread, len(Percentiles))
	return Latency{Micros: none, Ratio: none}
}

func memoryOf(s *Scenario, server string) (found Memory) {
	for _, row := range s.Memory {
		if row.Server == server {
			found = row
		}
	}
	return found
}

// Featured returns the scenarios from which the figures and the plots are made.
func Featured() []string {
	return slices.Concat(cpuScenarios, latencyScenarios,
		[]string{"memory-1m", "memory-growth", "memory-limiters", "limiters-p1", "limiters-p64", "cpu-p1-c1", "dir-files"},
		storeScenarios(), compareScenarios())
}
