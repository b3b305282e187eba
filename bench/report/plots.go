package report

import "fmt"

// plot is a picture of some scenarios. If the scenarios have not been run, draw returns nil.
type plot struct {
	name, title string // without a title, it is not shown in docs/performance.md
	draw        func(r *Results) []byte
}

var plots = []plot{
	{"cpu.svg", "CPU time per call", drawCPU},
	{"latency.svg", "latency at fixed rates", drawLatency},
	{"memory.svg", "memory per key by number of keys", drawMemory},
	{"compare-cpu.svg", "", drawCompareCPU},
	{"compare-memory.svg", "", drawCompareMemory},
}

// Plots returns the pictures that can be drawn, by file name.
func (r *Results) Plots() map[string][]byte {
	files := map[string][]byte{}
	for _, p := range plots {
		if picture := p.draw(r); picture != nil {
			files[p.name] = picture
		}
	}
	return files
}

func drawCPU(r *Results) []byte {
	bars := barChart{title: "Server CPU time per call; P is the number of calls in flight per connection (50 connections, 100k keys)", unit: "us of CPU time"}
	for _, server := range []string{Incr, Throttle, Lua} {
		bars.series = append(bars.series, Series{Name: server})
	}
	for _, depth := range []int{1, 16, 64} {
		s := r.Find(fmt.Sprintf("cpu-p%d", depth))
		if s == nil {
			continue
		}
		bars.groups = append(bars.groups, fmt.Sprintf("P=%d", depth))
		for i := range bars.series {
			bars.series[i].Values = append(bars.series[i].Values, cpuOf(s, bars.series[i].Name).Micros.Middle)
		}
	}
	return bars.svg()
}

func drawLatency(r *Results) []byte {
	bars := barChart{title: "Latency from when a call was due, at 50 % and 80 % of redis-server's maximum rate",
		unit: "us, logarithmic", log: true}
	bars.series = []Series{{Name: Incr}, {Name: Throttle}}
	for _, share := range []int{50, 80} {
		s := r.Find(fmt.Sprintf("latency-%d", share))
		if s == nil {
			continue
		}
		rate := latencyOf(s, Incr).Rate / 1000
		for i, p := range Percentiles {
			bars.groups = append(bars.groups, fmt.Sprintf("p%g, %.0fk calls/s", p, rate))
			for j := range bars.series {
				bars.series[j].Values = append(bars.series[j].Values, latencyOf(s, bars.series[j].Name).Micros[i].Middle)
			}
		}
	}
	return bars.svg()
}

func drawMemory(r *Results) []byte {
	s := r.Find("memory-growth")
	if s == nil {
		return nil
	}
	peak, settled := Series{Name: "cellserver, peak while growing"}, Series{Name: "cellserver, settled", Dashed: true}
	lines := LineChart{Title: "Resident memory per key (17-byte keys)", Unit: "bytes per key", Axis: "million keys"}
	for _, step := range s.Growth {
		lines.X = append(lines.X, float64(step.Keys)/1e6)
		settled.Values = append(settled.Values, step.PerKey())
		peak.Values = append(peak.Values, step.PeakPerKey())
	}
	if one := r.Find("memory-1m"); one != nil { // first, as in the other plots; one point
		lines.Series = append(lines.Series, Series{Name: Incr + ", 1M keys", Values: []float64{memoryOf(one, Incr).PerKey()}})
	}
	lines.Series = append(lines.Series, peak, settled)
	return lines.SVG()
}
