package gcra

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/quota"
)

// epoch is the start of timelines and properties: a day of 2027, in Unix ns.
const epoch = int64(1_800_000_000_000_000_000)

// stepFunc is the type of Limit.Step. Checks take the step as an argument, so that they can be run
// on a faulty step.
type stepFunc func(l Limit, now, tat, quantity int64, mode quota.Mode) (quota.Decision, int64, error)

// A timeline is the history of one key. A line is a limit (max_burst, count_per_period, period),
// which holds for the calls after it, or a call: instant, quantity, mode, and after the arrow the
// expected result. Times are in ms; -1 is never.
//
//	limit  4 1 1
//	t      quantity  mode -> limited remaining reset retry taken
var timelines = []struct{ name, lines string }{
	{"redis-cell's table, the contract's", `
		limit 4 1 1
		   0   6 take -> 1 5    0   -1 0
		   0   1 take -> 0 4 1000   -1 1
		   0   1 take -> 0 3 2000   -1 1
		   0   1 take -> 0 2 3000   -1 1
		   0   1 take -> 0 1 4000   -1 1
		   0   1 take -> 0 0 5000   -1 1
		   0   1 take -> 1 0 5000 1000 0
		3000   1 take -> 0 2 3000   -1 1
		3100   1 take -> 0 1 3900   -1 1
		4000   1 take -> 0 1 4000   -1 1
		8000   1 take -> 0 4 1000   -1 1
		9500   1 take -> 0 4 1000   -1 1
		9500   0 take -> 0 4 1000   -1 0
		9500   2 take -> 0 2 3000   -1 2
		9500   5 take -> 1 2 3000 3000 0`},
	{"redis-cell's README", `
		limit 15 30 60
		0 1 take -> 0 15 2000 -1 1
		0 1 take -> 0 14 4000 -1 1
		0 1 take -> 0 13 6000 -1 1`},
	{"0 on a fresh key takes nothing", `
		limit 10 10 60
		0 0 take -> 0 11 0 -1 0`},
	{"0 asks whether the key is in debt, and an exhausted one is not", `
		limit 0 1 1
		   0 0 take  -> 0 1    0   -1 0
		   0 1 take  -> 0 0 1000   -1 1
		   0 0 take  -> 0 0 1000   -1 0
		   0 1 take  -> 1 0 1000 1000 0
		   0 1 force -> 1 0 2000 2000 1
		   0 0 take  -> 1 0 2000 1000 0
		 500 0 upto  -> 1 0 1500  500 0
		 500 0 force -> 1 0 1500  500 0
		 500 0 peek  -> 1 0 1500  500 0
		1000 0 take  -> 0 0 1000   -1 0`},
	{"exactly the limit at once", `
		limit 5 1 10
		0 6 take -> 0 0 60000 -1 6`},
	{"more than the limit: never allowed, and the state is kept", `
		limit 10 1 60
		0 11 take -> 0 0 660000 -1 11
		0 12 take -> 1 0 660000 -1  0`},
	{"several at once", `
		limit 1 1 60
		0 3 take -> 1 2      0    -1 0
		0 2 take -> 0 0 120000    -1 2
		0 3 take -> 1 0 120000    -1 0
		0 1 take -> 1 0 120000 60000 0`},
	{"a lowered limit leaves a debt, not a negative remainder", `
		limit 1 1 10
		    0 2 take -> 0 0 20000    -1 2
		limit 0 1 15
		    0 1 take -> 1 0 20000 20000 0
		    0 0 take -> 1 0 20000  5000 0
		 5000 0 take -> 0 0 15000    -1 0
		20000 1 take -> 0 0 15000    -1 1`},
	{"2000 a second: state lasts half a ms, and counts", `
		limit 0 2000 1
		0   1 take -> 0 0 0.5  -1 1
		0   1 take -> 1 0 0.5 0.5 0
		0.4 1 take -> 1 0 0.1 0.1 0
		0.5 1 take -> 0 0 0.5  -1 1`},
	{"600000 a second: floored to 1666 ns, and remaining stays within the limit", `
		limit 1000 600000 1
		0    1 take -> 0 1000 0.001666       -1    1
		0 1000 take -> 0    0 1.667666       -1 1000
		0    1 take -> 1    0 1.667666 0.001666    0`},
	{"from 1e6 to 1e9 a second: rounded up, never over the rate", `
		limit 9 1000000 1
		0 1 take -> 0 9 0.001    -1 1
		limit 9 1000001 1
		1 1 take -> 0 9 0.001    -1 1
		limit 9 700000000 1
		2 1 take -> 0 9 0.000002 -1 1
		limit 9 1000000000 1
		3 1 take -> 0 9 0.000001 -1 1
		limit 9 9223372036854775807 9223372037
		4 1 take -> 0 9 0.000002 -1 1`},
	{"invalid limits", `
		limit -1 1 1                  ->
		limit -1 1 4611686019         -> max_burst, count_per_period and period span more than 146 years
		limit -2 1 1                  -> max_burst must be between -1 and 9223372036854775806
		limit 9223372036854775807 1 1 -> max_burst must be between -1 and 9223372036854775806
		limit 0 0 1                   -> count_per_period must be between 1 and 9223372036854775807
		limit 0 1 0                   -> period must be between 1 and 9223372036854775807
		limit 0 1000000001 1          -> count_per_period is more than 1e9 per second
		limit 100000000000 1 1000     -> max_burst, count_per_period and period span more than 146 years
		limit 5 1 9223372036          -> max_burst, count_per_period and period span more than 146 years
		limit 0 1 4611686019          -> max_burst, count_per_period and period span more than 146 years
		limit 0 1 4611686018          ->
		limit 9223372036854775806 1000000000 1 -> max_burst, count_per_period and period span more than 146 years
		limit 4611686018427387902 1000000000 1 ->
		limit 0 9223372036854775807 9223372036854775807 ->`},
	{"refunded", `
		limit 10 10 60
		0  5 take -> 0  6 30000 -1  5
		0 -3 take -> 0  9 12000 -1 -3
		0 -3 peek -> 0 11     0 -1 -2
		0  0 take -> 0  9 12000 -1  0`},
	{"refunded past empty: nothing is saved for later", `
		limit 10 10 60
		0 -30 take -> 0 11     0 -1  0
		0   4 take -> 0  7 24000 -1  4
		0 -30 upto -> 0 11     0 -1 -4
		0  12 take -> 1 11     0 -1  0
		0   4 take -> 0  7 24000 -1  4
		0 -9223372036854775808 force -> 0 11 0 -1 -4`},
	{"refunded after some of it has come back by itself: Taken is in whole tokens", `
		limit 9 1 1
		   0  4 take -> 0 6 4000 -1  4
		1500 -2 take -> 0 9  500 -1 -2
		1500 -1 peek -> 0 10   0 -1  0
		1600  2 take -> 0 7 2400 -1  2
		1600 -9 upto -> 0 10   0 -1 -2`},
	{"a max_burst of -1 blocks, whatever the key holds", `
		limit 4 1 1
		   0  3 take  -> 0 2 3000   -1  3
		limit -1 1 1
		   0  1 take  -> 1 0    0   -1  0
		   0  9 upto  -> 1 0    0   -1  0
		   0  1 peek  -> 1 0    0   -1  0
		   0  0 take  -> 1 0 3000 3000  0
		   0  2 force -> 1 0 5000   -1  2
		   0 -1 take  -> 0 0 4000   -1 -1
		   0 -9 upto  -> 0 0    0   -1 -4
		   0  0 take  -> 0 0    0   -1  0
		   0  1 force -> 1 0 1000   -1  1`},
	{"refunded while over a lowered limit: applied, not lost", `
		limit 9 1 10
		0 10 take -> 0 0 100000 -1 10
		limit 0 1 10
		0 -1 take -> 0 0  90000 -1 -1
		0 -8 take -> 0 0  10000 -1 -8
		0 -1 take -> 0 1      0 -1 -1`},
	{"a forced debt, and its refund", `
		limit 4 1 1
		    0  2 force -> 0 3  2000    -1  2
		    0  8 force -> 1 0 10000  6000  8
		    0  1 take  -> 1 0 10000  6000  0
		    0  6 take  -> 1 0 10000    -1  0
		 5999  1 take  -> 1 0  4001     1  0
		 6000  1 peek  -> 0 0  5000    -1  1
		 6000 20 force -> 1 0 24000 20000 20
		 6000 -9 take  -> 0 0 15000    -1 -9
		16000  1 take  -> 1 0  5000  1000  0
		17000  1 take  -> 0 0  5000    -1  1`},
	{"as much as is allowed", `
		limit 4 1 1
		   0  3 upto -> 0 2 3000   -1  3
		   0  3 upto -> 0 0 5000   -1  2
		   0  3 upto -> 1 0 5000 1000  0
		 999  3 upto -> 1 0 4001    1  0
		1500  3 upto -> 0 0 4500   -1  1
		1500 -2 upto -> 0 2 2500   -1 -2
		9000  9 upto -> 0 0 5000   -1  5`},
	{"a peek changes nothing", `
		limit 1 1 1
		0 1 peek -> 0 1 1000   -1 1
		0 1 take -> 0 1 1000   -1 1
		0 2 peek -> 1 1 1000 1000 0
		0 3 peek -> 1 1 1000   -1 0
		0 1 take -> 0 0 2000   -1 1`},
	{"the clock runs backwards: longer waits, nothing admitted twice", `
		limit 4 1 1
		5000 5 take -> 0 0 5000   -1 5
		3000 1 take -> 1 0 7000 3000 0
		3000 0 take -> 1 0 7000 2000 0
		6000 1 take -> 0 0 5000   -1 1
		5500 1 take -> 1 0 5500 1500 0
		7000 1 take -> 0 0 5000   -1 1`},
	{"huge arguments", `
		limit 4 1 1
		0  9223372036854775807 take  -> 1 5 0 -1 0
		0  9223372036854775807 upto  -> 0 0 5000 -1 5
		0  9223372036854775807 force -> quantity is too large
		0           7423372032 force -> quantity is too large
		0           7423372031 force -> 1 0 7423372036000 7423372032000 7423372031
		0                    1 take  -> 1 0 7423372036000 7423372032000 0
		0                    1 force -> quantity is too large
		0 -9223372036854775808 take  -> 0 5 0 -1 -7423372036`},
}

