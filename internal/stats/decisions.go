package stats

import (
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
)

// Result is how a call that a policy was asked about has ended.
type Result uint8

const (
	Allowed Result = iota
	Limited
	Shadow // allowed, but only because the policy is in shadow mode
	Banned // limited, because the policy bans the subject
	Failed
)

// resultNames are the values of the label result.
var resultNames = [...]string{"allowed", "limited", "shadow", "banned", "error"}

// String returns the name of the result in metrics.
func (r Result) String() string { return resultNames[r] }

// Results are numbers of decisions by their Result.
type Results [len(resultNames)]int64

// Decisions counts the decisions of a policy. The counts are in stripes. Each client uses one of them, so
// the event loops seldom write to the same cache line.
type Decisions struct {
	stripes [decisionStripes]decisionStripe
	held    Total        // quantity that was charged with HOLD
	settled Total        // quantity that holds were settled with
	reports atomic.Int64 // of subjects that have reached a threshold

	subjects subjects
	// The fields below are guarded by the lock of PolicyDecisions.
	past      *history // nil before its first second
	sampled   Results  // the numbers of decisions at the latest sample
	unsampled Results  // decisions after it, before the numbers were set to zero
}

// decisionStripes is a power of two.
const decisionStripes = 4

type decisionStripe struct {
	counts [len(resultNames)]atomic.Int64
	_      [24]byte // the rest of the cache line
}

// Add counts a decision for a client.
func (d *Decisions) Add(client int64, r Result) {
	d.stripes[uint64(client)%decisionStripes].counts[r].Add(1)
}

// AddHolds adds the quantities that a call has held, and that it has settled holds with.
func (d *Decisions) AddHolds(held, settled int64) {
	d.held.Add(held)
	d.settled.Add(settled)
}

// AddReport counts a report that a subject has reached a threshold.
func (d *Decisions) AddReport() { d.reports.Add(1) }

// Total is a sum of quantities. Quantities may be large, so it stays at its largest value instead of falling.
type Total struct{ sum atomic.Int64 }

// Add adds a quantity, which is not negative.
func (t *Total) Add(n int64) {
	for {
		old := t.sum.Load()
		if t.sum.CompareAndSwap(old, old+min(n, math.MaxInt64-old)) {
			return
		}
	}
}

// Load returns the sum.
func (t *Total) Load() int64 { return t.sum.Load() }

// Sum returns the numbers of decisions.
func (d *Decisions) Sum() (sum Results) {
	for i := range d.stripes {
		for r := range sum {
			sum[r] += d.stripes[i].counts[r].Load()
		}
	}
	return sum
}

func (d *Decisions) reset() {
	d.unsampled = d.grow()
	d.sampled = Results{}
	for i := range d.stripes {
		for r := range d.stripes[i].counts {
			d.stripes[i].counts[r].Store(0)
		}
	}
	d.held.sum.Store(0)
	d.settled.sum.Store(0)
	d.reports.Store(0)
}

// MaxPolicies is the number of policies whose decisions are counted for each of them. A monitoring system
// keeps some series for each, and a scrape has a bound: see TestSize of package monitor.
const MaxPolicies = 32

// OtherPolicies is the name under which the decisions of all other policies are counted together. No policy
// can have this name.
const OtherPolicies = "_other"

// PolicyDecisions counts decisions by policy. A policy that is counted by its name stays so until it is not in
// force any more. The decisions of all other policies are counted together. So no count ever falls,
// which a monitoring system would take for a restart. Each of these counts has a history, and so has their sum. Its
// zero value is ready for use, and safe for concurrent use.
type PolicyDecisions struct {
	mu     sync.Mutex
	named  map[string]*Decisions
	others Decisions

	second  int64    // of the latest sample: see Sample
	all     *history // of all policies; nil if there are none
	removed Results  // decisions since then of policies that were forgotten
}

// Of returns the counts of a policy: its own if there are not too many already.
func (p *PolicyDecisions) Of(policy string) *Decisions {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.named[policy]
	switch {
	case d != nil:
		return d
	case len(p.named) >= MaxPolicies:
		return &p.others
	case p.named == nil:
		p.named = make(map[string]*Decisions)
	}
	d = new(Decisions)
	p.named[policy] = d
	return d
}

// Keep forgets the policies that are not in force any more.
func (p *PolicyDecisions) Keep(inForce func(policy string) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for policy, d := range p.named {
		if !inForce(policy) {
			p.removed.add(d.grow())
			delete(p.named, policy)
		}
	}
}

// Each calls show for each policy that is counted by its name, in order, and at last for the others, if they
// have made decisions. It holds the lock meanwhile.
func (p *PolicyDecisions) Each(show func(policy string, decisions Results)) {
	p.EachWithUse(func(policy string, decisions Results, _, _ int64) { show(policy, decisions) })
}

// EachWithUse is Each, with what Near returns.
func (p *PolicyDecisions) EachWithUse(show func(policy string, decisions Results, sampled, near int64)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, policy := range slices.Sorted(maps.Keys(p.named)) {
		d := p.named[policy]
		sampled, near := d.near(p.second)
		show(policy, d.Sum(), sampled, near)
	}
	if sum := p.others.Sum(); sum != (Results{}) {
		sampled, near := p.others.near(p.second)
		show(OtherPolicies, sum, sampled, near)
	}
}

// EachReports is Each for the numbers of reports that subjects have reached thresholds.
func (p *PolicyDecisions) EachReports(show func(policy string, reports int64)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, policy := range slices.Sorted(maps.Keys(p.named)) {
		show(policy, p.named[policy].reports.Load())
	}
	show(OtherPolicies, p.others.reports.Load())
}

// EachHolds is Each for the quantities of holds, of the policies that have had holds.
func (p *PolicyDecisions) EachHolds(show func(policy string, held, settled int64)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := func(policy string, d *Decisions) {
		if held, settled := d.held.Load(), d.settled.Load(); held > 0 || settled > 0 {
			show(policy, held, settled)
		}
	}
	for _, policy := range slices.Sorted(maps.Keys(p.named)) {
		one(policy, p.named[policy])
	}
	one(OtherPolicies, &p.others)
}

// Reset sets all counts to zero. The histories stay.
func (p *PolicyDecisions) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range p.named {
		d.reset()
	}
	p.others.reset()
}
