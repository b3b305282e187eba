package replay

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"cellserver/internal/weblog"
)

// rate is a rate as policies have it.
type rate struct {
	count  int64
	period time.Duration
}

var periodNames = map[time.Duration]string{time.Second: "1s", time.Minute: "1m", time.Hour: "1h"}

func (r rate) String() string { return fmt.Sprintf("%d/%s", r.count, periodNames[r.period]) }

// digits returns how many digits the count has, without zeros at its end.
func (r rate) digits() int { return len(strings.TrimRight(strconv.FormatInt(r.count, 10), "0")) }

// emission is the time of a token in nanoseconds, rounded as package gcra rounds times of 1000 ns or more.
func (r rate) emission() int64 { return int64(r.period) / r.count }

// row is a rate, and the burst that is needed with it.
type row struct {
	rate  rate
	burst int64
}

// within returns how much a limit admits at most in a time.
func (r row) within(horizon time.Duration) float64 {
	return float64(r.burst) + float64(horizon)/float64(r.rate.emission())
}

// recovery returns the time in nanoseconds in which the whole burst comes back.
func (r row) recovery() int64 { return cost(r.burst, r.rate.emission()) }

// ladder are the rates that are tried first, slowest first.
var ladder = func() (rates []rate) {
	for _, period := range []time.Duration{time.Hour, time.Minute} {
		for _, count := range []int64{1, 2, 5, 10, 20, 30} {
			rates = append(rates, rate{count, period})
		}
	}
	for count := int64(1); count <= 100_000; count *= 10 {
		rates = append(rates, rate{count, time.Second}, rate{2 * count, time.Second}, rate{5 * count, time.Second})
	}
	return rates
}()

// step is the factor between two rates of a finer ladder.
const step = 1.01

// between returns rates from one to another.
func between(from, to rate) (rates []rate) {
	last := 1 / float64(to.emission())
	for r := 1 / float64(from.emission()); r < last; r *= step {
		if n := nearest(r * float64(time.Second)); !slices.Contains(rates, n) {
			rates = append(rates, n)
		}
	}
	return append(rates, to)
}

// nearest returns a number per second as a rate. It chooses the shortest period in which a whole number differs from
// the given one by less than a two-hundredth.
func nearest(perSecond float64) rate {
	for _, period := range []time.Duration{time.Second, time.Minute} {
		n := perSecond * period.Seconds()
		if whole := math.Round(n); whole >= 1 && math.Abs(whole-n) < n/200 {
			return rate{int64(whole), period}
		}
	}
	return rate{int64(max(math.Round(perSecond*3600), 1)), time.Hour}
}

// traffic has the requests of each subject.
type traffic struct {
	starts []int // of the subjects in requests, and the end
	at     []request
	total  int
}

type request struct{ time, quantity int64 }

func newTraffic(events []weblog.Request, subjects int) traffic {
	t := traffic{starts: make([]int, subjects+1), at: make([]request, len(events)), total: len(events)}
	for i := range events {
		t.starts[events[i].Subject+1]++
	}
	for i := range subjects {
		t.starts[i+1] += t.starts[i]
	}
	next := slices.Clone(t.starts)
	for i := range events {
		q := &events[i]
		t.at[next[q.Subject]] = request{q.Time, q.Quantity}
		next[q.Subject]++
	}
	return t
}

// most bounds levels in nanoseconds, so that sums of two do not wrap.
const most = math.MaxInt64 / 4

// cost returns the time of a quantity, at most most.
func cost(quantity, emission int64) int64 {
	if quantity > most/emission {
		return most
	}
	return quantity * emission
}

// peaks returns the burst that each subject needs at a rate, so that none of its requests is limited.
func (t *traffic) peaks(r rate) []int64 {
	emission, peaks := r.emission(), make([]int64, len(t.starts)-1)
	for s := range peaks {
		level, highest, last := int64(0), int64(0), int64(0)
		for _, q := range t.at[t.starts[s]:t.starts[s+1]] {
			level = min(max(level-(q.time-last), 0)+cost(q.quantity, emission), most)
			highest, last = max(highest, level), q.time
		}
		peaks[s] = (highest + emission - 1) / emission
	}
	return peaks
}

// burstForSubjects returns the smallest burst at a rate with which at most so many subjects are limited.
func (t *traffic) burstForSubjects(r rate, limited int) int64 {
	peaks := t.peaks(r)
	slices.Sort(peaks)
	return max(peaks[max(len(peaks)-1-limited, 0)], 1)
}

// limited returns how many requests a limit refuses.
func (t *traffic) limited(r rate, burst int64) (n int) {
	emission := r.emission()
	tolerance := cost(burst, emission)
	for s := range len(t.starts) - 1 {
		level, last := int64(0), int64(0)
		for _, q := range t.at[t.starts[s]:t.starts[s+1]] {
			level, last = max(level-(q.time-last), 0), q.time
			if c := cost(q.quantity, emission); level+c <= tolerance {
				level += c
			} else {
				n++
			}
		}
	}
	return n
}

// burstForShare returns a burst at a rate with which at most a share of the requests is limited; a burst that is one
// smaller would limit more.
func (t *traffic) burstForShare(r rate, part float64) int64 {
	least, enough := int64(0), t.burstForSubjects(r, 0)
	for enough-least > 1 {
		middle := least + (enough-least)/2
		if float64(t.limited(r, middle)) <= part*float64(t.total) {
			enough = middle
		} else {
			least = middle
		}
	}
	return enough
}
