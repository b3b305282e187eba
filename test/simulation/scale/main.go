// Command scale simulates processes that share a backend of 100 primaries, and prints what a step
// costs, by the number of processes and by the share of the hottest key. Each process makes 100
// writing steps a second, over a network with a round trip of half a millisecond. The simulated
// servers take no time, so compare their load with what a real server can do.
//
// With -write, it keeps the results in a file, and writes the table and the pictures of
// docs/scale.md, which follow from that file.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	"cellserver/test/simulation"
)

func main() {
	primaries := flag.Int("primaries", 100, "servers of the backend")
	most := flag.Int("processes", 1000, "the most processes")
	write := flag.Bool("write", false, "write the table and the pictures of docs/scale.md")
	flag.Parse()
	var all results
	for _, processes := range numbers {
		if processes > *most {
			break
		}
		for _, hot := range shares {
			r := simulate(processes, *primaries, hot)
			all = append(all, r)
			fmt.Fprintln(os.Stderr, r)
		}
	}
	fmt.Print(all.table())
	if *write {
		if err := all.write("."); err != nil {
			fmt.Fprintln(os.Stderr, "scale: run it in the project's directory:", err)
			os.Exit(1)
		}
	}
}

// The numbers of processes, and the shares of the steps that are on the hottest key.
var (
	numbers = []int{1, 3, 10, 30, 100, 300, 1000}
	shares  = []float64{0, 0.001, 0.01, 0.1, 0.5}
)

// result is what a simulation has shown.
type result struct {
	Processes int     `json:"processes"`
	Hot       float64 `json:"hot"` // the share of the steps that are on the hottest key
	Steps     int64   `json:"steps"`
	Conflicts float64 `json:"conflicts"` // the mean per step
	Commands  float64 `json:"commands"`  // the mean per step
	Busiest   float64 `json:"busiest"`   // commands a second of the busiest primary
	P50       float64 `json:"p50"`       // in ms; a step that failed has taken its whole time
	P99       float64 `json:"p99"`
	P999      float64 `json:"p999"`
	MostTries int64   `json:"most_tries"`
	Failed    float64 `json:"failed"` // the share of the steps
}

// simulated is the length of a simulation.
const simulated = 2 * time.Second

func simulate(processes, primaries int, hot float64) result {
	plan := simulation.Plan{
		Seed: 1, Processes: processes, Primaries: primaries, Slots: primaries, Keys: 1000, Writes: true, Hot: hot,
		Rate: int64(10 * time.Millisecond), CalmRate: int64(10 * time.Millisecond),
		Timeout: int64(100 * time.Millisecond), Duration: int64(simulated), Known: 100_000,
		Delay: 1, Jitter: int64(20 * time.Microsecond), KeepDurations: true,
	}
	for range processes {
		plan.Distances = append(plan.Distances, int64(240*time.Microsecond))
	}
	found := simulation.Run(plan)
	var took []int64
	for _, of := range found.Durations {
		took = append(took, of...)
	}
	c, steps := found.Counters, float64(found.Counters.Steps)
	failed := 1 - float64(len(took))/steps
	for int64(len(took)) < c.Steps {
		took = append(took, plan.Timeout)
	}
	slices.Sort(took)
	at := func(share float64) float64 {
		return float64(time.Duration(took[int(float64(len(took)-1)*share)]).Round(10*time.Microsecond)) / 1e6
	}
	return result{
		Processes: processes, Hot: hot, Steps: c.Steps,
		Conflicts: round(float64(c.Conflicts)/steps, 3), Commands: round(float64(c.Requests)/steps, 2),
		Busiest: float64(slices.Max(found.Requests)) / simulated.Seconds(),
		P50:     at(0.5), P99: at(0.99), P999: at(0.999), MostTries: c.MostTries,
		Failed: round(failed, 4),
	}
}
