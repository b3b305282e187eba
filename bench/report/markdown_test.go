package report

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
)

// sample has one scenario of each kind.
func sample() *Results {
	machine := Machine{CPU: "Z80", Cores: 2, Kernel: "6.1", Go: "go1.26", Redis: "7.0.15"}
	three := func(us float64) []Spread {
		return []Spread{{us, us, us, 5}, {2 * us, 2 * us, 2 * us, 5}, {4 * us, 5 * us, 6 * us, 5}}
	}
	scenarios := []Scenario{
		{Name: "cpu-p1", About: "P=1", CPU: []CPU{
			{Incr, Spread{8, 9, 10, 21}, Spread{1, 1, 1, 21}, 100000, nil},
			{Incr + " again", Spread{8, 9, 10, 21}, Spread{1, 1.01, 1.02, 21}, 100000, nil},
			{Throttle, Spread{7, 8, 9, 21}, Spread{0.8, 0.9, 1, 21}, 110000, nil},
		}},
		{Name: "latency-80", About: "80 %", Latency: []Latency{
			{Incr, 80000, 60, 0.7, three(100), three(1), []float64{101, 202, 606}},
			{Throttle, 80000, 60, 0.6, three(90), three(0.9), []float64{91, 182, 546}},
		}},
		{Name: "memory-1m", About: "1M keys", Memory: []Memory{
			{Incr, 1e6, 10 << 20, 100 << 20, 110 << 20, 0, 0},
			{Throttle, 1e6, 7 << 20, 60 << 20, 70 << 20, 8 << 20, 61},
		}},
		{Name: "memory-growth", About: "1M to 2M", Growth: []Memory{
			{Throttle, 1e6, 0, 60e6, 70e6, 0, 0}, {Throttle, 2e6, 0, 100e6, 160e6, 0, 0},
		}, Inside: []Inside{{Throttle, "longest_loop_callback_usec", "900"}}},
	}
	r := &Results{}
	for _, s := range scenarios {
		s.Commit, s.Command, s.Date, s.Machine, s.Others = "0123456789ab", `make bench ARGS="--publish"`, "2026-01-02",
			machine, 0.015
		r.Scenarios = append(r.Scenarios, s)
	}
	return r
}

const origin = "`make bench ARGS=\"--publish\"` at commit 0123456789ab, 2026-01-02; Z80, 2 cores, Linux 6.1, go1.26, " +
	"redis-server 7.0.15.\n"

func TestMarkdown(t *testing.T) {
	all := sample().Markdown()
	for i, scenario := range []string{markdownOfCPU, markdownOfLatency, markdownOfMemory, markdownOfGrowth} {
		rest, found := bytes.CutSuffix(sampleUpTo(i+1).Markdown(), []byte("\n"+scenario+origin))
		assert.True(t, found, "%s", sampleUpTo(i+1).Markdown())
		assert.Equal(t, string(sampleUpTo(i).Markdown()), string(rest))
	}
	assert.Equal(t, string(sampleUpTo(4).Markdown()), string(all))
	assert.Equal(t, preface, string((&Results{}).Markdown()))
}

// sampleUpTo returns the first n scenarios of the sample.
func sampleUpTo(n int) *Results { return &Results{Scenarios: sample().Scenarios[:n]} }

const markdownOfCPU = `## cpu-p1

P=1

| server                  | CPU per call, us | ratio, median |     quartiles | rounds | calls/s |
|-------------------------|-----------------:|--------------:|--------------:|-------:|--------:|
| redis-server INCR       |            9.000 |         1.000 | 1.000 - 1.000 |     21 |  100000 |
| redis-server INCR again |            9.000 |         1.010 | 1.000 - 1.020 |     21 |  100000 |
| cellserver CL.THROTTLE  |            8.000 |         0.900 | 0.800 - 1.000 |     21 |  110000 |

Other processes used 1.5 % of the servers' core.

`

