package window

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/quota"
)

// A timeline is the history of one key. A line is a limit (limit, period), which holds for the
// calls after it, or a call: instant, quantity, mode, and after the arrow the expected result.
// Times are in ms; -1 is never.
//
//	limit  5 10
//	t      quantity  mode -> limited remaining reset retry taken
type timeline struct{ name, lines string }

var fixedTimelines = []timeline{
	{"the window opens with the first quantity, and is over a period later", `
		limit 5 10
		 3000 0 take -> 0 5     0   -1 0
		 3000 1 take -> 0 4 10000   -1 1
		 7000 4 take -> 0 0  6000   -1 4
		 7000 1 take -> 1 0  6000 6000 0
		12999 1 take -> 1 0     1    1 0
		13000 1 take -> 0 4 10000   -1 1`},
	{"all or nothing, and more than the limit never", `
		limit 5 10
		0 3 take -> 0 2 10000    -1 3
		0 3 take -> 1 2 10000 10000 0
		0 6 take -> 1 2 10000    -1 0
		0 2 take -> 0 0 10000    -1 2`},
	{"twice the limit around the end of a window, as every fixed window", `
		limit 5 10
		    0 1 take -> 0 4 10000 -1 1
		 9999 4 take -> 0 0     1 -1 4
		10000 5 take -> 0 0 10000 -1 5`},
	{"refunded: the window stays, and goes with the last of it", `
		limit 5 10
		   0  5 take -> 0 0 10000 -1  5
		1000 -2 take -> 0 2  9000 -1 -2
		2000 -9 take -> 0 5     0 -1 -3
		3000  1 take -> 0 4 10000 -1  1
		3000 -9223372036854775808 force -> 0 5 0 -1 -1
		3000 -1 take -> 0 5     0 -1  0`},
	{"as much as is allowed, and a peek", `
		limit 5 10
		0 3 peek -> 0 2 10000    -1 3
		0 3 upto -> 0 2 10000    -1 3
		0 3 upto -> 0 0 10000    -1 2
		0 3 upto -> 1 0 10000 10000 0
		0 1 peek -> 1 0 10000 10000 0`},
	{"a forced debt ends with the window", `
		limit 5 10
		    0  8 force -> 1 0 10000 10000  8
		 1000  0 take  -> 1 0  9000  9000  0
		 1000 -3 take  -> 0 0  9000    -1 -3
		 1000  0 take  -> 0 0  9000    -1  0
		10000  5 take  -> 0 0 10000    -1  5
		10000 9223372036854775807 force -> quantity is too large
		10000 9223372036854775802 force -> 1 0 10000 10000 9223372036854775802`},
	{"a changed limit is read against what was used", `
		limit 5 10
		0 5 take -> 0 0 10000    -1 5
		limit 3 10
		0 0 take -> 1 0 10000 10000 0
		limit 8 10
		0 3 take -> 0 0 10000    -1 3`},
	{"a window that is open lasts as long as the longest period that a taking call has named", `
		limit 5 10
		    0  2 take  -> 0 3 10000   -1  2
		limit 5 100
		 5000  4 take  -> 1 3  5000 5000  0
		 5000  1 peek  -> 0 2 95000   -1  1
		 5000  0 take  -> 0 3  5000   -1  0
		 5000 -1 take  -> 0 4  5000   -1 -1
		 5000  0 take  -> 0 4  5000   -1  0
		 5000  1 take  -> 0 3 95000   -1  1
		limit 5 10
		 9000  1 take  -> 0 2 91000   -1  1
		10000  3 take  -> 1 2 90000 90000 0
		limit 5 1
		99000  9 upto  -> 0 0  1000   -1  2
		limit 5 50
		99000  1 force -> 1 0  1000 1000  1
		limit 5 10
		100000 5 take  -> 0 0 10000   -1  5`},
	{"one key, by the seconds that are left of a day: never more than the limit", `
		limit 10 36000
		        0 10 take -> 0 0 36000000       -1 10
		limit 10 18000
		 18000000  1 take -> 1 0 18000000 18000000  0
		limit 10 1
		 35999000 10 take -> 1 0     1000     1000  0
		limit 10 86400
		 36000000 10 take -> 0 0 86400000       -1 10`},
	{"to the ns", `
		limit 1 1
		   0.000001 1 take -> 0 0 1000       -1        1
		   0.5      1 take -> 1 0  999.500001 999.500001 0
		1000        1 take -> 1 0    0.000001   0.000001 0
		1000.000001 1 take -> 0 0 1000       -1        1`},
	{"a limit of 0 blocks everything", `
		limit 0 1
		0 1 take  -> 1 0    0   -1 0
		0 1 upto  -> 1 0    0   -1 0
		0 0 take  -> 0 0    0   -1 0
		0 1 force -> 1 0 1000   -1 1
		0 0 take  -> 1 0 1000 1000 0
		0 1 take  -> 1 0    0   -1 0
		0 1 peek  -> 1 0    0   -1 0`},
	{"the clock runs backwards: longer waits, nothing admitted twice", `
		limit 2 10
		5000 2 take -> 0 0 10000    -1 2
		3000 1 take -> 1 0 12000 12000 0
		3000 -1 take -> 0 1 12000   -1 -1
		3000 1 take -> 0 0 12000    -1 1
		6000 1 take -> 1 0  9000  9000 0`},
}

