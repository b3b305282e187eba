package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"cellserver/bench/report"
)

// results are the results of all simulations, in order.
type results []result

// The files with the results, and with what is made from them, in the project's directory.
const (
	kept = "test/simulation/scale/results.json"
	page = "docs/scale.md"
)

const tableStart, tableEnd = "<!-- simulated: written by make simulate-scale ARGS=-write -->\n", "<!-- end of simulated -->"

// write keeps the results, and writes the page and the pictures.
func (all results) write(root string) error {
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, kept), append(text, '\n'), 0o644); err != nil {
		return err
	}
	return writeMade(root)
}

// writeMade writes the page and the pictures from the kept results.
func writeMade(root string) error {
	files, err := made(root)
	if err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(root, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// made returns the files made from the kept results: the page with its table, and the pictures.
func made(root string) (map[string][]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, kept))
	if err != nil {
		return nil, err
	}
	var all results
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, err
	}
	document, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		return nil, err
	}
	before, rest, found := strings.Cut(string(document), tableStart)
	_, after, ended := strings.Cut(rest, tableEnd)
	if !found || !ended {
		return nil, errors.New(page + " has lost its table")
	}
	files := all.pictures()
	files[page] = []byte(before + tableStart + all.table() + tableEnd + after)
	return files, nil
}

// table returns a line for each power of ten of processes.
func (all results) table() string {
	var b strings.Builder
	b.WriteString("| processes | hottest key | steps | conflicts a step | commands a step | commands a second of the busiest primary | p50 | p99 | p99.9 | most tries | failed |\n" +
		"|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range all {
		if r.Processes == 10 || r.Processes == 100 || r.Processes == 1000 {
			b.WriteString(r.String() + "\n")
		}
	}
	return b.String()
}

// String returns a row of the table.
func (r result) String() string {
	return fmt.Sprintf("| %d | %g %% | %d | %.3f | %.2f | %.0f | %g ms | %g ms | %g ms | %d | %.2f %% |", r.Processes,
		100*r.Hot, r.Steps, r.Conflicts, r.Commands, r.Busiest, r.P50, r.P99, r.P999, r.MostTries, 100*r.Failed)
}

// pictures returns the pictures, by file name: a line for each share of the hottest key, by the number
// of processes.
func (all results) pictures() map[string][]byte {
	draw := func(title, unit string, log bool, value func(result) float64) []byte {
		chart := report.LineChart{Title: title, Unit: unit, Log: log, Axis: "processes", LogX: true}
		for _, r := range all {
			if x := float64(r.Processes); !slices.Contains(chart.X, x) {
				chart.X = append(chart.X, x)
			}
			i := slices.IndexFunc(chart.Series, func(s report.Series) bool { return s.Name == r.share() })
			if i < 0 {
				i = len(chart.Series)
				chart.Series = append(chart.Series, report.Series{Name: r.share()})
			}
			chart.Series[i].Values = append(chart.Series[i].Values, value(r))
		}
		return chart.SVG()
	}
	return map[string][]byte{
		"docs/scale-conflicts.svg": draw("Conflicts of a call (simulated)", "conflicts a call", false,
			func(r result) float64 { return r.Conflicts }),
		"docs/scale-p99.svg": draw("99th percentile of all calls; those that fail take 100 ms (simulated)", "ms, logarithmic", true,
			func(r result) float64 { return r.P99 }),
		"docs/scale-load.svg": draw("Commands a second of the busiest of 100 primaries (simulated)",
			"thousands a second, logarithmic", true, func(r result) float64 { return r.Busiest / 1000 }),
		"docs/scale-failed.svg": draw("Calls that fail, most with STOREBUSY (simulated)", "% of all calls", false,
			func(r result) float64 { return 100 * r.Failed }),
	}
}

func (r result) share() string {
	if r.Hot == 0 {
		return "no hot key"
	}
	return fmt.Sprintf("%g %% of the calls on one key", 100*r.Hot)
}

func round(value float64, digits int) float64 {
	power := math.Pow10(digits)
	return math.Round(value*power) / power
}