const markdownOfLatency = `## latency-80

80 %

| server                 | calls/s | core in use | percentile | us, median | worst round | ratio, median |     quartiles |   rounds |
|------------------------|--------:|------------:|-----------:|-----------:|------------:|--------------:|--------------:|---------:|
| redis-server INCR      |   80000 |        70 % |        p50 |        100 |         101 |         1.000 | 1.000 - 1.000 | 5 of 60s |
| redis-server INCR      |   80000 |        70 % |        p99 |        200 |         202 |         2.000 | 2.000 - 2.000 | 5 of 60s |
| redis-server INCR      |   80000 |        70 % |      p99.9 |        500 |         606 |         5.000 | 4.000 - 6.000 | 5 of 60s |
| cellserver CL.THROTTLE |   80000 |        60 % |        p50 |         90 |          91 |         0.900 | 0.900 - 0.900 | 5 of 60s |
| cellserver CL.THROTTLE |   80000 |        60 % |        p99 |        180 |         182 |         1.800 | 1.800 - 1.800 | 5 of 60s |
| cellserver CL.THROTTLE |   80000 |        60 % |      p99.9 |        450 |         546 |         4.500 | 3.600 - 5.400 | 5 of 60s |

Other processes used 1.5 % of the servers' core.

`

const markdownOfMemory = `## memory-1m

1M keys

| server                 |    keys | bytes per key | peak per key | MiB at the start | settled |  peak | with all expired |
|------------------------|--------:|--------------:|-------------:|-----------------:|--------:|------:|-----------------:|
| redis-server INCR      | 1000000 |          94.4 |        104.9 |             10.0 |   100.0 | 110.0 |                - |
| cellserver CL.THROTTLE | 1000000 |          55.6 |         66.1 |              7.0 |    60.0 |  70.0 |   8.0 after 61 s |

Other processes used 1.5 % of the servers' core.

`

const markdownOfGrowth = `## memory-growth

1M to 2M

| of 2 steps            | bytes per key |    keys |
|-----------------------|--------------:|--------:|
| maximum when settled  |          60.0 | 1000000 |
| maximum while growing |          80.0 | 2000000 |
| last step             |          50.0 | 2000000 |

The peak is 1.33 times the maximum when settled.

cellserver CL.THROTTLE reports: longest_loop_callback_usec 900

Other processes used 1.5 % of the servers' core.

`

// Rows of one run are in one table, with the run below it.
func TestFigures(t *testing.T) {
	assert.Equal(t, `|                        | cellserver | redis-server | ratio | redis-server to itself |
|------------------------|-----------:|-------------:|------:|-----------------------:|
| CPU per call, P=1      |    8.00 us |      9.00 us | 0.900 |                  1.010 |
| p99 latency at 80 %    |     180 us |       200 us | 1.800 |                        |
| bytes per key, 1M keys |       55.6 |         94.4 | 0.589 |                        |

Commit 0123456789ab, 2026-01-02; Z80, 2 cores, go1.26, redis-server 7.0.15.
`, sample().fewFigures())
}

func TestFiguresOfTwoRuns(t *testing.T) {
	r := sample()
	r.Find("latency-80").Commit = "ffffffffffff"
	r.Find("memory-growth").Commit = "ffffffffffff"
	assert.Equal(t, `|                        | cellserver | redis-server | ratio | redis-server to itself |
|------------------------|-----------:|-------------:|------:|-----------------------:|
| CPU per call, P=1      |    8.00 us |      9.00 us | 0.900 |                  1.010 |
| bytes per key, 1M keys |       55.6 |         94.4 | 0.589 |                        |

Commit 0123456789ab, 2026-01-02; Z80, 2 cores, go1.26, redis-server 7.0.15.

|                                  | cellserver | redis-server | ratio | redis-server to itself |
|----------------------------------|-----------:|-------------:|------:|-----------------------:|
| p50 latency at 80 %              |      90 us |       100 us | 0.900 |                        |
| p99 latency at 80 %              |     180 us |       200 us | 1.800 |                        |
| p99.9 latency at 80 %            |     450 us |       500 us | 4.500 |                        |
| bytes per key, maximum, 1M to 2M |       60.0 |              |       |                        |

Commit ffffffffffff, 2026-01-02; Z80, 2 cores, go1.26, redis-server 7.0.15.

![CPU time per call](../bench/plots/cpu.svg)

![latency at fixed rates](../bench/plots/latency.svg)

![memory per key by number of keys](../bench/plots/memory.svg)
`, r.allFigures())
}

