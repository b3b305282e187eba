package lease

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/quota"
)

// epoch is the start of timelines and properties: a day of 2027, in Unix ns.
const epoch = int64(1_800_000_000_000_000_000)

// A timeline is the history of one key. Times are in ms; -1 is never. A line is a call and, after
// the arrow, its expected result:
//
//	t acquire limit ttl holder quantity -> limited remaining reset retry
//	t peek    limit ttl holder quantity -> the same, and nothing changes
//	t untaken limit ttl holder quantity -> the same, if another limiter refuses
//	t gap   limit ttl holder quantity -> the gap: its end, and when the quantity is granted again
//	t renew ttl holder                  -> 1 or 0
//	t release holder                    -> permits given back
//	t holders                           -> holder=quantity:ms left ...
var timelines = []struct{ name, lines string }{
	{"three permits, and the fourth waits for the first to end", `
		   0 acquire 3 10 a 1 -> 0 2 10000 -1
		1000 acquire 3 10 b 1 -> 0 1 10000 -1
		2000 acquire 3 10 c 1 -> 0 0 10000 -1
		2000 acquire 3 10 d 1 -> 1 0 10000 8000
		2000 acquire 3 10 d 3 -> 1 0 10000 10000
		2000 acquire 3 10 d 4 -> 1 0 10000 -1
		2000 holders          -> a=1:8000 b=1:9000 c=1:10000
		9999 acquire 3 10 d 1 -> 1 0 2001 1
		10000 holders          -> b=1:1000 c=1:2000
		10000 acquire 3 10 d 1 -> 0 0 10000 -1
		10000 holders          -> b=1:1000 c=1:2000 d=1:10000`},
	{"asking again never takes twice, and restarts the time", `
		   0 acquire 3 10 a 2 -> 0 1 10000 -1
		4000 acquire 3 10 a 2 -> 0 1 10000 -1
		4000 acquire 3 10 a 3 -> 0 0 10000 -1
		4000 acquire 3 10 a 1 -> 0 2 10000 -1
		4000 acquire 3 10 a 4 -> 1 2 10000 -1
		4000 acquire 3 20 b 2 -> 0 0 20000 -1
		4000 acquire 3 10 a 2 -> 1 0 20000 20000
		4000 holders          -> a=1:10000 b=2:20000`},
	{"a holder keeps what it holds beyond a lowered limit, until its lease ends", `
		   0 acquire 6 10 a 3 -> 0 3 10000 -1
		   0 acquire 6 20 b 2 -> 0 1 20000 -1
		   0 acquire 6 90 c 1 -> 0 0 90000 -1
		4000 peek    3 10 a 3 -> 0 0 86000 -1
		4000 gap   4 10 a 3 -> 6000 16000
		4000 gap   3 10 a 3 -> 6000 86000
		4000 gap   2 10 a 3 -> 6000 -1
		4000 gap   6 10 a 3 -> 0 0
		4000 gap   2 10 c 1 -> 0 0`},
	{"a peek is told what asking would be, and takes nothing", `
		   0 peek    3 10 a 2 -> 0 1 10000 -1
		   0 untaken 3 10 a 2 -> 0 3     0 -1
		   0 holders          ->
		   0 acquire 3 10 a 2 -> 0 1 10000 -1
		4000 peek    3  5 a 2 -> 0 1  5000 -1
		4000 peek    3 50 a 1 -> 0 2 50000 -1
		4000 peek    3  5 b 1 -> 0 0  6000 -1
		4000 peek    3  5 b 2 -> 1 1  6000 6000
		4000 untaken 3  5 b 1 -> 0 1  6000 -1
		4000 holders          -> a=2:6000
		4000 acquire 3 20 b 1 -> 0 0 20000 -1
		5000 peek    3  5 b 1 -> 0 0  5000 -1
		5000 peek    3  5 a 1 -> 0 1 19000 -1
		5000 untaken 1  5 a 1 -> 0 0 19000 -1
		5000 holders          -> a=2:5000 b=1:19000`},
	{"0 asks, and opens and renews nothing", `
		   0 acquire 2 10 a 0 -> 0 2     0 -1
		   0 holders          ->
		   0 acquire 2 10 a 2 -> 0 0 10000 -1
		5000 acquire 2 10 a 0 -> 0 0  5000 -1
		5000 acquire 1 10 a 0 -> 1 0  5000 5000
		5000 holders          -> a=2:5000`},
	{"a lowered limit takes nothing away, and a holder may ask again", `
		   0 acquire 5 10 a 2 -> 0 3 10000 -1
		1000 acquire 5 10 b 3 -> 0 0 10000 -1
		2000 acquire 1 10 a 2 -> 0 0 10000 -1
		2000 acquire 1 10 a 3 -> 1 0 10000 -1
		2000 acquire 1 10 c 1 -> 1 0 10000 10000
		2000 acquire 0 10 b 1 -> 0 0 10000 -1
		2000 acquire 0 10 c 1 -> 1 0 10000 -1
		2000 acquire 0 10 c 0 -> 1 0 10000 10000
		2000 holders          -> a=2:10000 b=1:10000`},
	{"a holder waits only for the leases of others to end", `
		   0 acquire 4 1 a 1 -> 0 3  1000 -1
		   0 acquire 4 5 b 1 -> 0 2  5000 -1
		   0 acquire 4 9 c 2 -> 0 0  9000 -1
		   0 acquire 4 9 a 2 -> 1 0  9000 5000
		   0 acquire 4 9 a 3 -> 1 0  9000 9000
		 999 acquire 4 9 b 3 -> 1 0  8001 8001
		1000 acquire 4 9 b 2 -> 0 0  9000 -1`},
	{"the own lease does not count in the wait", `
		0 acquire 4 1 a 1 -> 0 3 1000 -1
		0 acquire 4 9 b 3 -> 0 0 9000 -1
		0 acquire 4 9 b 4 -> 1 0 9000 1000`},
	{"a renewal may shorten a lease; unknown and expired holders get 0", `
		    0 renew 10 a         -> 0
		    0 acquire 2 10 a 1   -> 0 1 10000 -1
		 9999 renew 10 a         -> 1
		 9999 renew 20 b         -> 0
		10000 acquire 2 10 b 1   -> 0 0 10000 -1
		10000 renew 1 b          -> 1
		10000 holders            -> b=1:1000 a=1:9999
		11000 renew 10 b         -> 0
		11000 holders            -> a=1:8999`},
	{"a second release releases nothing", `
		    0 acquire 3 10 a 2 -> 0 1 10000 -1
		    0 acquire 3 20 b 1 -> 0 0 20000 -1
		 1000 release b        -> 1
		 1000 release b        -> 0
		 1000 release c        -> 0
		 1000 acquire 3 10 c 2 -> 1 1 9000 9000
		10000 release a        -> 0
		10000 acquire 3 10 c 3 -> 0 0 10000 -1`},
	{"listed by end, then by holder", `
		0 acquire 9 10 c 1  -> 0 8 10000 -1
		0 acquire 9 10 a 1  -> 0 7 10000 -1
		0 acquire 9 5 d 1   -> 0 6 10000 -1
		0 acquire 9 10 bb 1 -> 0 5 10000 -1
		0 acquire 9 10 b 1  -> 0 4 10000 -1
		0 holders -> d=1:5000 a=1:10000 b=1:10000 bb=1:10000 c=1:10000`},
	{"at most five holders here", `
		0 acquire 9 10 a 1 -> 0 8 10000 -1
		0 acquire 9 10 b 1 -> 0 7 10000 -1
		0 acquire 9 10 c 1 -> 0 6 10000 -1
		0 acquire 9 10 d 1 -> 0 5 10000 -1
		0 acquire 9  5 e 1 -> 0 4 10000 -1
		0 acquire 9 10 f 1 -> too many holders
		0 acquire 9 10 f 0 -> 0 4 10000 -1
		0 acquire 9 10 e 2 -> 0 3 10000 -1
		0 acquire 9 10 f 4 -> 1 3 10000 10000
		0 release a        -> 1
		0 acquire 9 10 f 1 -> 0 3 10000 -1`},
	{"the largest numbers", `
		0 acquire 9223372036854775807 1000000000 a 9223372036854775807 -> 0 0 1000000000000 -1
		0 acquire 9223372036854775807 1 b 1 -> 1 0 1000000000000 1000000000000
		0 acquire 9223372036854775807 1 b 9223372036854775807 -> 1 0 1000000000000 1000000000000
		0 acquire 0 1 b 9223372036854775807 -> 1 0 1000000000000 -1
		0 acquire 0 1 a 9223372036854775807 -> 0 0 1000 -1
		999 release a -> 9223372036854775807`},
	{"the clock runs backwards: ended leases stay ended, the others last longer", `
		5000 acquire 2 1 a 1  -> 0 1 1000 -1
		5000 acquire 2 10 b 1 -> 0 0 10000 -1
		6000 acquire 2 10 c 2 -> 1 1 9000 9000
		3000 acquire 2 10 c 2 -> 1 1 12000 12000
		3000 renew 10 a       -> 0
		3000 holders          -> b=1:12000`},
}

