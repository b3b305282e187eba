// Command limiters draws the pictures of docs/limiters.md, and writes its table: the same calls
// made to each limiter, and jobs that hold leases. It runs the algorithms on a simulated clock, so
// that every run gives the same results.
//
//	go run ./bench/limiters
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"cellserver/bench/report"
)

func main() {
	if err := write("docs"); err != nil {
		fmt.Fprintln(os.Stderr, "limiters: run it in the project's directory:", err)
		os.Exit(1)
	}
}

// page is the document with the pictures and the table.
const page = "limiters.md"

func write(docs string) error {
	text, err := os.ReadFile(filepath.Join(docs, page))
	if err != nil {
		return err
	}
	files, err := made(string(text))
	if err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(docs, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

const tableStart, tableEnd = "<!-- played: written by go run ./bench/limiters -->\n", "<!-- end of played -->"

// made returns the pictures, and the page with its table, by file name.
func made(text string) (map[string][]byte, error) {
	before, rest, found := strings.Cut(text, tableStart)
	_, after, ended := strings.Cut(rest, tableEnd)
	if !found || !ended {
		return nil, errors.New(page + " has lost its table")
	}
	files := map[string][]byte{"limiters-lease.svg": drawLeases(playLeases())}
	table := fmt.Sprintf("| | admitted | refused | most in %d s |\n|---|---|---|---|\n", period)
	arrivals := arrive()
	for _, c := range contenders() {
		p := playCalls(c, arrivals)
		files["limiters-"+c.file+".svg"] = drawCalls(c, p)
		table += fmt.Sprintf("| `%s` | %d | %d | %d |\n", c.call, len(p.admitted), len(p.refused), p.most)
	}
	files[page] = []byte(before + tableStart + table + tableEnd + after)
	return files, nil
}

func drawCalls(c contender, p played) []byte {
	return report.Timeline{
		Title: fmt.Sprintf("%s: %d of %d calls admitted, up to %d in %d s", c.call, len(p.admitted),
			len(p.admitted)+len(p.refused), p.most, period),
		Unit:    fmt.Sprintf("admitted in %d s", period),
		Seconds: callSeconds, Most: 2*limit + 1, Phases: phases,
		Tracks: []report.Track{
			{Name: "refused", Marks: p.refused},
			{Name: fmt.Sprintf("admitted; line: the last %d s", period), Steps: p.inPeriod, Marks: p.admitted},
			{Name: "limit", Dashed: true, Steps: []report.Step{{At: 0, Value: limit}}},
		},
	}.SVG()
}

func drawLeases(w worked) []byte {
	return report.Timeline{
		Title:   fmt.Sprintf("CL.ACQUIRE jobs %d %d holder, renewed every %d s", permits, ttl, renewEvery),
		Unit:    "permits",
		Seconds: jobSeconds, Most: permits + 1,
		Phases: []report.Phase{{Name: "crash", From: w.crashed}, {Name: "lease ends", From: w.freed}},
		Tracks: []report.Track{
			{Name: "refused", Marks: w.refused},
			{Name: "granted; line: permits held", Steps: w.held, Marks: w.granted},
			{Name: "limit", Dashed: true, Steps: []report.Step{{At: 0, Value: permits}}},
			{Name: "jobs at work", Dashed: true, Steps: w.atWork},
		},
	}.SVG()
}
