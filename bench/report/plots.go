package report

import "fmt"

// plot is a picture of some scenarios. If these have not been run, draw returns nil.
type plot struct {
	name, title string
	draw        func(r *Results) []byte
}

var plots = []plot{
	{"cpu.svg", "CPU time per call", drawCPU},
	{"latency.svg", "latency at fixed rates", drawLatency},
	{"memory.svg", "memory per key by number of keys", drawMemory},
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
		bars.series = append(bars.series, series{name: server})
	}
	for _, depth := range []int{1, 16, 64} {
		s := r.Find(fmt.Sprintf("cpu-p%d", depth))
		if s == nil {
			continue
		}
		bars.groups = append(bars.groups, fmt.Sprintf("P=%d", depth))
		for i := range bars.series {
			bars.series[i].values = append(bars.series[i].values, cpuOf(s, bars.series[i].name).Micros.Middle)
		}
	}
	return bars.svg()
}

func drawLatency(r *Results) []byte {
	bars := barChart{title: "Latency from when a call was due, at 50 % and 80 % of redis-server's maximum rate",
		unit: "us, logarithmic", log: true}
	bars.series = []series{{name: Incr}, {name: Throttle}}
	for _, share := range []int{50, 80} {
		s := r.Find(fmt.Sprintf("latency-%d", share))
		if s == nil {
			continue
		}
		rate := latencyOf(s, Incr).Rate / 1000
		for i, p := range Percentiles {
			bars.groups = append(bars.groups, fmt.Sprintf("p%g, %.0fk calls/s", p, rate))
			for j := range bars.series {
				bars.series[j].values = append(bars.series[j].values, latencyOf(s, bars.series[j].name).Micros[i].Middle)
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
	peak, settled := series{name: "cellserver, peak while growing"}, series{name: "cellserver, settled", dashed: true}
	lines := lineChart{title: "Resident memory per key (17-byte keys)", unit: "bytes per key", axis: "million keys"}
	for _, step := range s.Growth {
		lines.x = append(lines.x, float64(step.Keys)/1e6)
		settled.values = append(settled.values, step.PerKey())
		peak.values = append(peak.values, step.PeakPerKey())
	}
	if one := r.Find("memory-1m"); one != nil { // first, as in the other plots; one point
		lines.series = append(lines.series, series{name: Incr + ", 1M keys", values: []float64{memoryOf(one, Incr).PerKey()}})
	}
	lines.series = append(lines.series, peak, settled)
	return lines.svg()
}