var slidingTimelines = []timeline{
	{"the window before weighs as much as is in view of it", `
		limit 10 10
		    0 10 take -> 0  0 20000    -1 10
		 9999  1 take -> 1  0 10001  1001  0
		10000  0 take -> 0  0 10000    -1  0
		10999  1 take -> 1  0  9001     1  0
		11000  1 take -> 0  0 19000    -1  1
		15000  4 take -> 0  0 15000    -1  4
		15000  1 take -> 1  0 15000  1000  0
		15000  6 take -> 1  0 15000  7000  0
		22000  6 take -> 0  0 18000    -1  6
		40000  1 peek -> 0  9 20000    -1  1
		40000  0 take -> 0 10     0    -1  0`},
	// This is the bound of the algorithm: each of the two windows hides at most one token, its
	// first and the one that rounding up adds. From 9999 to 19998 are 9.999 seconds.
	{"2L-2 in one period, and no more", `
		limit 10 10
		    0  1 take -> 0 9 20000   -1 1
		 9999  9 take -> 0 0 10001   -1 9
		19999  9 take -> 0 0 10001   -1 9
		19999  1 take -> 1 0 10001    1 0
		20000  1 take -> 0 0 20000   -1 1
		20000  1 take -> 1 0 20000 1111.111112 0`},
	{"2L-2 within any time longer than a ms", `
		limit 10 10
		    0  1 take -> 0 9 20000   -1 1
		 9999.999999  9 take -> 0 0 10000.000001 -1 9
		19999.999998  9 take -> 0 0 10000.000002 -1 9`},
	{"refunded to this window first, then to the one before", `
		limit 10 10
		    0  8 take -> 0  2 20000   -1  8
		15000  4 take -> 0  2 15000   -1  4
		15000 -5 take -> 0  6  5000   -1 -5
		15000  7 take -> 1  6  5000 714.285715 0
		15000  6 take -> 0  0 15000   -1  6
		15000 -99 take -> 0 10    0   -1 -13
		15000 10 take -> 0  0 20000   -1 10`},
	{"where only the window before is left, the key ends with this one", `
		limit 10 10
		    0  8 take -> 0  2 20000 -1  8
		15000  1 take -> 0  5 15000 -1  1
		15000 -1 take -> 0  6  5000 -1 -1
		19999  0 take -> 0  9     1 -1  0
		20000 10 take -> 0  0 20000 -1 10`},
	{"a forced debt, into the next window", `
		limit 10 10
		    0 20 force -> 1 0 20000 15500 20
		    0  0 take  -> 1 0 20000 15000  0
		    0 10 take  -> 1 0 20000 20000  0
		    0 11 take  -> 1 0 20000    -1  0
		15500  1 take  -> 0 0 14500    -1  1
		20000 10 force -> 1 0 20000 11000 10
		20000 9223372036854775807 force -> quantity is too large`},
	{"as much as is allowed", `
		limit 10 10
		    0  6 upto -> 0  4 20000   -1 6
		12500 99 upto -> 0  0 17500   -1 5
		12500 99 upto -> 1  0 17500 833.333334 0`},
	{"a changed limit reads the counts as they stand", `
		limit 10 10
		   0 10 take -> 0 0 20000    -1 10
		limit 5 10
		   0  0 take -> 1 0 20000 15000  0
		   0  1 take -> 1 0 20000 16000  0`},
	{"another period decides once the stored one has passed since a taking call named it", `
		limit 10 10
		    0  6 take -> 0 4 20000    -1  6
		limit 10 1
		 5000  4 take -> 0 0 15000    -1  4
		 5000  1 take -> 1 0 15000  5100  0
		 9999 10 take -> 1 0 10001  1001  0
		10000 10 peek -> 1 0  1000  1000  0
		limit 10 10
		10000  0 take -> 0 0 10000    -1  0
		limit 10 100
		10000  1 take -> 1 0 10000 10000  0
		limit 10 1
		10500  5 take -> 0 0  1500    -1  5
		limit 10 10
		10500  1 take -> 1 0  1500   100  0
		11000  1 take -> 0 4  2000    -1  1`},
	{"a retry in the last second of the stored period is not put off", `
		limit 2 1
		   0 1 take -> 0 1 2000  -1 1
		1456 1 take -> 0 0 1544  -1 1
		limit 2 2
		1891 1 take -> 1 0 1109 109 0
		1999 1 peek -> 1 0 1001   1 0
		2000 1 peek -> 0 0 2000  -1 1
		3000 2 peek -> 0 0 4000  -1 2`},
	{"what has left in part does not return in a longer period", `
		limit 10 10
		    0 10 take -> 0 0 20000   -1 10
		18000  0 take -> 0 8  2000   -1  0
		limit 10 11
		18000  0 take -> 0 7  2000   -1  0
		18000  9 take -> 1 7  2000 1900  0`},
	{"named again, the stored period goes on; only what takes names one", `
		limit 10 10
		    0  1 take -> 0 9 20000    -1  1
		 9000  1 take -> 0 8 11000    -1  1
		12000  0 take -> 0 8  8000    -1  0
		12000  1 peek -> 0 7 18000    -1  1
		12000 -1 take -> 0 9  8000    -1 -1
		12000 20 take -> 1 9  8000    -1  0
		limit 10 1
		18999  1 peek -> 0 8 11001    -1  1
		19000  1 peek -> 0 8  2000    -1  1`},
	{"a limit of 0 blocks everything", `
		limit 0 1
		0 1 take  -> 1 0    0   -1 0
		0 1 upto  -> 1 0    0   -1 0
		0 1 force -> 1 0 2000   -1 1
		0 0 take  -> 1 0 2000 2000 0
		0 1 take  -> 1 0    0   -1 0`},
	{"a call that takes nothing leaves the windows where they are", `
		limit 100 10
		    0 80 take -> 0 20 20000   -1 80
		19000  0 take -> 0 92  1000   -1  0
		limit 100 100
		19000  0 take -> 0 27  1000   -1  0
		19000 28 take -> 1 27  1000 1000  0`},
	{"a limit of 1 is one a period, or up to two periods apart", `
		limit 1 10
		    0 1 take -> 0 0 20000    -1 1
		 5000 1 take -> 1 0 15000 15000 0
		20000 1 take -> 0 0 20000    -1 1`},
	{"the clock runs backwards: longer waits, nothing admitted twice", `
		limit 10 10
		 5000 10 take -> 0 0 20000    -1 10
		 3000  1 take -> 1 0 22000 13000  0
		16000  1 take -> 0 0 19000    -1  1
		14000  1 take -> 1 0 21000  3000  0`},
	{"the largest numbers", `
		limit 9223372036854775807 1000000000
		0 9223372036854775807 take -> 0 0 2000000000000 -1 9223372036854775807
		1000000000000 0 take -> 0 0 1000000000000 -1 0
		1500000000000 4611686018427387904 take -> 1 4611686018427387903 500000000000 0.000001 0
		1500000000000 4611686018427387903 take -> 0 0 1500000000000 -1 4611686018427387903
		1500000000000 1 force -> 1 0 1500000000000 0.000001 1
		1500000000000 9223372036854775807 force -> quantity is too large`},
}

