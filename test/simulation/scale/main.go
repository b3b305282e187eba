// Command scale simulates processes that share a backend of 100 primaries, and prints what a step
// costs, by the number of processes and by the share of the hottest key. Each process makes 100
// steps a second, all of which write, over a network with a round trip of half a millisecond.
package main

import (
	"flag"
	"fmt"
	"slices"
	"time"

	"cellserver/test/simulation"
)

func main() {
	primaries := flag.Int("primaries", 100, "servers of the backend")
	most := flag.Int("processes", 1000, "the most processes")
	flag.Parse()
	fmt.Println("| processes | hottest key | steps | conflicts a step | commands a step | p50 | p99 | p99.9 | most tries | failed |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|---|")
	for processes := 1; processes <= *most; processes *= 10 {
		for _, hot := range []float64{0, 0.001, 0.01, 0.1, 0.5} {
			row(processes, *primaries, hot)
		}
	}
}

func row(processes, primaries int, hot float64) {
	plan := simulation.Plan{
		Seed: 1, Processes: processes, Primaries: primaries, Slots: primaries, Keys: 1000, Writes: true, Hot: hot,
		Rate: int64(10 * time.Millisecond), CalmRate: int64(10 * time.Millisecond),
		Timeout: int64(100 * time.Millisecond), Duration: int64(2 * time.Second), Known: 100_000,
		Delay: 1, Jitter: int64(20 * time.Microsecond), KeepDurations: true,
	}
	for range processes {
		plan.Distances = append(plan.Distances, int64(240*time.Microsecond))
	}
	result := simulation.Run(plan)
	var took []int64
	for _, of := range result.Durations {
		took = append(took, of...)
	}
	slices.Sort(took)
	at := func(share float64) time.Duration {
		return time.Duration(took[int(float64(len(took)-1)*share)]).Round(10 * time.Microsecond)
	}
	c, steps := result.Counters, float64(result.Counters.Steps)
	fmt.Printf("| %d | %g %% | %d | %.3f | %.2f | %v | %v | %v | %d | %.2f %% |\n", processes, hot*100, c.Steps,
		float64(c.Conflicts)/steps, float64(c.Requests)/steps, at(0.5), at(0.99), at(0.999), c.MostTries,
		100*(1-float64(len(took))/steps))
}