const fewHolders = 5 // the maximum of holders in timelines

func TestTimelines(t *testing.T) {
	for name, table := range tables {
		for _, tl := range timelines {
			t.Run(name+": "+tl.name, func(t *testing.T) {
				require.Equal(t, normalizeSpaces(tl.lines), play(t, table(), tl.lines))
			})
		}
	}
}

// Each planted fault changes the result of at least one timeline.
func TestTimelinesCatch(t *testing.T) {
	for name, faulty := range faults {
		t.Run(name, func(t *testing.T) {
			for _, tl := range timelines {
				if play(t, faulty(), tl.lines) != normalizeSpaces(tl.lines) {
					return
				}
			}
			t.Fatal("no timeline detects the fault")
		})
	}
}

// play runs the calls of a timeline on a key and returns the timeline with the actual results.
func play(t *testing.T, key Table, lines string) string {
	var told []string
	for line := range strings.Lines(normalizeSpaces(lines)) {
		call, _, _ := strings.Cut(strings.TrimSpace(line), " ->")
		words := strings.Fields(call)
		now, args := epoch+1e6*number(t, words[0]), words[2:]
		said := ""
		switch words[1] {
		case "acquire", "peek", "untaken":
			ttl := quota.Seconds(number(t, args[1]))
			request, err := NewRequest(number(t, args[0]), ttl, []byte(args[2]), number(t, args[3]))
			require.NoError(t, err)
			said = ask(key, words[1], now, request)
		case "gap":
			request, err := NewRequest(number(t, args[0]), quota.Seconds(1), []byte(args[2]), number(t, args[3]))
			require.NoError(t, err)
			l := key.Gap(now, request)
			said = ms(l.End) + " " + ms(l.Again)
		case "renew":
			ttl, err := newTTL(quota.Seconds(number(t, args[0])))
			require.NoError(t, err)
			said = map[bool]string{true: "1", false: "0"}[key.Renew(now, ttl, []byte(args[1]))]
		case "release":
			said = fmt.Sprint(key.Release(now, []byte(args[0])))
		case "holders":
			said = list(key, now)
		}
		told = append(told, strings.TrimSpace(call+" -> "+said))
	}
	return strings.Join(told, "\n")
}