var logTimelines = []timeline{
	{"each leaves exactly a period after it came", `
		limit 3 10
		    0 1 take -> 0 2 10000   -1 1
		 4000 1 take -> 0 1 10000   -1 1
		 9999 1 take -> 0 0 10000   -1 1
		 9999 1 take -> 1 0 10000    1 0
		 9999 2 take -> 1 0 10000 4001 0
		 9999 3 take -> 1 0 10000 10000 0
		 9999 4 take -> 1 0 10000   -1 0
		10000 1 take -> 0 0 10000   -1 1
		14000 1 take -> 0 0 10000   -1 1
		14000 1 take -> 1 0 10000 5999 0
		24000 3 take -> 0 0 10000   -1 3`},
	{"never more than the limit in a period, where a sliding window counter has 2L-2", `
		limit 10 10
		    0  1 take -> 0 9 10000   -1 1
		 9999  9 take -> 0 0 10000   -1 9
		19998  9 take -> 1 1     1    1 0
		19998  1 take -> 0 0 10000   -1 1
		19999  9 take -> 0 0 10000   -1 9`},
	{"the newest are refunded first, and then the key ends with those before them", `
		limit 9 10
		    0  4 take -> 0 5 10000   -1  4
		 2000  4 take -> 0 1 10000   -1  4
		 3000 -1 take -> 0 2  9000   -1 -1
		 3000 -3 take -> 0 5  7000   -1 -3
		 9999  9 take -> 1 5     1    1  0
		10000  9 take -> 0 0 10000   -1  9
		10000 -9223372036854775808 upto -> 0 9 0 -1 -9
		10000 -1 take -> 0 9     0   -1  0`},
	{"a forced debt leaves as it came", `
		limit 5 10
		    0  3 take  -> 0 2 10000    -1  3
		 1000  4 force -> 1 0 10000  9000  4
		 2000  4 force -> 1 0 10000  9000  4
		 2000  0 take  -> 1 0 10000  9000  0
		 2000  5 take  -> 1 0 10000 10000  0
		11000  1 take  -> 0 0 10000    -1  1
		11000 9223372036854775807 force -> quantity is too large
		11000 9223372036854775802 force -> 1 0 10000 10000 9223372036854775802
		21000  5 take  -> 0 0 10000    -1  5`},
	{"as much as is allowed, and a peek", `
		limit 5 10
		   0  3 peek -> 0 2 10000   -1 3
		   0  3 upto -> 0 2 10000   -1 3
		1000  3 upto -> 0 0 10000   -1 2
		1000  3 upto -> 1 0 10000 9000 0`},
	{"at most three entries here: what comes then joins the newest, moved to now", `
		limit 9 10
		    0 1 take -> 0 8 10000   -1 1
		 1000 1 take -> 0 7 10000   -1 1
		 2000 1 take -> 0 6 10000   -1 1
		 3000 1 take -> 0 5 10000   -1 1
		 3000 7 take -> 1 5 10000 8000 0
		 3000 8 take -> 1 5 10000 10000 0
		10000 7 take -> 1 6  3000 1000 0
		11000 7 take -> 0 0 10000   -1 7`},
	{"another period decides once the stored one has passed since a taking call named it", `
		limit 5 10
		    0 2 take -> 0 3 10000   -1 2
		limit 5 100
		 6000 2 take -> 0 1 10000   -1 2
		 6000 2 take -> 1 1 10000 10000 0
		limit 5 5
		 9000 3 take -> 1 1  7000 1000 0
		10000 3 take -> 0 0  5000   -1 3
		limit 5 100
		10000 1 take -> 1 0  5000 1000 0
		limit 5 5
		11000 2 take -> 0 0  5000   -1 2`},
	{"a retry in the last second of the stored period is not put off", `
		limit 2 1
		   0 1 take -> 0 1 1000  -1 1
		 500 1 take -> 0 0 1000  -1 1
		limit 2 2
		 900 1 take -> 1 0  600 100 0
		1000 1 take -> 0 0 1000  -1 1`},
	{"what has left does not return in a longer period", `
		limit 2 1
		   0 1 take -> 0 1 1000  -1 1
		 100 1 take -> 0 0 1000  -1 1
		limit 3 5
		1050 1 take -> 0 1 1000  -1 1
		1100 0 peek -> 0 1  950  -1 0
		2049 3 peek -> 1 1    1   1 0`},
	{"once it has passed each call reads by its own, and what is refused drops nothing", `
		limit 5 10
		    0 2 take -> 0 3 10000   -1 2
		limit 5 100
		 6000 2 take -> 0 1 10000   -1 2
		limit 5 7
		12000 6 take -> 1 3  1000   -1 0
		limit 5 100
		12000 2 take -> 1 1  4000 4000 0
		12000 1 take -> 0 0 100000  -1 1`},
	{"named again, the stored period goes on; only what takes names one", `
		limit 5 10
		    0 1 take -> 0 4 10000   -1 1
		 9000 1 take -> 0 3 10000   -1 1
		12000 0 take -> 0 4  7000   -1 0
		12000 1 peek -> 0 3 10000   -1 1
		12000 5 take -> 1 4  7000 7000 0
		limit 5 1
		13000 2 take -> 0 2 10000   -1 2
		14000 -1 take -> 0 3  9000  -1 -1
		18999 4 take -> 1 3  4001    1 0
		19000 5 take -> 0 0  1000   -1 5`},
	{"to the ns", `
		limit 2 1
		   0.000001 1 take -> 0 1 1000   -1        1
		   0.000002 1 take -> 0 0 1000   -1        1
		   0.000002 1 take -> 1 0 1000 999.999999  0
		1000        1 take -> 1 0    0.000002   0.000001 0
		1000.000001 1 take -> 0 0 1000   -1        1`},
	{"a limit of 0 blocks everything", `
		limit 0 1
		0 1 take  -> 1 0    0   -1 0
		0 1 upto  -> 1 0    0   -1 0
		0 1 force -> 1 0 1000   -1 1
		0 0 take  -> 1 0 1000 1000 0
		0 1 take  -> 1 0    0   -1 0`},
	{"the clock runs backwards: longer waits, nothing admitted twice", `
		limit 3 10
		5000 2 take -> 0 1 10000    -1 2
		3000 1 take -> 0 0 12000    -1 1
		3000 1 take -> 1 0 12000 12000 0
		5000 1 take -> 1 0 10000 10000 0
		15000 3 take -> 0 0 10000   -1 3`},
}

