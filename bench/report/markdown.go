package report

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

const preface = `# Results

Written by the benchmark harness (make bench ARGS=--publish); do not edit. Absolute times mean
little on another machine, or on another day. Compare the ratio to redis-server, which is measured
in alternating runs on the same cores; the ratio of redis-server to itself shows the error. Below
each scenario are its commit, date and machine.
`

// Markdown returns RESULTS.md.
func (r *Results) Markdown() []byte {
	var b bytes.Buffer
	b.WriteString(preface)
	for _, s := range r.Scenarios {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n%s\n%s", s.Name, s.About, s.Tables(), s.origin())
	}
	return b.Bytes()
}

func (s Scenario) origin() string {
	m := s.Machine
	return fmt.Sprintf("`%s` at commit %s, %s; %s, %d cores, Linux %s, %s, redis-server %s.\n",
		s.Command, s.Commit, s.Date, m.CPU, m.Cores, m.Kernel, m.Go, m.Redis)
}

// Tables returns a scenario's results as tables, as the benchmark prints them too.
func (s Scenario) Tables() string {
	all := []string{cpuTable(s.CPU), latencyTable(s.Latency), memoryTable(s.Memory), growthTable(s.Growth),
		sharesTable(s.Shares), figuresTable(s.Figures), answersTable(s.Answers), restartsTable(s.Restarts)}
	tables := strings.Join(slices.DeleteFunc(all, func(t string) bool { return t == "" }), "\n")
	for _, i := range s.Inside {
		tables += fmt.Sprintf("\n%s reports: %s %s\n", i.Server, i.Field, i.Value)
	}
	return tables + fmt.Sprintf("\nOther processes used %.1f %% of the servers' core.\n", 100*s.Others)
}

func cpuTable(rows []CPU) string {
	t := table{{"server", "CPU per call, us", "ratio, median", "quartiles", "rounds", "calls/s"}}
	withOwn := slices.ContainsFunc(rows, func(r CPU) bool { return r.Own != nil })
	if withOwn {
		t[0][0], t[0][1] = "limiter", "backend's CPU per call, us"
		t[0] = append(t[0], "cellservers' CPU per call, us")
	}
	for _, r := range rows {
		cells := []string{r.Server, fmt.Sprintf("%.3f", r.Micros.Middle), ratio(r.Ratio.Middle), quartiles(r.Ratio),
			fmt.Sprint(r.Ratio.Rounds), fmt.Sprintf("%.0f", r.Throughput)}
		if withOwn {
			cells = append(cells, ownMicros(r))
		}
		t = append(t, cells)
	}
	return t.String()
}

func ownMicros(r CPU) string {
	if r.Own == nil {
		return ""
	}
	return fmt.Sprintf("%.2f", r.Own.Middle)
}

func sharesTable(rows []Share) string {
	t := table{{"one key", "calls/s", "the slowest, of an even share", "its p50, ms", "its p99, ms", "most tries",
		"conflicts per call", "failed"}}
	for _, r := range rows {
		t = append(t, []string{r.Server, fmt.Sprintf("%.0f", r.Rate), fmt.Sprintf("%.2f", r.Slowest.Middle),
			fmt.Sprintf("%.2f", r.P50), fmt.Sprintf("%.2f", r.P99), fmt.Sprintf("%.0f", r.MostTries),
			fmt.Sprintf("%.3f", r.Conflicts), fmt.Sprintf("%.2f %%", 100*r.Failed)})
	}
	return t.String()
}

func latencyTable(rows []Latency) string {
	t := table{{"server", "calls/s", "core in use", "percentile", "us, median", "worst round", "ratio, median",
		"quartiles", "rounds"}}
	for _, r := range rows {
		for i, p := range Percentiles {
			t = append(t, []string{r.Server, fmt.Sprintf("%.0f", r.Rate), fmt.Sprintf("%.0f %%", 100*r.Busy),
				fmt.Sprintf("p%g", p),
				fmt.Sprintf("%.0f", r.Micros[i].Middle), fmt.Sprintf("%.0f", r.Worst[i]), ratio(r.Ratio[i].Middle),
				quartiles(r.Ratio[i]), fmt.Sprintf("%d of %gs", r.Ratio[i].Rounds, r.Length)})
		}
	}
	return t.String()
}

