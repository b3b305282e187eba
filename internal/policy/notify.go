package policy

import (
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"cellserver/internal/limit"
	"cellserver/internal/quota"
)

// Notify has the thresholds of a policy: shares of a limit in percent, in ascending order. The call with which a
// subject reaches one is reported.
//
// A limit of the kinds fixed and quota is used up step by step until its window ends, so a threshold is reached once
// in each window. The used part of other limits shrinks with time, and may reach a threshold again and again. So each
// threshold has a second line, hysteresis points below it: a report is repeated only after the used part was below
// this line. A subject that was below cannot reach the threshold without a step that crosses the line, so it is enough
// to look at steps that cross one or the other; calls in between need no state.
type Notify []int64

// The bounds of thresholds.
const (
	MaxThresholds  = 8
	leastThreshold = 10
	hysteresis     = 10 // points
)

// readNotify reads [80%, 95%, 100%].
func readNotify(n node) (Notify, error) {
	items, err := n.items("notify", MaxThresholds)
	if err != nil {
		return nil, err
	}
	var all Notify
	for _, item := range items {
		if err := item.check(); err != nil {
			return nil, err
		}
		digits, percent := strings.CutSuffix(item.Value, "%")
		share, err := strconv.ParseInt(digits, 10, 64)
		switch {
		case !percent || err != nil || strconv.FormatInt(share, 10) != digits || share < leastThreshold || share > 100:
			return nil, item.errorf("a threshold of notify must be a share of a limit between %d%% and 100%%, such as 80%%",
				leastThreshold)
		case len(all) > 0 && share <= all[len(all)-1]:
			return nil, item.errorf("the thresholds of notify must ascend, as in [80%%, 95%%, 100%%]")
		}
		all = append(all, share)
	}
	return all, nil
}

// readNotify reads the thresholds of a policy.
func (p *Policy) readNotify(n node, values map[string]node) error {
	all, err := readNotify(n)
	if err != nil {
		return err
	}
	if lease, given := values["lease"]; given && p.Ahead != limit.NotAhead {
		return lease.errorf("lease of a policy with notify must be none: each call is compared with the thresholds")
	}
	p.setNotify(all)
	return nil
}

// String returns the thresholds as in the file; of none, nothing.
func (n Notify) String() string {
	var all []string
	for _, share := range n {
		all = append(all, strconv.FormatInt(share, 10)+"%")
	}
	return strings.Join(all, ", ")
}

// of returns the least quantity that is a share of a limit, in percent.
func of(share, size int64) int64 {
	return size/100*share + (size%100*share+99)/100
}

// lower returns the second line of a threshold, in percent.
func lower(share int64) int64 { return max(share-hysteresis, 1) }

// linesOf returns the quantities at which a limit of a size has a threshold or its second line, in ascending order.
func (n Notify) linesOf(size int64) (lines []int64) {
	for _, share := range n {
		lines = append(lines, of(share, size), of(lower(share), size))
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

// setNotify prepares all limits of the policy for Nears.
func (p *Policy) setNotify(n Notify) {
	p.Notify = n
	all := [][]Limit{p.Limits}
	for i := range p.Overrides {
		all = append(all, p.Overrides[i].Limits)
	}
	for i := range p.Plans {
		all = append(all, p.Plans[i].Limits)
	}
	for _, limits := range all {
		for i := range limits {
			limits[i].lines = n.linesOf(limits[i].Size())
		}
	}
	p.Ahead = limit.NotAhead // a step that takes tokens ahead does not tell at which call they are used
}

// Nears reports whether a step may have crossed a line. It is quick, because most steps cross none. The limit of the
// decision must not be larger by a grant.
func (l *Limit) Nears(d *quota.Decision) bool {
	after := d.Limit - d.Remaining
	before := after - d.Taken
	for _, line := range l.lines {
		if after < line {
			return false
		}
		if before < line {
			return true
		}
	}
	return false
}

// Crossing is what a step on a limit has crossed, as sets of bits: bit i is for threshold i.
type Crossing struct {
	Reached uint8 // thresholds
	Rearmed uint8 // second lines
	// Certain says that the thresholds were not reached before in the same window, so that no report is a repetition.
	Certain bool
}

// Crossing returns what a step has crossed. exceeds says that it may have taken more than remained. The decision then
// does not show how much was used before, but only the most that it can be.
func (n Notify) Crossing(kind limit.Kind, d *quota.Decision, exceeds bool) (c Crossing) {
	if d.Taken <= 0 || d.Limit <= 0 {
		return c
	}
	after := d.Limit - d.Remaining
	before := after - d.Taken
	for i, share := range n {
		if line := of(share, d.Limit); before < line && line <= after {
			c.Reached |= 1 << i
		}
		if line := of(lower(share), d.Limit); before < line && line <= after {
			c.Rearmed |= 1 << i
		}
	}
	c.Certain = kind.Ends() && !(exceeds && d.Remaining == 0)
	return c
}

// Thresholds calls report for the thresholds of a set of bits, in ascending order.
func (n Notify) Thresholds(set uint8, report func(share int64)) {
	for ; set != 0; set &= set - 1 {
		report(n[bits.TrailingZeros8(set)])
	}
}
