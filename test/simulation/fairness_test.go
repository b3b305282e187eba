package simulation

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestHotKeyOfClockThatIsSet sets a server's clock to a later time. Until the processes measure the
// clock again, they write limits that are in the past for the server, which removes them at once.
// The processes must notice this: the limit may admit another burst for the new time, and one for
// each process, but not every call.
func TestHotKeyOfClockThatIsSet(t *testing.T) {
	plan := Plan{Seed: 1, Processes: 2, Primaries: 1, Slots: 1, Keys: 1, Rate: 50 * us, Timeout: 100 * ms,
		Duration: 500 * ms, Known: 10, Delay: 100 * us, SetAt: 50 * ms, JumpSize: 5000 * ms}
	result := Run(plan)
	t.Log(result.Admitted)
	assert.Empty(t, result.Violations)
	assert.GreaterOrEqual(t, result.Admitted["0:0"], plan.Duration/emission)
	assert.LessOrEqual(t, result.Admitted["0:0"], 4*plan.burst()+plan.Duration/emission)
}

// TestLimitsOutliveTheirTAT uses limits without a burst, whose keys end after each admission, and
// a process whose idea of the time is wrong by milliseconds. If a key expired at its TAT, a process
// whose clock is behind the server's would each time admit too early by its error.
func TestLimitsOutliveTheirTAT(t *testing.T) {
	plan := Plan{Seed: 1, Processes: 1, Primaries: 1, Slots: 1, Keys: 1, Rate: 200 * us, Timeout: 100 * ms,
		Duration: 1000 * ms, Known: 10, Burst: 1, Delay: 100 * us, Wrong: 4 * ms}
	assert.Empty(t, Run(plan).Violations)
	plan.NoMargin = true
	assert.NotEmpty(t, Run(plan).Violations, "the fault is found")
}

// TestHotKeyIsShared lets processes call one key as fast as they can. At equal distances, each
// process must get at least a quarter of an even share. A process that is further away gets less,
// but its calls end in time.
func TestHotKeyIsShared(t *testing.T) {
	for _, c := range []struct{ processes, far int }{{1, 0}, {2, 0}, {4, 0}, {8, 0}, {4, 1}, {8, 1}} {
		t.Run(fmt.Sprintf("%d processes, %d far", c.processes, c.far), func(t *testing.T) {
			plan := Plan{Seed: 1, Processes: c.processes, Primaries: 1, Slots: 1, Callers: 32,
				Timeout: 100 * ms, Duration: 300 * ms, Known: 10,
				Delay: 100 * us, Jitter: 10 * us, KeepDurations: true}
			for range c.processes {
				plan.Distances = append(plan.Distances, 50*us)
			}
			if c.far > 0 {
				plan.Distances[0] += 1000 * us
			}
			result := Run(plan)
			assert.Empty(t, result.Violations)
			assert.Equal(t, map[string]int{"ok": result.Ended["ok"]}, result.Ended, "no step starves")
			assert.LessOrEqual(t, result.Counters.MostTries, int64(16))
			even := 0
			for _, share := range result.Shares {
				even += share / c.processes
			}
			took := result.Durations[0]
			slices.Sort(took)
			t.Log(result.Shares, "p50, p99 of the first, us:", took[len(took)/2]/us, took[len(took)*99/100]/us,
				"tries", result.Counters.MostTries, result.Ended)
			if c.far == 0 {
				assert.GreaterOrEqual(t, slices.Min(result.Shares), even/4)
			}
			assert.Less(t, took[len(took)*99/100], 100*ms)
		})
	}
}

// TestHotKeyOfManyProcesses lets more processes call one key than there are round trips for. Steps that lose wait
// longer before they try again, so that the server's load stays bounded. Therefore some steps fail, with an error
// that says why.
func TestHotKeyOfManyProcesses(t *testing.T) {
	plan := Plan{Seed: 1, Processes: 32, Primaries: 1, Slots: 1, Callers: 8, Timeout: 100 * ms,
		Duration: 300 * ms, Known: 10, Delay: 100 * us, Jitter: 10 * us}
	for range plan.Processes {
		plan.Distances = append(plan.Distances, 50*us)
	}
	result := Run(plan)
	ok, contended := result.Ended["ok"], result.Ended["contended"]
	t.Log(result.Ended, "tries", result.Counters.MostTries, "conflicts", result.Counters.Conflicts)
	assert.Equal(t, map[string]int{"ok": ok, "contended": contended}, result.Ended)
	assert.Less(t, contended, ok/20)
	assert.LessOrEqual(t, result.Counters.MostTries, int64(40))
}

