package stats

import (
	"math"
	"unsafe"
)

// Step is the time of a point of a history, in seconds.
type Step int64

// A history has points of both steps.
const (
	Second Step = 1
	Minute Step = 60
)

// How many points of each step a history keeps: five minutes, and a day.
const (
	historySeconds = 5 * 60
	historyMinutes = 24 * 60
)

// MaxPoints returns how many points of the step a history keeps.
func (s Step) MaxPoints() int {
	if s == Minute {
		return historyMinutes
	}
	return historySeconds
}

// history has the decisions of a policy by time. Its size is fixed, 34 KiB, so the histories of MaxPolicies policies,
// of the others and of all together take 1.1 MiB. Decisions are counted elsewhere, and only the growth of these counts
// is added here, once a second: a decision costs nothing more for its history.
type history struct {
	began   int64   // the first second that it covers
	minute  Results // of the present minute, without the present second
	seconds [historySeconds]point
	minutes [historyMinutes]point
}

// point has the decisions of a second or a minute. A number that does not fit stays at the largest one.
type point [len(resultNames)]uint32

func pointOf(n Results) (p point) {
	for r := range p {
		p[r] = uint32(min(n[r], math.MaxUint32))
	}
	return p
}

const historyBytes = int64(unsafe.Sizeof(history{}))

// add adds the decisions between two samples. All of them go to the second of the earlier sample. If the
// later sample came late, the seconds between both samples have no decisions.
func (h *history) add(from, to int64, growth Results) {
	h.seconds[from%historySeconds] = pointOf(growth)
	clearPoints(h.seconds[:], from+1, to)
	for r := range growth {
		h.minute[r] += growth[r]
	}
	if first, last := from/int64(Minute), to/int64(Minute); first < last {
		h.minutes[first%historyMinutes] = pointOf(h.minute)
		clearPoints(h.minutes[:], first+1, last)
		h.minute = Results{}
	}
}

// clearPoints clears the points from one time up to another, which is not cleared.
func clearPoints(ring []point, from, to int64) {
	size := int64(len(ring))
	for i := max(from, to-size); i < to; i++ {
		ring[i%size] = point{}
	}
}

// last returns the latest points that are over in a second, the oldest first. There are fewer than most if the
// history is not that old.
func (h *history) last(step Step, most int, second int64) []Results {
	ring := h.seconds[:]
	if step == Minute {
		ring = h.minutes[:]
	}
	size, end := int64(len(ring)), second/int64(step)
	points := make([]Results, max(min(int64(most), size, end-h.began/int64(step)), 0))
	for i := range points {
		for r, n := range ring[(end-int64(len(points))+int64(i))%size] {
			points[i][r] = int64(n)
		}
	}
	return points
}

// AllPolicies is the name of the sum of all policies in a history, also of policies that are not in force any more.
const AllPolicies = "*"

// Sample brings the histories up to a second, which is not over. Call it every second; if it comes later, decisions are
// shown in an earlier second than the one in which they were made.
func (p *PolicyDecisions) Sample(second int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if second <= p.second {
		return
	}
	from := p.second
	if p.second = second; from == 0 { // there was no sample before
		return
	}
	sum := p.removed
	p.removed = Results{}
	for _, d := range p.named {
		sum.add(d.sample(from, second))
	}
	if p.others.past != nil || p.others.Sum() != (Results{}) || p.others.unsampled != (Results{}) {
		sum.add(p.others.sample(from, second))
	}
	if p.all == nil && len(p.named) == 0 && sum == (Results{}) {
		return // there are no policies
	}
	if p.all == nil {
		p.all = &history{began: from}
	}
	p.all.add(from, second, sum)
}

// sample adds the decisions since the sample before to the history of a policy, and returns them.
func (d *Decisions) sample(from, to int64) Results {
	if d.past == nil {
		d.past = &history{began: from}
	}
	growth := d.grow()
	d.past.add(from, to, growth)
	return growth
}

// grow returns the decisions since it was called last.
func (d *Decisions) grow() (growth Results) {
	sum := d.Sum()
	for r := range sum {
		growth[r] = d.unsampled[r] + max(sum[r]-d.sampled[r], 0)
	}
	d.sampled, d.unsampled = sum, Results{}
	return growth
}

func (n *Results) add(more Results) {
	for r := range n {
		n[r] += more[r]
	}
}

// Past returns the latest points of a policy, of OtherPolicies or of AllPolicies, the oldest first, and the second at
// which the last of them ends. It returns false if the policy is not counted by its name.
func (p *PolicyDecisions) Past(policy string, step Step, most int) (points []Results, end int64, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	end = p.second / int64(step) * int64(step)
	h := p.all
	switch d := p.named[policy]; {
	case policy == OtherPolicies:
		h = p.others.past
	case d != nil:
		h = d.past
	case policy != AllPolicies:
		return nil, end, false
	}
	if h == nil { // nothing was decided, or not for a second yet
		return nil, end, true
	}
	return h.last(step, most, p.second), end, true
}

// HistoryBytes returns the memory that all histories take.
func (p *PolicyDecisions) HistoryBytes() (bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range p.named {
		bytes += d.past.bytes()
	}
	return bytes + p.others.past.bytes() + p.all.bytes()
}

func (h *history) bytes() int64 {
	if h == nil {
		return 0
	}
	return historyBytes
}
