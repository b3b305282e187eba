package report

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// compareSample has the scenarios that compare limiters. During the first, the machine was busy.
func compareSample() *Results {
	spread := func(us float64) Spread { return Spread{us, us, us, 21} }
	cpu := func(us float64) []CPU {
		return []CPU{{Incr, spread(us), spread(1), 1e5, nil}, {Throttle, spread(us / 2), spread(0.5), 2e5, nil}}
	}
	latency := []Spread{spread(30), spread(600), spread(2000)}
	r := &Results{Scenarios: []Scenario{
		{Name: "compare-p1", About: "P=1, 50 connections", CPU: cpu(6), Others: 0.5},
		{Name: "compare-p64", About: "P=64, 50 connections", CPU: cpu(1)},
		{Name: "compare-latency", Latency: []Latency{{Throttle, 80000, 4, 0.5, latency, latency, nil}}},
		{Name: "compare-memory", About: "1M keys of 17 bytes",
			Memory: []Memory{{Throttle, 1e6, 10 << 20, 60 << 20, 0, 0, 0}}},
		{Name: "compare-answers", Answers: []Answers{{Throttle, 1000, 1000, 999, 500}}},
		{Name: "compare-restarts", Restarts: []Restart{{Cellserver, false, false}, {Cellserver + " --dir", true, true}}},
	}}
	for i := range r.Scenarios {
		r.Scenarios[i].Commit, r.Scenarios[i].Date, r.Scenarios[i].Peers = "0123456789ab", "2026-01-02", "redis-cell 0.2.2"
		r.Scenarios[i].Machine = Machine{CPU: "Z80", Cores: 2, Go: "go1.26", Redis: "7.0.15"}
	}
	return r
}

const compareRun = "\nCommit 0123456789ab, 2026-01-02; Z80, 2 cores, go1.26, redis-server 7.0.15, redis-cell 0.2.2.\n"

func TestCompareTables(t *testing.T) {
	r := compareSample()
	assert.Equal(t, `| CPU time of the server per call |     P=1 | INCR = 1 |    P=64 | INCR = 1 |
|---------------------------------|--------:|---------:|--------:|---------:|
| redis-server INCR               | 6.00 us |    1.000 | 1.00 us |    1.000 |
`, strings.Join(strings.SplitAfter(r.compareCPU(), "\n")[:3], ""))
	assert.Equal(t, `| latency                | calls/s |   p50 |    p99 |   p99.9 |
|------------------------|--------:|------:|-------:|--------:|
| cellserver CL.THROTTLE |   80000 | 30 us | 600 us | 2000 us |
`+compareRun, r.compareLatency())
	assert.Equal(t, `|                        | replies | same decision | and same limit and remaining | and same times |
|------------------------|--------:|--------------:|-----------------------------:|---------------:|
| cellserver CL.THROTTLE |    1000 |       100.0 % |                       99.9 % |         50.0 % |
`+compareRun, r.compareAnswers())
	assert.Equal(t, `|                  | after a shutdown | after a crash |
|------------------|-----------------:|--------------:|
| cellserver       |             lost |          lost |
| cellserver --dir |             kept |          kept |
`+compareRun, r.compareRestarts())
	assert.Contains(t, r.compareCPU(), "redis-cell 0.2.2. Other processes used 50 % of the servers' core meanwhile")
	assert.Contains(t, r.compareMemory(), "| cellserver CL.THROTTLE      |          52.4 |             10.0 |\n")
	for name, draw := range map[string]func(*Results) []byte{"cpu": drawCompareCPU, "memory": drawCompareMemory} {
		assert.Contains(t, string(draw(r)), Throttle, name)
		assert.Nil(t, draw(&Results{}), name)
	}
}

// Without results, the page has no figures.
func TestNothingToCompare(t *testing.T) {
	none := &Results{}
	for _, table := range []string{none.compareCPU(), none.compareLatency(), none.compareMemory(), none.compareAnswers(),
		none.compareRestarts()} {
		assert.Empty(t, table)
	}
}

func TestAnswersAreCounted(t *testing.T) {
	var a Answers
	a.Add(true, true, true)
	a.Add(true, true, false)
	a.Add(true, false, true)
	a.Add(false, true, true)
	assert.Equal(t, Answers{Calls: 4, Decision: 3, Remaining: 2, Times: 1}, a)
}