func TestTimelines(t *testing.T) {
	t.Run("fixed", func(t *testing.T) { testTimelines(t, fixedTimelines, Limit.StepFixed) })
	t.Run("sliding", func(t *testing.T) { testTimelines(t, slidingTimelines, Limit.StepSliding) })
	t.Run("log", func(t *testing.T) { testTimelines(t, logTimelines, stepLog) })
}

func testTimelines[S any](t *testing.T, timelines []timeline, step stepFunc[S]) {
	for _, tl := range timelines {
		t.Run(tl.name, func(t *testing.T) {
			require.Equal(t, normalizeSpaces(tl.lines), play(t, step, tl.lines))
		})
	}
}

// Each planted fault changes the result of at least one timeline of its kind.
func TestTimelinesCatch(t *testing.T) {
	t.Run("fixed", func(t *testing.T) { requireCaughtByTimelines(t, fixedTimelines, fixed.faults, fixedFaults) })
	t.Run("sliding", func(t *testing.T) { requireCaughtByTimelines(t, slidingTimelines, sliding.faults, slidingFaults) })
	t.Run("log", func(t *testing.T) { requireCaughtByTimelines(t, logTimelines, log.faults, logFaults) })
}

func requireCaughtByTimelines[S any](t *testing.T, timelines []timeline, shared, own map[string]stepFunc[S]) {
	faults := maps.Clone(shared)
	maps.Copy(faults, own)
	for name, faulty := range faults {
		t.Run(name, func(t *testing.T) {
			for _, tl := range timelines {
				if play(t, faulty, tl.lines) != normalizeSpaces(tl.lines) {
					return
				}
			}
			t.Fatal("no timeline detects the fault")
		})
	}
}

