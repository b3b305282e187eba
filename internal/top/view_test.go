package top

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/cli"
)

const infoBefore = `# Server
cellserver_version:1.2.3
run_id:a
uptime_in_seconds:3725
connected_clients:12
maxclients:10000
blocked_clients:2
used_memory:13002342
maxmemory:536870912
used_memory_rss:45000000
total_commands_processed:1000
total_error_replies:5
rejected_connections:0
used_cpu_user:1.500000
used_cpu_sys:0.500000
cmdstat_cl.throttle:calls=900,usec=1800,usec_per_call=2.00,rejected_calls=0,failed_calls=0
cmdstat_config|get:calls=20,usec=40,usec_per_call=2.00,rejected_calls=0,failed_calls=0
latency_percentiles_usec_cl.throttle:p50=1.000,p99=4.000,p99.9=8.000
cell_decisions_cl_fixed:allowed=3,limited=1
cell_decisions_cl_throttle:allowed=800,limited=100
db0:keys=120,expires=120,avg_ttl=0
db3:keys=5,expires=0,avg_ttl=0
`

// two seconds after infoBefore
var infoNow = strings.NewReplacer("total_commands_processed:1000", "total_commands_processed:1500",
	"total_error_replies:5", "total_error_replies:6",
	"used_cpu_user:1.500000", "used_cpu_user:1.750000",
	"cl.throttle:calls=900", "cl.throttle:calls=1390",
	"allowed=800,limited=100", "allowed=1190,limited=200").Replace(infoBefore)

func sampleAt(at time.Duration, info string) *sample {
	return &sample{at: at, info: parseInfo(strings.ReplaceAll(info, "\n", "\r\n")),
		limited: topKeys{keys: []topKey{{"user:7", 90}, {"<img src=x>\n\x1b[2J\xff", 10}}}}
}

func texts(lines []line) string {
	var all []string
	for _, l := range lines {
		all = append(all, l.text)
	}
	return strings.Join(all, "\n") + "\n"
}

func TestView(t *testing.T) {
	v := view{address: "127.0.0.1:6379", before: sampleAt(10*time.Second, infoBefore),
		now: sampleAt(12*time.Second, infoNow)}
	v.now.seen.err = errors.New("NOPERM this user has no permissions to run the 'cl.top' command")
	assert.Equal(t, `cellserver 1.2.3 at 127.0.0.1:6379, up 1h2m5s

calls/s   250                clients   12 of 10000        memory    12.4 MiB of 512.0 MiB
errors/s  0.5                waiting   2                  resident  42.9 MiB
keys      125                refused   0                  CPU       12.5 %

DECISIONS               allowed/s    limited/s    limited
CL.THROTTLE                   195           50     20.4 %
CL.FIXED                        0            0          -

COMMANDS                  calls/s  us per call    p99, us
cl.throttle                   245         2.00          4
config get                      0         2.00          -

LIMITED MOST, in the last minute
          90  "user:7"
          10  "<img src=x>\n\x1b[2J\xff"

ASKED ABOUT MOST, in the last minute
NOPERM this user has no permissions to run the 'cl.top' command
`, texts(v.lines(0)))
}

// Rates are unknown in the first view, after a restart, after CONFIG RESETSTAT, and when the clock of the
// server was set.
func TestUnknownRates(t *testing.T) {
	now := sampleAt(12*time.Second, infoNow)
	for name, before := range map[string]*sample{
		"first":   nil,
		"restart": sampleAt(10*time.Second, strings.Replace(infoBefore, "run_id:a", "run_id:b", 1)),
		"reset":   sampleAt(10*time.Second, strings.ReplaceAll(infoBefore, ":1000", ":2000")),
		"clock":   sampleAt(13*time.Second, infoBefore),
	} {
		v := view{before: before, now: now}
		assert.Contains(t, texts(v.lines(0)), "calls/s   -   ", name)
	}
}

