package report

import (
	"fmt"
	"slices"
	"strings"
)

// The names in the scenarios that compare limiters.
const (
	Throttlecrab = "throttlecrab"
	Cellserver   = "cellserver"
	RedisServer  = "redis-server"
)

// Answers says how many of the recorded replies a limiter agrees with.
type Answers struct {
	Server    string `json:"server"`
	Calls     int    `json:"calls"`
	Decision  int    `json:"decision"`  // replies with the recorded decision: allowed or limited
	Remaining int    `json:"remaining"` // of these, replies with the recorded limit and remaining
	Times     int    `json:"times"`     // of these, replies with the recorded times, which may be rounded
}

// Add counts a call. If the decision is not as recorded, the rest of the answer does not count as
// agreeing.
func (a *Answers) Add(decision, remaining, times bool) {
	a.Calls++
	for _, part := range []struct {
		agrees bool
		count  *int
	}{{decision, &a.Decision}, {decision && remaining, &a.Remaining}, {decision && remaining && times, &a.Times}} {
		if part.agrees {
			*part.count++
		}
	}
}

// Restart says whether a server still knows a used-up limit after it was started again.
type Restart struct {
	Server   string `json:"server"`
	Shutdown bool   `json:"shutdown"`
	Crash    bool   `json:"crash"`
}

func answersTable(rows []Answers) string {
	t := table{{"", "replies", "same decision", "and same limit and remaining", "and same times"}}
	for _, r := range rows {
		share := func(n int) string { return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(r.Calls)) }
		t = append(t, []string{r.Server, fmt.Sprint(r.Calls), share(r.Decision), share(r.Remaining), share(r.Times)})
	}
	return t.String()
}

func restartsTable(rows []Restart) string {
	t := table{{"", "after a shutdown", "after a crash"}}
	kept := map[bool]string{true: "kept", false: "lost"}
	for _, r := range rows {
		t = append(t, []string{r.Server, kept[r.Shutdown], kept[r.Crash]})
	}
	return t.String()
}

func compareScenarios() []string {
	return []string{"compare-p1", "compare-p64", "compare-latency", "compare-memory", "compare-answers",
		"compare-restarts"}
}

// compareCPU returns the CPU time of a call, for docs/compare.md.
func (r *Results) compareCPU() string {
	one, many := r.Find("compare-p1"), r.Find("compare-p64")
	if one == nil || many == nil {
		return ""
	}
	t := table{{"CPU time of the server per call", "P=1", "INCR = 1", "P=64", "INCR = 1"}}
	for _, row := range one.CPU {
		p64 := cpuOf(many, row.Server)
		t = append(t, []string{row.Server, micros(row.Micros.Middle), ratio(row.Ratio.Middle), micros(p64.Micros.Middle),
			ratio(p64.Ratio.Middle)})
	}
	return compared(t, one) + "\n![CPU time per call](../bench/plots/compare-cpu.svg)\n"
}

func (r *Results) compareLatency() string {
	s := r.Find("compare-latency")
	if s == nil {
		return ""
	}
	t := table{{"latency", "calls/s"}}
	for _, p := range Percentiles {
		t[0] = append(t[0], fmt.Sprintf("p%g", p))
	}
	for _, row := range s.Latency {
		cells := []string{row.Server, fmt.Sprintf("%.0f", row.Rate)}
		for i := range Percentiles {
			cells = append(cells, wholeMicros(row.Micros[i].Middle))
		}
		t = append(t, cells)
	}
	return compared(t, s)
}

func (r *Results) compareMemory() string {
	s := r.Find("compare-memory")
	if s == nil {
		return ""
	}
	t := table{{"memory, " + s.About, "bytes per key", "MiB at the start"}}
	for _, row := range s.Memory {
		t = append(t, []string{row.Server, oneDecimal(row.PerKey()), mebibytes(row.Start)})
	}
	return t.String() + "\n" + s.run() + "\n\n![memory per key](../bench/plots/compare-memory.svg)\n"
}

func (r *Results) compareAnswers() string {
	s := r.Find("compare-answers")
	if s == nil {
		return ""
	}
	return answersTable(s.Answers) + "\n" + s.run() + "\n"
}

func (r *Results) compareRestarts() string {
	s := r.Find("compare-restarts")
	if s == nil {
		return ""
	}
	return restartsTable(s.Restarts) + "\n" + s.run() + "\n"
}

// compared returns a table with the run below it, and a warning if the machine was busy.
func compared(t table, s *Scenario) string {
	const quiet = 0.1 // a share of the servers' core
	warning := ""
	if s.Others > quiet {
		warning = fmt.Sprintf(" Other processes used %.0f %% of the servers' core meanwhile, so these figures are rough.",
			100*s.Others)
	}
	return t.String() + "\n" + s.run() + warning + "\n"
}

func drawCompareCPU(r *Results) []byte {
	bars := barChart{title: "Server CPU time per call; P is the number of calls in flight per connection",
		unit: "us, logarithmic", log: true}
	for _, name := range []string{"compare-p1", "compare-p64"} {
		s := r.Find(name)
		if s == nil {
			return nil
		}
		group, _, _ := strings.Cut(s.About, ",")
		bars.groups = append(bars.groups, group)
		for _, row := range s.CPU {
			bars.add(row.Server, row.Micros.Middle)
		}
	}
	return bars.svg()
}

func drawCompareMemory(r *Results) []byte {
	s := r.Find("compare-memory")
	if s == nil {
		return nil
	}
	bars := barChart{title: "Resident memory per key", unit: "bytes per key", groups: []string{s.About}}
	for _, row := range s.Memory {
		bars.add(row.Server, row.PerKey())
	}
	return bars.svg()
}

// add adds the value of a server in the last group.
func (b *barChart) add(server string, value float64) {
	i := slices.IndexFunc(b.series, func(s Series) bool { return s.Name == server })
	if i < 0 {
		i = len(b.series)
		b.series = append(b.series, Series{Name: server})
	}
	b.series[i].Values = append(b.series[i].Values, value)
}
