// Package report keeps results in bench/results.json, and writes RESULTS.md, the plots, and the
// figures in README.md and docs/ from them. A test checks that all of these are made from
// results.json, byte for byte.
package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// Results are the last published run of each scenario, in the order of publication.
type Results struct {
	Scenarios []Scenario `json:"scenarios"`
}

// Scenario has the results of one scenario. Only the table of its kind is set.
type Scenario struct {
	Name    string    `json:"name"`
	About   string    `json:"about"`
	Commit  string    `json:"commit"`
	Command string    `json:"command"`
	Date    string    `json:"date"` // UTC
	Machine Machine   `json:"machine"`
	Others  float64   `json:"others"` // share of the servers' core that other processes used
	CPU     []CPU     `json:"cpu,omitempty"`
	Latency []Latency `json:"latency,omitempty"`
	Memory  []Memory  `json:"memory,omitempty"`
	Growth  []Memory  `json:"growth,omitempty"` // one server's memory, step by step
	Shares  []Share   `json:"shares,omitempty"`
	Figures []Figure  `json:"figures,omitempty"`
	Inside  []Inside  `json:"inside,omitempty"`

	Answers  []Answers `json:"answers,omitempty"`
	Restarts []Restart `json:"restarts,omitempty"`
	Peers    string    `json:"peers,omitempty"` // versions of other limiters
}

// Figure is a measured value. If it has a bar, the value should be at most or at least the bar.
type Figure struct {
	What    string  `json:"what"`
	Value   float64 `json:"value"`
	Unit    string  `json:"unit"`
	AtMost  float64 `json:"at_most,omitempty"`
	AtLeast float64 `json:"at_least,omitempty"`
}

// HasBar reports whether the figure has a bar.
func (f Figure) HasBar() bool { return f.AtMost > 0 || f.AtLeast > 0 }

// Meets reports whether the figure meets its bar.
func (f Figure) Meets() bool { return (f.AtMost == 0 || f.Value <= f.AtMost) && f.Value >= f.AtLeast }

// Share is how many decisions cellservers get if they call the same key of a backend as fast as
// they can.
type Share struct {
	Server    string  `json:"server"`
	Rate      float64 `json:"rate"`    // calls that succeed per second, in all, median
	Slowest   Spread  `json:"slowest"` // the slowest cellserver's part, divided by an even share
	P50       float64 `json:"p50"`     // of the slowest cellserver, in ms, median
	P99       float64 `json:"p99"`
	MostTries float64 `json:"most_tries"`
	Conflicts float64 `json:"conflicts"` // the mean per call
	Failed    float64 `json:"failed"`    // a share of the calls
}

// Machine is the machine of a measurement.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
	Redis  string `json:"redis"`
}

// Spread is the median of some rounds, with the quartiles around it.
type Spread struct {
	Low    float64 `json:"low"`
	Middle float64 `json:"middle"`
	High   float64 `json:"high"`
	Rounds int     `json:"rounds"`
}

// CPU is the CPU time per call of a server, or in the scenarios about --store, of the backend.
// Ratios are to the first server of the scenario, round by round.
type CPU struct {
	Server     string  `json:"server"`
	Micros     Spread  `json:"micros"` // CPU time per call, user and system
	Ratio      Spread  `json:"ratio"`
	Throughput float64 `json:"throughput"`    // calls per second, median
	Own        *Spread `json:"own,omitempty"` // CPU time per call of the cellservers that use the backend
}

// Latency is the latency of calls at a fixed rate, in microseconds, by percentile. Ratios are to
// the first server, round by round.
type Latency struct {
	Server string    `json:"server"`
	Rate   float64   `json:"rate"`    // calls per second
	Length float64   `json:"seconds"` // the length of a round
	Busy   float64   `json:"busy"`    // share of its core that the server used, median
	Micros []Spread  `json:"micros"`
	Ratio  []Spread  `json:"ratio"`
	Worst  []float64 `json:"worst"` // the worst round, for each percentile
}

// Percentiles are the percentiles of Latency, in its order.
var Percentiles = []float64{50, 99, 99.9}

// Memory is the resident memory of a server, in bytes.
type Memory struct {
	Server  string `json:"server"`
	Keys    int    `json:"keys"`
	Start   int64  `json:"start"`
	Settled int64  `json:"settled"`        // with the keys, when it does not change any more
	Peak    int64  `json:"peak"`           // since the start
	Left    int64  `json:"left,omitempty"` // when the keys have expired
	Seconds int    `json:"seconds,omitempty"`
}

// PerKey returns the bytes that a key takes.
func (m Memory) PerKey() float64 { return float64(m.Settled-m.Start) / float64(m.Keys) }

// PeakPerKey returns the bytes that a key took at the peak.
func (m Memory) PeakPerKey() float64 { return float64(m.Peak-m.Start) / float64(m.Keys) }

// Inside is a field of a server's INFO.
type Inside struct {
	Server string `json:"server"`
	Field  string `json:"field"`
	Value  string `json:"value"`
}

// NewSpread returns the spread of a sample. The median of an even number of values is the mean of
// the two middle values.
func NewSpread(sample []float64) Spread {
	if len(sample) == 0 {
		return Spread{}
	}
	s := slices.Sorted(slices.Values(sample))
	return Spread{Low: at(s, 0.25), Middle: at(s, 0.5), High: at(s, 0.75), Rounds: len(s)}
}

// at returns the value at a fraction of a sorted sample, interpolated linearly.
func at(sorted []float64, fraction float64) float64 {
	position := fraction * float64(len(sorted)-1)
	below := int(position)
	if below+1 == len(sorted) {
		return sorted[below]
	}
	return sorted[below] + (position-float64(below))*(sorted[below+1]-sorted[below])
}

// Put replaces a scenario by a newer run. names has all existing scenarios in order; Put removes
// scenarios that are not in it.
func (r *Results) Put(s Scenario, names []string) {
	all := append([]Scenario{s}, r.Scenarios...) // the newer run is found first
	r.Scenarios = nil
	for _, name := range names {
		if i := slices.IndexFunc(all, func(s Scenario) bool { return s.Name == name }); i >= 0 {
			r.Scenarios = append(r.Scenarios, all[i])
		}
	}
}

// Find returns a scenario, or nil.
func (r *Results) Find(name string) *Scenario {
	if i := slices.IndexFunc(r.Scenarios, func(s Scenario) bool { return s.Name == name }); i >= 0 {
		return &r.Scenarios[i]
	}
	return nil
}

const stored = "bench/results.json"

// Load reads the results under the project's root. Without a file, the results are empty.
func Load(root string) (*Results, error) {
	text, err := os.ReadFile(filepath.Join(root, stored))
	if errors.Is(err, fs.ErrNotExist) {
		return &Results{}, nil
	}
	if err != nil {
		return nil, err
	}
	r := &Results{}
	strict := json.NewDecoder(bytes.NewReader(text))
	strict.DisallowUnknownFields()
	return r, strict.Decode(r)
}

// Store writes the results and all files that are made from them.
func (r *Results) Store(root string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	files := map[string][]byte{stored: append(text, '\n')}
	for name, text := range r.Files() {
		files[name] = text
	}
	documents, err := r.Documents(root)
	if err != nil {
		return err
	}
	maps.Copy(files, documents)
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Files returns the files that consist only of results, by their names under the root.
func (r *Results) Files() map[string][]byte {
	files := map[string][]byte{"bench/RESULTS.md": r.Markdown()}
	for name, plot := range r.Plots() {
		files["bench/plots/"+name] = plot
	}
	return files
}
