package simulation

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"cellserver/internal/racetest"
)

var (
	long  = flag.Duration("long", 0, "how long to run random seeds")
	first = flag.Uint64("first", 1, "the first seed")
	count = flag.Uint64("count", 40, "how many seeds")
	shows = flag.Bool("show", false, "show what each run has done")
)

// TestSeeds runs seeds, the same ones each time, or more with -long.
func TestSeeds(t *testing.T) {
	racetest.HasOneGoroutine(t)
	end, corrected, repeated := time.Now().Add(*long), 0, 0
	for seed := *first; seed < *first+*count || time.Now().Before(end); seed++ {
		result := Run(PlanOf(seed))
		if *shows {
			fmt.Printf("%+v\n%v %v\n%+v\n\n", result.Plan, result.Ended, result.Faults, result.Counters)
		}
		if len(result.Violations) > 0 {
			t.Fatalf("seed %d, %+v:\n%s", seed, result.Plan, strings.Join(result.Violations, "\n"))
		}
		corrected, repeated = corrected+result.Corrected, repeated+result.Repeated
	}
	t.Logf("%d charges corrected, %d steps repeated", corrected, repeated)
	assert.True(t, *count < 40 || corrected > 0 && repeated > 0, "no seed has charges")
}

// TestLeaseSeeds runs seeds in which processes take tokens ahead, the same ones each time, or more with -long.
func TestLeaseSeeds(t *testing.T) {
	racetest.HasOneGoroutine(t)
	end, blocks := time.Now().Add(*long), 0
	for seed := *first; seed < *first+*count || time.Now().Before(end); seed++ {
		result := Run(PlanOfLeases(seed))
		if *shows {
			fmt.Printf("%+v\n%v %v %d from blocks\n\n", result.Plan, result.Ended, result.Faults, result.Blocks)
		}
		if len(result.Violations) > 0 {
			t.Fatalf("seed %d, %+v:\n%s", seed, result.Plan, strings.Join(result.Violations, "\n"))
		}
		blocks += result.Blocks
	}
	assert.Positive(t, blocks)
}

// TestRunsCanBeRepeated runs seeds twice, with the same result: otherwise a seed would be useless.
func TestRunsCanBeRepeated(t *testing.T) {
	racetest.HasOneGoroutine(t)
	for seed := range uint64(5) {
		assert.Equal(t, Run(PlanOf(seed)), Run(PlanOf(seed)), "seed %d", seed)
		assert.Equal(t, Run(PlanOfLeases(seed)), Run(PlanOfLeases(seed)), "seed %d", seed)
	}
}

// Clients charge and correct amid faults, repeat steps, and finish. If a repeated step does not look whether it was
// made before, the oracle finds a charge that was corrected twice.
func TestChargesAreCorrectedOnce(t *testing.T) {
	racetest.HasOneGoroutine(t)
	var done, repeated, found int
	for seed := range uint64(20) {
		plan := PlanOf(seed)
		plan.Processes, plan.Charges, plan.Cut = min(plan.Processes, 8), 5, 0.05
		result := Run(plan)
		assert.Empty(t, result.Violations, "seed %d", seed)
		done, repeated = done+result.Corrected, repeated+result.Repeated
		plan.Forgetful = true
		if len(Run(plan).Violations) > 0 {
			found++
		}
	}
	t.Logf("%d charges corrected, %d steps repeated; without looking, %d of 20 seeds are found", done, repeated, found)
	assert.Positive(t, repeated)
	assert.Positive(t, found)
}

// After a correction, a bucket holds at least what it would if the used quantity had been charged at first. If
// corrections were refunds of the whole difference, it would hold less, which the oracle finds.
func TestCorrectionsGiveBackNoMore(t *testing.T) {
	racetest.HasOneGoroutine(t)
	done, found := 0, 0
	for seed := range uint64(20) {
		plan := PlanOf(seed)
		plan.Processes, plan.Charges = min(plan.Processes, 8), 3
		result := Run(plan)
		assert.Empty(t, result.Violations, "seed %d", seed)
		done += result.Corrected
		plan.Refunds = true
		for _, v := range Run(plan).Violations {
			if strings.Contains(v, "a correction has left") {
				found++
				break
			}
		}
	}
	t.Logf("%d charges corrected; refunds are found with %d of 20 seeds", done, found)
	assert.Positive(t, done)
	assert.Positive(t, found)
}