func ask(key Table, how string, now int64, r Request) string {
	switch how {
	case "peek":
		return answer(key.Peek(now, r, fewHolders))
	case "untaken":
		return answer(key.Untaken(now, r), nil)
	}
	d, _, err := key.Acquire(now, r, fewHolders)
	return answer(d, err)
}

func list(key Table, now int64) string {
	var listed []string
	for lease := range key.Holders(now) {
		listed = append(listed, fmt.Sprintf("%s=%d:%s", lease.Holder, lease.Quantity, ms(lease.End-now)))
	}
	return strings.Join(listed, " ")
}

func answer(d quota.Decision, err error) string {
	if err != nil {
		return err.Error()
	}
	limited := 0
	if d.Limited {
		limited = 1
	}
	return fmt.Sprintf("%d %d %s %s", limited, d.Remaining, ms(d.ResetAfter), ms(d.RetryAfter))
}

// ms formats ns as milliseconds, with as many decimals as necessary.
func ms(ns int64) string {
	if ns == quota.Never {
		return "-1"
	}
	return strings.TrimRight(strings.TrimRight(fmt.Sprintf("%d.%06d", ns/1e6, ns%1e6), "0"), ".")
}

// normalizeSpaces reduces runs of spaces to one, so that the columns of a table may be aligned.
func normalizeSpaces(lines string) string {
	var tidied []string
	for line := range strings.Lines(strings.TrimSpace(lines)) {
		tidied = append(tidied, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(tidied, "\n")
}

func number(t *testing.T, word string) int64 {
	n, err := strconv.ParseInt(word, 10, 64)
	require.NoError(t, err)
	return n
}

func TestArguments(t *testing.T) {
	a, longest := []byte("a"), []byte(strings.Repeat("a", 1024))
	for _, c := range []struct {
		limit, ttl int64
		holder     []byte
		quantity   int64
		says       string
	}{
		{-1, 0, nil, -1, "limit must be between 0 and 9223372036854775807"}, // the first wrong argument is named
		{0, 0, nil, -1, "ttl must be between 1 and 1000000000"},
		{0, 1e9 + 1, a, 1, "ttl must be between 1 and 1000000000"},
		{0, math.MaxInt64, a, 1, "ttl must be between 1 and 1000000000"},
		{0, 1, nil, -1, "length of holder must be between 1 and 1024"},
		{0, 1, append(longest, 'a'), 1, "length of holder must be between 1 and 1024"},
		{0, 1, a, -1, "quantity must be between 0 and 9223372036854775807"},
		{0, 1, a, math.MinInt64, "quantity must be between 0 and 9223372036854775807"},
	} {
		_, err := NewRequest(c.limit, quota.Seconds(c.ttl), c.holder, c.quantity)
		require.EqualError(t, err, c.says)
		var outside *quota.ArgumentError
		require.ErrorAs(t, err, &outside)
	}
	for _, sound := range [][]byte{a, longest, {0}} {
		_, err := NewRequest(math.MaxInt64, 1e9, sound, math.MaxInt64)
		require.NoError(t, err)
	}
	ttl, err := newTTL(60)
	require.NoError(t, err)
	require.Equal(t, time.Minute, ttl)
}

// Acquire copies the holder, which is borrowed only until it returns.
func TestHolderIsCopied(t *testing.T) {
	for _, table := range tables {
		key := table()
		word := []byte("holder")
		request, err := NewRequest(1, 10, word, 1)
		require.NoError(t, err)
		_, changed, err := key.Acquire(epoch, request, 1)
		require.NoError(t, err)
		require.True(t, changed)
		copy(word, "######")
		require.Equal(t, int64(1), key.Release(epoch, []byte("holder")))
	}
}

// ToFew refuses leases that take more than maxBytes.
func TestFewNeedRoom(t *testing.T) {
	const each = atHolder + len("holder-00000")
	var few Few
	require.True(t, filled(3).ToFew(&few, 3*each))
	require.Len(t, few.Bytes(), 3*each)
	require.Equal(t, slices.Collect(filled(3).Holders(epoch)), slices.Collect(few.Holders(epoch)))
	require.False(t, filled(3).ToFew(&few, 3*each-1))
	require.False(t, filled(10_000).ToFew(&few, 10_000*atHolder-1))
}

func TestClone(t *testing.T) {
	key := filled(100)
	clone := key.Clone()
	require.Equal(t, slices.Collect(key.Holders(epoch)), slices.Collect(clone.Holders(epoch)))
	key.Release(epoch, holderName(7))
	require.Equal(t, int64(1), clone.Release(epoch, holderName(7)))
	require.Zero(t, key.Release(epoch, holderName(7)))
	require.Equal(t, 99, clone.Len())
	empty := new(Leases).Clone()
	require.Zero(t, empty.Expires())
}

// A key that had many holders gives their memory back, in whatever order they leave.
func TestMemoryIsGivenBack(t *testing.T) {
	released, expired := filled(10_000), filled(10_000)
	full := released.Bytes()
	for i := range 9_900 {
		released.Release(epoch, holderName(i))
	}
	require.Less(t, released.Bytes(), full/20)
	var last int64
	for lease := range expired.Holders(epoch) {
		last = lease.End
	}
	expired.Renew(epoch, 100*time.Hour, holderName(3))
	expired.Renew(last, time.Hour, holderName(3))
	require.Equal(t, 1, expired.Len())
	require.Less(t, expired.Bytes(), 500)
	expired.Release(last, holderName(3))
	require.Equal(t, Leases{}, *expired)
}

func holderName(i int) []byte { return fmt.Appendf(nil, "holder-%05d", i) }

// filled returns n leases with different ends.
func filled(n int) *Leases {
	key := new(Leases)
	for i := range n {
		request, _ := NewRequest(math.MaxInt64, quota.Seconds(int64(1000+i)), holderName(i), 1)
		_, _, _ = key.Acquire(epoch, request, n)
	}
	return key
}

func TestStoredLeasesAreSet(t *testing.T) {
	key := filled(20)
	key.Set(Lease{Holder: string(holderName(3)), Quantity: 7, End: epoch + 5})
	key.Set(Lease{Holder: "new", Quantity: 2, End: epoch + 9})
	key.Set(Lease{Holder: string(holderName(4))})
	key.Set(Lease{Holder: "unknown"})
	require.Equal(t, 20, key.Len())
	require.EqualValues(t, 20-2+7+2, key.permits())
	l, found := key.Find(holderName(3))
	require.True(t, found)
	require.Equal(t, Lease{Holder: string(holderName(3)), Quantity: 7, End: epoch + 5}, l)
	_, found = key.Find(holderName(4))
	require.False(t, found)
	var all []Lease
	for l := range key.Holders(epoch) {
		all = append(all, l)
	}
	require.Equal(t, Of(all).Bytes(), key.Bytes())
	require.Equal(t, string(holderName(3)), all[0].Holder, "they are in order")
}