func TestTablesOfStores(t *testing.T) {
	own := Spread{11, 12, 13, 9}
	s := Scenario{
		CPU: []CPU{
			{RedisRate, Spread{19, 20, 21, 9}, Spread{1, 1, 1, 9}, 30000, nil},
			{Cellservers(1), Spread{4, 5, 6, 9}, Spread{0.2, 0.25, 0.3, 9}, 40000, &own},
		},
		Shares: []Share{{Cellservers(2), 50000, Spread{0.8, 0.9, 1, 3}, 1, 2, 5, 0.5, 0.001}},
		Figures: []Figure{
			{What: "backend", Value: 0.25, Unit: "of redis_rate's", AtMost: 0.3},
			{What: "own", Value: 12.1, Unit: "us", AtMost: 12},
			{What: "share", Value: 0.2, AtLeast: 0.25},
			{What: "conflicts", Value: 0.5},
		},
	}
	assert.Equal(t, `| limiter      | backend's CPU per call, us | ratio, median |     quartiles | rounds | calls/s | cellservers' CPU per call, us |
|--------------|---------------------------:|--------------:|--------------:|-------:|--------:|------------------------------:|
| redis_rate   |                     20.000 |         1.000 | 1.000 - 1.000 |      9 |   30000 |                               |
| 1 cellserver |                      5.000 |         0.250 | 0.200 - 0.300 |      9 |   40000 |                         12.00 |

| one key       | calls/s | the slowest, of an even share | its p50, ms | its p99, ms | most tries | conflicts per call | failed |
|---------------|--------:|------------------------------:|------------:|------------:|-----------:|-------------------:|-------:|
| 2 cellservers |   50000 |                          0.90 |        1.00 |        2.00 |          5 |              0.500 | 0.10 % |

| what      | value |            unit |           bar | met |
|-----------|------:|----------------:|--------------:|----:|
| backend   |  0.25 | of redis_rate's |   at most 0.3 | yes |
| own       |  12.1 |              us |    at most 12 |  no |
| share     |   0.2 |                 | at least 0.25 |  no |
| conflicts |   0.5 |                 |               |     |

Other processes used 0.0 % of the servers' core.
`, s.Tables())
}

// docs/scale.md has the figures of the existing scenarios.
func TestFiguresOfStores(t *testing.T) {
	assert.Empty(t, sample().storeCPU()+sample().storeLatency()+sample().storeShares())
	r := sample()
	machine := r.Scenarios[0].Machine
	own := Spread{11, 12, 13, 9}
	for _, s := range []Scenario{
		{Name: "store-redis", Inside: []Inside{{"redis-server", "redis_version", "7.0.15"}}, CPU: []CPU{
			{RedisRate, Spread{19, 20, 21, 9}, Spread{1, 1, 1, 9}, 30000, nil},
			{RedisRate + " again", Spread{19, 20, 21, 9}, Spread{1, 1, 1, 9}, 30000, nil},
			{Cellservers(1), Spread{4, 5, 6, 9}, Spread{0.2, 0.25, 0.3, 9}, 40000, &own},
		}},
		{Name: "store-valkey-latency", Latency: []Latency{
			{Ping, 1000, 3, 0.1, []Spread{{20, 20, 20, 5}, {40, 40, 40, 5}}, nil, nil}}},
		{Name: "store-redis-share", Shares: []Share{
			{Cellservers(2), 50000, Spread{0.8, 0.9, 1, 3}, 1, 2, 5, 0.5, 0.001}}},
	} {
		s.Commit, s.Date, s.Machine = "0123456789ab", "2026-01-02", machine
		r.Scenarios = append(r.Scenarios, s)
	}
	const run = "\nCommit 0123456789ab, 2026-01-02; Z80, 2 cores, go1.26, redis-server 7.0.15.\n"
	assert.Equal(t, `| 100,000 keys, 256 callers  | CPU time of the store per call | redis_rate = 1 | CPU time of cellserver per call |
|----------------------------|-------------------------------:|---------------:|--------------------------------:|
| Redis 7.0.15: redis_rate   |                       20.00 us |           1.00 |                                 |
| Redis 7.0.15: 1 cellserver |                        5.00 us |           0.25 |                        12.00 us |
`+run, r.storeCPU())
	assert.Equal(t, `| 100,000 keys                |   p50 |   p99 |
|-----------------------------|------:|------:|
| Valkey: PING of the backend | 20 us | 40 us |
`+run, r.storeLatency())
	assert.Equal(t, `| one key              | calls per second | the slowest, of an even share | its p99 | most tries | failed |
|----------------------|-----------------:|------------------------------:|--------:|-----------:|-------:|
| Redis: 2 cellservers |            50000 |                          0.90 | 2.00 ms |          5 | 0.10 % |
`+run, r.storeShares())
}
