package stats

import (
	"hash/maphash"
	"sync/atomic"
)

// NearPercent is the share of a limit, in percent, from which on a subject is close to being refused.
const NearPercent = 80

// A policy remembers subjects in nearSlots slots, each for nearSeconds.
const (
	nearSlots   = 256
	nearSeconds = 60
)

// subjects is a sample of the subjects that a policy was asked about last, and how much of their limits they had used
// then. The hash of a subject selects its slot, so a subject has one slot, and if two have the same, the later one
// takes it. A slot has the second of the call and the used share in percent; 0 if it was never used.
type subjects [nearSlots]atomic.Int64

const percentBits = 7

// nearSeed is random, so that clients cannot choose who shares a slot.
var nearSeed = maphash.MakeSeed()

// NoteUse notes that a subject, which was asked about in a second, has used a part of a limit.
func (d *Decisions) NoteUse(subject []byte, second, used, size int64) {
	percent := int64(100 * float64(used) / float64(size))
	slot := &d.subjects[maphash.Bytes(nearSeed, subject)%nearSlots]
	slot.Store(second<<percentBits | max(min(percent, 100), 0))
}

// near returns how many subjects of the sample were asked about in the last minute, and how many of them had used
// NearPercent of a limit or more.
func (d *Decisions) near(second int64) (sampled, near int64) {
	for i := range d.subjects {
		seen := d.subjects[i].Load()
		if seen == 0 || second-seen>>percentBits > nearSeconds {
			continue
		}
		if sampled++; seen&(1<<percentBits-1) >= NearPercent {
			near++
		}
	}
	return sampled, near
}

// Near returns how many subjects of a policy, of OtherPolicies or of AllPolicies are in the sample, and how many of
// them are close to being refused. The time is that of the latest call of Sample.
func (p *PolicyDecisions) Near(policy string) (sampled, near int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	add := func(d *Decisions) {
		all, some := d.near(p.second)
		sampled, near = sampled+all, near+some
	}
	if policy == OtherPolicies || policy == AllPolicies {
		add(&p.others)
	}
	for name, d := range p.named {
		if name == policy || policy == AllPolicies {
			add(d)
		}
	}
	return sampled, near
}