// TestLimitIsShared lets four processes use one limit, each with a demand of a quarter of the limit. One process is
// so far away that others always write while its step is under way. The far process must get at least half of its
// share, which it would not get if the servers did not make the steps themselves.
func TestLimitIsShared(t *testing.T) {
	for _, c := range []struct{ away, timeout int64 }{{10 * ms, 100 * ms}, {40 * ms, 1000 * ms}} {
		plan := Plan{Seed: 1, Processes: 4, Primaries: 1, Slots: 1, Callers: 16, Pause: 320 * ms, CallKey: "0:0",
			Timeout: c.timeout, Duration: 10_000 * ms, Known: 10, Jitter: 10 * us, KeepDurations: true, Adds: true,
			Compared: 16, Delay: c.away, Distances: []int64{c.away / 2, 50 * us, 50 * us, 50 * us}}
		result := Run(plan)
		assert.Empty(t, result.Violations)
		even := 0
		for _, taken := range result.Taken {
			even += taken / plan.Processes
		}
		took := result.Durations[0]
		slices.Sort(took)
		t.Logf("%d ms away: %v taken, p50 %d us, %d steps made by the server, %d conflicts", c.away/ms, result.Taken,
			took[len(took)/2]/us, result.Counters.Scripted, result.Counters.Conflicts)
		assert.GreaterOrEqual(t, result.Taken[0], even/2)
		assert.Less(t, took[len(took)/2], c.away*5/2, "two round trips, and a wait for the step before")
	}
}

// TestJointStepsAreNotStarved lets steps on several keys share a key with steps that the server makes. The
// server's steps must give way to a process that has lost twice.
func TestJointStepsAreNotStarved(t *testing.T) {
	plan := Plan{Seed: 3, Processes: 8, Primaries: 1, Slots: 1, Keys: 2, Rate: 20 * ms,
		Callers: 16, Pause: 10 * ms, CallKey: "0:0", Timeout: 100 * ms, Duration: 2000 * ms,
		Known: 10, Jitter: 10 * us, Adds: true, Compared: 16, Delay: 300 * us, Burst: 1_000_000}
	result := Run(plan)
	assert.Empty(t, result.Violations)
	c := result.Counters
	t.Log(result.Ended, "tries", c.MostTries, "turns", c.Turns, "scripted", c.Scripted, "conflicts", c.Conflicts)
	assert.Equal(t, map[string]int{"ok": result.Ended["ok"], "conflict": result.Ended["conflict"]}, result.Ended)
	assert.LessOrEqual(t, result.Counters.MostTries, int64(24))
}

// TestModestHotKey lets processes call one key at a modest rate: each has 16 callers, which pause for 10 ms. If servers
// make the steps, a step takes a round trip and at most one request. If one step in 16 has to be compared and set, it
// makes the others wait for a few round trips at most.
func TestModestHotKey(t *testing.T) {
	const roundTrip = 300 * us
	for _, c := range []struct {
		processes              int
		compared               uint64
		middle, slow, requests float64 // p50 and p99 in round trips, and requests per step, at most
	}{{4, 0, 1.1, 3, 1}, {4, 16, 1.7, 12, 1.15}, {8, 0, 1.1, 3, 1}, {8, 16, 2, 15, 1.15}} {
		for seed := range uint64(2) {
			result := Run(modestPlan(seed, c.processes, c.compared, roundTrip))
			assert.Empty(t, result.Violations)
			assert.Equal(t, map[string]int{"ok": result.Ended["ok"]}, result.Ended)
			took := slices.Concat(result.Durations...)
			slices.Sort(took)
			trips := func(part float64) float64 { return float64(took[int(float64(len(took)-1)*part)]) / float64(roundTrip) }
			requests := float64(result.Counters.Requests) / float64(result.Counters.Steps)
			t.Logf("%d processes, 1 step in %d compared: p50 %.2f round trips, p99 %.2f; %.2f requests per step",
				c.processes, c.compared, trips(0.5), trips(0.99), requests)
			assert.LessOrEqual(t, trips(0.5), c.middle)
			assert.LessOrEqual(t, trips(0.99), c.slow)
			assert.LessOrEqual(t, requests, c.requests)
		}
	}
}

// TestLeasedHotKey lets eight processes, each a round trip of 0.3 ms away, take tokens of one key ahead, below its
// limit, and with 2 and 20 times the demand. Calls that no block decides take a few round trips.
func TestLeasedHotKey(t *testing.T) {
	for _, load := range []float64{0.9, 2, 20} {
		result := Run(Plan{Seed: 1, Processes: 8, Primaries: 1, Slots: 1, Keys: 1, Known: 10,
			Timeout: 100 * ms, Duration: 5000 * ms, KeepDurations: true,
			Distances: slices.Repeat([]int64{150 * us}, 8), Jitter: 10 * us, Wrong: 100 * us,
			Burst: 1000, Lease: 100 * ms, Load: load, Adds: true, Compared: 16})
		assert.Empty(t, result.Violations)
		took := slices.Concat(result.Durations...)
		slices.Sort(took)
		slow := took[int(float64(len(took)-1)*0.99)]
		t.Logf("load %v: %d calls from blocks, %d steps, p99 of the steps %d us", load, result.Blocks, len(took),
			slow/us)
		assert.LessOrEqual(t, slow, 2*ms)
	}
}

func modestPlan(seed uint64, processes int, compared uint64, roundTrip int64) Plan {
	return Plan{Seed: seed, Processes: processes, Primaries: 1, Slots: 1, Callers: 16, Pause: 10 * ms, CallKey: "0:0",
		Timeout: 100 * ms, Duration: 1000 * ms, Known: 10, Jitter: 10 * us, KeepDurations: true, Burst: 1_000_000,
		Adds: true, Compared: compared, Distances: slices.Repeat([]int64{roundTrip / 2}, processes)}
}
