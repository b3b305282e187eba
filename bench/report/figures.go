package report

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
)

// Readme is the file with figures between two lines.
const Readme = "README.md"

const (
	begin = "<!-- bench:begin -->\n"
	end   = "<!-- bench:end -->"
)

// ErrNoBlock says that the README has no place for figures.
var ErrNoBlock = errors.New("README.md has no place for figures: put the lines <!-- bench:begin --> and <!-- bench:end --> where they shall be")

// Figures returns what stands between the two lines in the README.
func Figures(readme []byte) ([]byte, error) {
	_, rest, begun := bytes.Cut(readme, []byte(begin))
	figures, _, ended := bytes.Cut(rest, []byte(end))
	if !begun || !ended {
		return nil, ErrNoBlock
	}
	return figures, nil
}

// InReadme returns the README with the figures in it.
func (r *Results) InReadme(readme []byte) ([]byte, error) {
	if _, err := Figures(readme); err != nil {
		return nil, err
	}
	before, rest, _ := bytes.Cut(readme, []byte(begin))
	_, after, _ := bytes.Cut(rest, []byte(end))
	return bytes.Join([][]byte{before, []byte(begin), r.figures(), []byte(end), after}, nil), nil
}

// The scenarios of the figures in the README.
var (
	readmeCPU     = []string{"cpu-p1", "cpu-p16", "cpu-p64", "cpu-p1-c500", "cpu-p1-unix", "cpu-p1-10m", "cpu-p64-10m"}
	readmeLatency = []string{"latency-50", "latency-80"}
)

func (r *Results) figures() []byte {
	t := table{{"", "cellserver", "redis-server", "ratio"}}
	t = append(t, r.cpuFigures()...)
	t = append(t, r.latencyFigures()...)
	t = append(t, r.memoryFigures()...)
	var b bytes.Buffer
	b.WriteString(t.String())
	if t := r.limiterFigures(); len(t) > 1 {
		fmt.Fprintf(&b, "\n%s", t.String())
	}
	for _, p := range plots {
		if p.draw(r) != nil {
			fmt.Fprintf(&b, "\n![%s](bench/plots/%s)\n", p.title, p.name)
		}
	}
	return b.Bytes()
}

func (r *Results) cpuFigures() (t table) {
	for _, name := range readmeCPU {
		s := r.Find(name)
		if s == nil {
			continue
		}
		redis, cell := cpuOf(s, Incr), cpuOf(s, Throttle)
		t = append(t, []string{"CPU a call, " + s.About, micros(cell.Micros.Middle), micros(redis.Micros.Middle), ratio(cell.Ratio.Middle)})
	}
	return t
}

func (r *Results) latencyFigures() (t table) {
	for _, name := range readmeLatency {
		s := r.Find(name)
		if s == nil {
			continue
		}
		redis, cell := latencyOf(s, Incr), latencyOf(s, Throttle)
		for i, p := range Percentiles {
			t = append(t, []string{fmt.Sprintf("p%g, %s", p, s.About), wholeMicros(cell.Micros[i].Middle), wholeMicros(redis.Micros[i].Middle),
				ratio(cell.Ratio[i].Middle)})
		}
	}
	return t
}

func (r *Results) memoryFigures() (t table) {
	if s := r.Find("memory-1m"); s != nil {
		redis, cell := memoryOf(s, Incr).PerKey(), memoryOf(s, Throttle).PerKey()
		t = append(t, []string{"bytes a key, " + s.About, fmt.Sprintf("%.1f", cell), fmt.Sprintf("%.1f", redis), ratio(cell / redis)})
	}
	if s := r.Find("memory-growth"); s != nil {
		settled, _ := MostPerKey(s.Growth)
		t = append(t, []string{"bytes a key at most, " + s.About, fmt.Sprintf("%.1f", settled.PerKey()), "", ""})
	}
	return t
}

// limiterFigures are what a call of each limiter costs, as multiples of CL.THROTTLE's.
func (r *Results) limiterFigures() table {
	t := table{{"CPU a call beside CL.THROTTLE's", "P=1", "P=64"}}
	one, many := r.Find("limiters-p1"), r.Find("limiters-p64")
	if one == nil || many == nil {
		return t
	}
	for _, row := range one.CPU[1:] {
		t = append(t, []string{row.Server, ratio(row.Ratio.Middle), ratio(cpuOf(many, row.Server).Ratio.Middle)})
	}
	return t
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

// Featured are the scenarios that the README's figures and the plots are made of.
func Featured() []string {
	return slices.Concat(readmeCPU, readmeLatency, []string{"memory-1m", "memory-growth", "limiters-p1", "limiters-p64"})
}