// play makes the calls of a timeline on a key and returns the timeline with the actual results.
func play[S any](t *testing.T, step stepFunc[S], lines string) string {
	var (
		limit Limit
		state S
		told  []string
	)
	for line := range strings.Lines(normalizeSpaces(lines)) {
		call, _, _ := strings.Cut(strings.TrimSpace(line), " ->")
		words := strings.Fields(call)
		if words[0] == "limit" {
			l, err := NewLimit(number(t, words[1]), quota.Seconds(number(t, words[2])))
			require.NoError(t, err)
			limit = l
			told = append(told, call)
			continue
		}
		d, next, err := step(limit, epoch+ns(t, words[0]), state, number(t, words[1]), modes[words[2]])
		state = next
		told = append(told, call+" -> "+answer(d, err))
	}
	return strings.Join(told, "\n")
}

var modes = map[string]quota.Mode{"take": quota.Take, "peek": quota.Peek, "upto": quota.UpTo, "force": quota.Force}

// normalizeSpaces reduces runs of spaces to one, so that the columns of a table may be aligned.
func normalizeSpaces(lines string) string {
	var tidied []string
	for line := range strings.Lines(strings.TrimSpace(lines)) {
		tidied = append(tidied, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(tidied, "\n")
}

func answer(d quota.Decision, err error) string {
	if err != nil {
		return err.Error()
	}
	limited := 0
	if d.Limited {
		limited = 1
	}
	return fmt.Sprintf("%d %d %s %s %d", limited, d.Remaining, ms(d.ResetAfter), ms(d.RetryAfter), d.Taken)
}

// ms formats ns as milliseconds, with as many decimals as necessary.
func ms(ns int64) string {
	if ns == quota.Never {
		return "-1"
	}
	return strings.TrimRight(strings.TrimRight(fmt.Sprintf("%d.%06d", ns/1e6, ns%1e6), "0"), ".")
}

func ns(t *testing.T, ms string) int64 {
	d, err := time.ParseDuration(ms + "ms")
	require.NoError(t, err)
	return int64(d)
}

func number(t *testing.T, word string) int64 {
	n, err := strconv.ParseInt(word, 10, 64)
	require.NoError(t, err)
	return n
}