// The decisions of policies are shown by policy, the busiest first, as far as there is room.
func TestByPolicy(t *testing.T) {
	text := func(allowed, banned int) string {
		return fmt.Sprintf("policy_decisions_api:allowed=%d,limited=4,shadow=0,banned=%d,error=1\n"+
			"policy_decisions_idle:allowed=7,limited=0,shadow=0,banned=0,error=0\n", allowed, banned)
	}
	before, now := infoBefore+text(100, 2), infoNow+text(140, 5)
	v := view{before: sampleAt(10*time.Second, before), now: sampleAt(12*time.Second, now)}
	table := `
BY POLICY             allowed/s  limited/s   shadow/s   banned/s   errors/s
api                          20          0          0        1.5          0
idle                          0          0          0          0          0
`
	assert.Contains(t, texts(v.lines(0)), table)
	assert.Equal(t, table, texts(v.byPolicy(4)))
	assert.Len(t, v.byPolicy(3), 3)
	assert.Equal(t, "and 2 more", v.byPolicy(3)[2].text)
	assert.Empty(t, v.byPolicy(2))
	v.now = sampleAt(0, infoNow)
	assert.Empty(t, v.byPolicy(10))
}

func TestWarnings(t *testing.T) {
	info := infoNow + "loading:1\nloading_loaded_perc:50.00\nstore_failing:1\nstore_fails:allow\n" +
		"journal_failing_since:1700000000\njournal_failure:no space left on device\npolicies_failing:1\n"
	v := view{now: sampleAt(0, strings.Replace(info, "maxmemory:536870912", "maxmemory:1", 1))}
	assert.Equal(t, `! the server loads its keys: 50.00 %
! the store fails; limiters answer: allow
! changes cannot be written to the disk: no space left on device
! the files with policies are not valid: the last valid policies are in force
! the memory is full: calls that need more are refused
`, texts(v.warnings()))
	assert.Empty(t, (&view{now: sampleAt(0, infoNow)}).warnings())
}

// The view fits into the terminal, whatever its size is, and shows as many keys as fit.
func TestFrameFits(t *testing.T) {
	now := sampleAt(12*time.Second, infoNow)
	for range 100 {
		now.limited.keys = append(now.limited.keys, topKey{strings.Repeat("long ", 50), 1})
		now.seen.keys = append(now.seen.keys, topKey{"seen", 1})
	}
	for _, size := range [][2]int{{80, 24}, {120, 60}, {10, 3}, {1, 1}} {
		width, height := size[0], size[1]
		text := frame(view{now: now}, errors.New("é\x1b[2J"), width, height)
		for _, sequence := range []string{home, eraseLine, eraseRest, bold, plain} {
			text = strings.ReplaceAll(text, sequence, "")
		}
		rows := strings.Split(text, "\r\n")
		assert.Len(t, rows, height)
		for _, row := range rows {
			assert.LessOrEqual(t, len(row), width)
			assert.NotContains(t, row, "\x1b", "a server must not control the terminal")
		}
	}
	assert.Contains(t, frame(view{now: now}, nil, 80, 24), `"seen"`, "both lists are shown")
	few := sampleAt(0, infoNow)
	few.seen.keys = now.seen.keys
	shown := strings.Count(frame(view{now: few}, nil, 80, 40), `"seen"`)
	assert.Equal(t, 40-17-2, shown, "space that one list leaves is the other's")
}

