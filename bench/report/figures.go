package report

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// document is a file with figures between two lines.
type document struct {
	name    string
	figures func(r *Results) []byte
}

// Readme and Performance are the documents with figures: the README has a few of them.
const (
	Readme      = "README.md"
	Performance = "docs/performance.md"
)

var documents = []document{{Readme, (*Results).fewFigures}, {Performance, (*Results).allFigures}}

const (
	begin = "<!-- bench:begin -->\n"
	end   = "<!-- bench:end -->"
)

// ErrNoBlock says that a document has no place for figures.
var ErrNoBlock = errors.New("no place for figures: put the lines <!-- bench:begin --> and <!-- bench:end --> where they belong")

// Figures returns the text between the two lines of a document.
func Figures(text []byte) ([]byte, error) {
	_, rest, begun := bytes.Cut(text, []byte(begin))
	figures, _, ended := bytes.Cut(rest, []byte(end))
	if !begun || !ended {
		return nil, ErrNoBlock
	}
	return figures, nil
}

// Documents returns the documents under the project's root, by name, with the figures in them.
func (r *Results) Documents(root string) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, d := range documents {
		text, err := os.ReadFile(filepath.Join(root, d.name))
		if err != nil {
			return nil, err
		}
		if _, err := Figures(text); err != nil {
			return nil, fmt.Errorf("%s: %w", d.name, err)
		}
		before, rest, _ := bytes.Cut(text, []byte(begin))
		_, after, _ := bytes.Cut(rest, []byte(end))
		files[d.name] = bytes.Join([][]byte{before, []byte(begin), d.figures(r), []byte(end), after}, nil)
	}
	return files, nil
}

// The scenarios of the figures.
var (
	cpuScenarios     = []string{"cpu-p1", "cpu-p16", "cpu-p64", "cpu-p1-c500", "cpu-p1-unix", "cpu-p1-10m", "cpu-p64-10m"}
	latencyScenarios = []string{"latency-50", "latency-80"}
)

// figure is a row of a table of figures, and the scenario that it is from.
type figure struct {
	from  *Scenario
	cells []string
}

// figures are the rows of tables. Only what was measured in one run, of one commit on one machine,
// may stand in one table.
type figures []figure

var heading = []string{"", "cellserver", "redis-server", "ratio", "redis-server to itself"}

// write writes a table for each run, with the run below it.
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
	return fmt.Sprintf("Commit %s, %s; %s, %d cores, %s, redis-server %s.", s.Commit, s.Date, m.CPU, m.Cores, m.Go,
		m.Redis)
}

// fewFigures are those of the README.
func (r *Results) fewFigures() []byte {
	var few figures
	few = append(few, r.cpuFigures("cpu-p1", "cpu-p64")...)
	if latency := r.latencyFigures("latency-80"); len(latency) > 0 {
		few = append(few, latency[1])
	}
	few = append(few, r.memoryFigures()...)
	var b bytes.Buffer
	few.write(&b, heading)
	return b.Bytes()
}

func (r *Results) allFigures() []byte {
	var b bytes.Buffer
	slices.Concat(r.cpuFigures(cpuScenarios...), r.latencyFigures(latencyScenarios...), r.memoryFigures(),
		r.growthFigures()).
		write(&b, heading)
	if limiters := r.limiterFigures(); len(limiters) > 0 {
		b.WriteString("\n")
		limiters.write(&b, []string{"CPU per call, CL.THROTTLE = 1", "P=1", "P=64"})
	}
	for _, p := range plots {
		if p.draw(r) != nil {
			fmt.Fprintf(&b, "\n![%s](../bench/plots/%s)\n", p.title, p.name)
		}
	}
	return b.Bytes()
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
	return figures{{s, []string{"bytes per key, " + s.About, fmt.Sprintf("%.1f", cell), fmt.Sprintf("%.1f", redis),
		ratio(cell / redis), ""}}}
}

func (r *Results) growthFigures() figures {
	s := r.Find("memory-growth")
	if s == nil {
		return nil
	}
	settled, _ := MostPerKey(s.Growth)
	return figures{{s, []string{"bytes per key, maximum, " + s.About, fmt.Sprintf("%.1f", settled.PerKey()), "", "", ""}}}
}

// limiterFigures are what a call of each limiter costs, as multiples of CL.THROTTLE's.
func (r *Results) limiterFigures() (all figures) {
	one, many := r.Find("limiters-p1"), r.Find("limiters-p64")
	if one == nil || many == nil {
		return nil
	}
	for _, row := range one.CPU[1:] {
		all = append(all, figure{many,
			[]string{row.Server, ratio(row.Ratio.Middle), ratio(cpuOf(many, row.Server).Ratio.Middle)}})
	}
	return all
}

func micros(us float64) string      { return fmt.Sprintf("%.2f us", us) }
func wholeMicros(us float64) string { return fmt.Sprintf("%.0f us", us) }

// The servers that are compared wherever figures are few.
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

// Featured are the scenarios that the figures and the plots are made of.
func Featured() []string {
	return slices.Concat(cpuScenarios, latencyScenarios,
		[]string{"memory-1m", "memory-growth", "limiters-p1", "limiters-p64"})
}