func memoryTable(rows []Memory) string {
	t := table{{"server", "keys", "bytes per key", "peak per key", "MiB at the start", "settled", "peak",
		"with all expired"}}
	for _, r := range rows {
		left := "-"
		if r.Left > 0 {
			left = fmt.Sprintf("%s after %d s", mebibytes(r.Left), r.Seconds)
		}
		t = append(t, []string{r.Server, fmt.Sprint(r.Keys), fmt.Sprintf("%.1f", r.PerKey()),
			fmt.Sprintf("%.1f", r.PeakPerKey()),
			mebibytes(r.Start), mebibytes(r.Settled), mebibytes(r.Peak), left})
	}
	return t.String()
}

// growthTable shows the steps with the most memory per key. Where memory grows in jumps, these are
// just after a jump.
func growthTable(steps []Memory) string {
	if len(steps) == 0 {
		return ""
	}
	settled, peak := MostPerKey(steps)
	t := table{
		{"of " + fmt.Sprint(len(steps)) + " steps", "bytes per key", "keys"},
		{"maximum when settled", fmt.Sprintf("%.1f", settled.PerKey()), fmt.Sprint(settled.Keys)},
		{"maximum while growing", fmt.Sprintf("%.1f", peak.PeakPerKey()), fmt.Sprint(peak.Keys)},
		{"last step", fmt.Sprintf("%.1f", steps[len(steps)-1].PerKey()), fmt.Sprint(steps[len(steps)-1].Keys)},
	}
	return t.String() + fmt.Sprintf("\nThe peak is %.2f times the maximum when settled.\n",
		peak.PeakPerKey()/settled.PerKey())
}

func figuresTable(rows []Figure) string {
	t := table{{"what", "value", "unit"}}
	withBars := slices.ContainsFunc(rows, Figure.HasBar)
	if withBars {
		t[0] = append(t[0], "bar", "met")
	}
	for _, r := range rows {
		cells := []string{r.What, fmt.Sprintf("%.4g", r.Value), r.Unit}
		if withBars {
			cells = append(cells, r.bar()...)
		}
		t = append(t, cells)
	}
	return t.String()
}

// bar returns the bar, and whether the figure meets it.
func (f Figure) bar() []string {
	met := "no"
	if f.Meets() {
		met = "yes"
	}
	switch {
	case f.AtMost > 0:
		return []string{fmt.Sprintf("at most %.3g", f.AtMost), met}
	case f.AtLeast > 0:
		return []string{fmt.Sprintf("at least %.3g", f.AtLeast), met}
	}
	return []string{"", ""}
}

// MostPerKey returns the steps at which a key takes most memory: when the memory has settled, and
// at its peak while keys are added.
func MostPerKey(steps []Memory) (settled, peak Memory) {
	settled = slices.MaxFunc(steps, func(a, b Memory) int { return compare(a.PerKey(), b.PerKey()) })
	peak = slices.MaxFunc(steps, func(a, b Memory) int { return compare(a.PeakPerKey(), b.PeakPerKey()) })
	return settled, peak
}

func compare(a, b float64) int {
	if a < b {
		return -1
	}
	return 1
}

func ratio(r float64) string       { return fmt.Sprintf("%.3f", r) }
func quartiles(s Spread) string    { return fmt.Sprintf("%.3f - %.3f", s.Low, s.High) }
func mebibytes(bytes int64) string { return fmt.Sprintf("%.1f", float64(bytes)/(1<<20)) }

// table is rows of cells, the heading first. It is written as Markdown that can be read as it is.
type table [][]string

func (t table) String() string {
	if len(t) < 2 {
		return ""
	}
	widths := make([]int, len(t[0]))
	for _, row := range t {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for i, row := range t {
		writeRow(&b, row, widths)
		if i == 0 {
			writeRule(&b, widths)
		}
	}
	return b.String()
}

// writeRow aligns the first column to the left, and the others, which are numbers, to the right.
func writeRow(b *strings.Builder, row []string, widths []int) {
	for i, cell := range row {
		space := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
		if i == 0 {
			b.WriteString("| " + cell + space)
		} else {
			b.WriteString(" | " + space + cell)
		}
	}
	b.WriteString(" |\n")
}

func writeRule(b *strings.Builder, widths []int) {
	for i, width := range widths {
		if i == 0 {
			b.WriteString("|" + strings.Repeat("-", width+2))
		} else {
			b.WriteString("|" + strings.Repeat("-", width+1) + ":")
		}
	}
	b.WriteString("|\n")
}