// On a small terminal, tables are cut so that the keys that are limited can be seen. A list without room is not
// an empty list.
func TestSmallTerminal(t *testing.T) {
	info := infoNow
	for _, name := range []string{"sliding", "slidinglog", "quota", "acquire", "all", "take"} {
		info += "cell_decisions_cl_" + name + ":allowed=1,limited=1\n" + "cmdstat_cl." + name + ":calls=2,usec=2\n"
	}
	v := view{address: "127.0.0.1:6379", now: sampleAt(0, info)}
	for i := range 10 {
		v.now.limited.keys = append(v.now.limited.keys, topKey{"more", int64(i)})
		v.now.seen.keys = append(v.now.seen.keys, topKey{"seen", int64(i)})
	}
	assert.Equal(t, `cellserver 1.2.3 at 127.0.0.1:6379, up 1h2m5s

calls/s   -                  clients   12 of 10000        memory    12.4 MiB of 512.0 MiB
errors/s  -                  waiting   2                  resident  42.9 MiB
keys      125                refused   0                  CPU       -

DECISIONS               allowed/s    limited/s    limited
CL.THROTTLE                     -            -          -
CL.FIXED                        -            -          -
and 6 more

COMMANDS                  calls/s  us per call    p99, us
cl.throttle                     -         2.00          4
and 5 more

LIMITED MOST, in the last minute
          90  "user:7"
          10  "<img src=x>\n\x1b[2J\xff"
           0  "more"

ASKED ABOUT MOST, in the last minute
           0  "seen"
           1  "seen"
           2  "seen"
`, texts(v.lines(24)))
	for height := 1; height < 60; height++ {
		text := texts(v.lines(height))
		assert.NotContains(t, text, "none", height)
		if height >= 14 {
			assert.Contains(t, text, `"user:7"`, height)
			assert.LessOrEqual(t, strings.Count(text, "\n"), height)
		}
	}
	assert.Contains(t, texts(v.lines(10)), "12 keys, and no room for them\n")
}

func TestPolicies(t *testing.T) {
	api := []any{"limits", []any{"throttle burst 3, rate 1/1s", "fixed limit 5, period 1m"},
		"overrides", []any{"a", "b"}, "shadow", []any{"true"}}
	list := policyList{policies: []policy{{"api", textOf(api)}, {"login", textOf([]any{"overrides", []any{}})}, {"z", ""}}}
	const shown = "api                  throttle burst 3, rate 1/1s; fixed limit 5, period 1m; overrides: 2; shadow: true\n"
	assert.Equal(t, "\nPOLICIES\n"+shown+"login                \nz                    \n", texts(list.lines(5)))
	assert.Equal(t, "\nPOLICIES\n"+shown+"and 2 more\n", texts(list.lines(4)))
	assert.Equal(t, "\nPOLICIES\nand 3 more\n", texts(list.lines(3)))
	assert.Empty(t, list.lines(2))
	list.more = 100
	assert.Contains(t, texts(list.lines(roomForPolicies(0, 50))), "\nand 100 more\n")
	assert.Empty(t, list.lines(roomForPolicies(24, 18)), "a small terminal has room for keys alone")
	assert.Empty(t, (&policyList{}).lines(10))
}

func TestParseTop(t *testing.T) {
	reply := []any{[]any{"a", int64(2), int64(0)}, "not an entry", []any{"b"}, []any{int64(1), "c"}}
	assert.Equal(t, []topKey{{"a", 2}}, parseTop(reply))
}

func TestBytes(t *testing.T) {
	for n, want := range map[float64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 3 << 40: "3.0 TiB",
		5 << 50: "5120.0 TiB"} {
		assert.Equal(t, want, bytes(n))
	}
}

func TestOptions(t *testing.T) {
	own := cli.ServerEnvironment{Password: func() string { return "" }}
	for args, says := range map[string]string{
		"--interval 1ms": "--interval 1ms: must be between 100ms and 1h0m0s",
		"--keys 0":       "--keys 0: must be between 1 and 1000",
		"PING":           `unexpected argument "PING"; see cellserver top --help`,
		"--nosuch":       "unknown flag: --nosuch; see cellserver top --help",
		"-p 0":           "-p 0: must be between 1 and 65535",
	} {
		_, err := parse(strings.Fields(args), own, nil)
		require.ErrorContains(t, err, says)
	}
	o, err := parse([]string{"--once", "--interval", "2s"}, own, nil)
	require.NoError(t, err)
	assert.True(t, o.once)
	assert.Equal(t, 2*time.Second, o.interval)
}
