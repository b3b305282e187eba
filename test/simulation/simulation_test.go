package simulation

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

var (
	long  = flag.Duration("long", 0, "how long to run random seeds")
	first = flag.Uint64("first", 1, "the first seed")
	count = flag.Uint64("count", 40, "how many seeds")
	shows = flag.Bool("show", false, "show what each run has done")
)

// TestSeeds runs seeds, the same ones each time, or more with -long.
func TestSeeds(t *testing.T) {
	end := time.Now().Add(*long)
	for seed := *first; seed < *first+*count || time.Now().Before(end); seed++ {
		result := Run(PlanOf(seed))
		if *shows {
			fmt.Printf("%+v\n%v %v\n%+v\n\n", result.Plan, result.Ended, result.Faults, result.Counters)
		}
		if len(result.Violations) > 0 {
			t.Fatalf("seed %d, %+v:\n%s", seed, result.Plan, strings.Join(result.Violations, "\n"))
		}
	}
}

// TestRunsCanBeRepeated: a seed would be of no use otherwise.
func TestRunsCanBeRepeated(t *testing.T) {
	for seed := range uint64(5) {
		assert.Equal(t, Run(PlanOf(seed)), Run(PlanOf(seed)), "seed %d", seed)
	}
}