func TestTimelines(t *testing.T) {
	for _, tl := range timelines {
		t.Run(tl.name, func(t *testing.T) {
			require.Equal(t, normalizeSpaces(tl.lines), play(t, Limit.Step, tl.lines))
		})
	}
}

// Each planted fault changes the result of at least one timeline.
func TestTimelinesCatch(t *testing.T) {
	for name, faulty := range plantedFaults {
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

// play makes the calls of a timeline, stores the state as the store does, and returns the timeline
// with the actual results.
func play(t *testing.T, step stepFunc, lines string) string {
	var (
		limit Limit
		tat   int64
		told  []string
	)
	for line := range strings.Lines(normalizeSpaces(lines)) {
		call, _, _ := strings.Cut(strings.TrimSpace(line), " ->")
		words := strings.Fields(call)
		if words[0] == "limit" {
			l, err := NewLimit(number(t, words[1]), number(t, words[2]), quota.Seconds(number(t, words[3])))
			limit = l
			told = append(told, call+arrow(line, err))
			continue
		}
		now := epoch + ns(t, words[0])
		d, next, err := step(limit, now, tat, number(t, words[1]), modes[words[2]])
		if tat = next; next <= now {
			tat = 0 // the quota is full, so the store removes the key
		}
		told = append(told, call+" -> "+format(d, err))
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

// arrow returns the text after a limit: its error, nothing after a bare arrow, and no arrow if the
// line has none.
func arrow(line string, err error) string {
	switch {
	case err != nil:
		return " -> " + err.Error()
	case strings.Contains(line, "->"):
		return " ->"
	}
	return ""
}

func format(d quota.Decision, err error) string {
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

func TestNewLimit(t *testing.T) {
	l, err := NewLimit(15, 30, 60)
	require.NoError(t, err)
	require.Equal(t, int64(16), l.Size())
	require.Equal(t, 2*time.Second, l.EmissionInterval())
	require.Equal(t, 32*time.Second, l.Tolerance())

	_, err = NewLimit(0, math.MaxInt64, 1)
	require.ErrorIs(t, err, ErrRate)
	_, err = NewLimit(math.MaxInt64-1, 1, math.MaxInt64)
	require.ErrorIs(t, err, ErrSpan)
	var outside *quota.ArgumentError
	_, err = NewLimit(-2, 0, 0) // the first wrong argument is named
	require.ErrorAs(t, err, &outside)
	require.Equal(t, quota.ArgumentError{Name: "max_burst", Lo: -1, Hi: math.MaxInt64 - 1}, *outside)
}

// Clocks and states that are extreme or invalid lead to these states.
func TestStepAtTheEdges(t *testing.T) {
	l, err := NewLimit(4, 1, 1)
	require.NoError(t, err)
	const never, full = math.MinInt64, math.MaxInt64
	for _, c := range []struct {
		now, tat, quantity int64
		mode               quota.Mode
		next               int64
		err                error
	}{
		{now: never, tat: never, quantity: 1, next: 1e9}, // now and tat both count as 0
		{now: -1, tat: -1, quantity: 0, next: -1},        // nothing is stored, tat is returned unchanged
		{now: 0, tat: full, quantity: 1, next: full},     // limited
		{now: 0, tat: full, quantity: 1, mode: quota.Force, next: full, err: quota.ErrQuantity},
		{now: 0, tat: full, quantity: -1, next: full - 1e9},
		{now: 0, tat: full, quantity: never, next: 0},
		{now: full, tat: 0, quantity: 1, next: 0, err: quota.ErrQuantity},                   // the TAT would overflow
		{now: full, tat: 0, quantity: 1, mode: quota.Peek, next: 0, err: quota.ErrQuantity}, // the same error as in mode Take
		{now: full, tat: 0, quantity: 9, mode: quota.UpTo, next: 0, err: quota.ErrQuantity},
		{now: full, tat: 0, quantity: -1, next: 0},
		{now: full - 5e9, tat: 0, quantity: 5, next: full},
	} {
		d, next, err := l.Step(c.now, c.tat, c.quantity, c.mode)
		require.ErrorIs(t, err, c.err, "%+v", c)
		require.Equal(t, c.next, next, "%+v", c)
		if err != nil {
			require.Zero(t, d, "%+v", c)
		}
	}
}

// Memo returns the same as NewLimit, whatever it returned before.
func TestMemoIsNewLimit(t *testing.T) {
	numbers := []int64{-2, -1, 0, 1, 2, 60, math.MaxInt64}
	var memo Memo
	for i := range 20_000 {
		random := rand.New(rand.NewPCG(uint64(i/2), 1)) // each limit is requested twice
		number := func() int64 { return numbers[random.IntN(len(numbers))] }
		burst, count, period := number(), number(), number()
		want, refused := NewLimit(burst, count, quota.Period(period))
		got, err := memo.Limit(burst, count, period)
		require.Equal(t, refused, err)
		if err == nil {
			require.Equal(t, want, *got, "%d %d %d", burst, count, period)
		}
	}
	_, err := new(Memo).Limit(0, 1, 0)
	require.Error(t, err)
}
