package decide

import (
	"hash/maphash"
	"sync"
	"sync/atomic"

	"cellserver/internal/command"
	"cellserver/internal/policy"
	"cellserver/internal/quota"
)

// A policy with notify reports the steps with which its subjects reach thresholds: see policy.Notify. Steps that this
// process did not make, and decisions that the store did not make, are not reported.

// thresholdSlots is the number of pairs of a subject and a limit whose reports are remembered. It is a power of two.
// If two pairs share a slot, the later one takes its place, and the reports of the other may be repeated.
const thresholdSlots = 1 << 14

// thresholds remembers which thresholds were reported, in 128 KiB. A slot has a hash of a subject and a limit in its
// upper bits, and a bit for each threshold. The hash has a random seed, so clients cannot choose who shares a slot.
// The slots are allocated when the first threshold is reached.
type thresholds struct {
	once  sync.Once
	seed  maphash.Seed
	slots []atomic.Uint64
}

const thresholdBits = 1<<policy.MaxThresholds - 1

// report remembers what a step has crossed, and returns the thresholds to report.
func (t *thresholds) report(p *policy.Policy, subject []byte, label string, c policy.Crossing) uint8 {
	t.once.Do(func() { t.seed, t.slots = maphash.MakeSeed(), make([]atomic.Uint64, thresholdSlots) })
	var h maphash.Hash
	h.SetSeed(t.seed)
	for _, text := range []string{p.Name, label} { // neither has a NUL
		_, _ = h.WriteString(text) // it never fails, and neither do the others
		_ = h.WriteByte(0)
	}
	_, _ = h.Write(subject)
	return t.update(h.Sum64(), c)
}

func (t *thresholds) update(hash uint64, c policy.Crossing) uint8 {
	slot := &t.slots[hash>>policy.MaxThresholds%thresholdSlots]
	tag := hash &^ thresholdBits
	for {
		old := slot.Load()
		reported := uint8(0)
		if old&^thresholdBits == tag {
			reported = uint8(old)
		}
		reported &^= c.Rearmed
		fresh := c.Reached
		if !c.Certain {
			fresh &^= reported
		}
		next := tag | uint64(reported|c.Reached)
		switch {
		case next == old, next == tag && old&^thresholdBits != tag: // nothing to remember
			return fresh
		case slot.CompareAndSwap(old, next):
			return fresh
		}
	}
}

// notice is Notice for the decisions of a part.
func (d *Decider) notice(c *command.Call, p *Part, settles bool) {
	if p.Policy.Notify == nil || len(p.Decisions) != len(p.Treatment.Limits) {
		return
	}
	for i := range p.Decisions {
		d.Notice(c, p.Policy, p.Subject.Text, &p.Treatment.Limits[i], &p.Decisions[i], settles)
	}
}

// Notice reports the thresholds of a policy with notify that a step on a limit has reached. settles says that the step
// was the correction of a hold. A row calls it after a decision that it has asked the store for itself; decisions of a
// Call need no call of it.
func (d *Decider) Notice(
	c *command.Call, p *policy.Policy, subject []byte, l *policy.Limit, of *quota.Decision, settles bool,
) {
	// A correction may take more than remains, and so may FORCE, whose decision is then limited.
	crossing := p.Notify.Crossing(l.Kind, of, settles || of.Limited)
	if crossing.Reached|crossing.Rearmed == 0 || d.Observers.Report == nil {
		return
	}
	now := c.View.Now()
	e := policy.Event{
		Policy: p.Name, Subject: policy.ShownSubject(subject), Limit: l.Label(), Shadow: p.Shadow,
		Used: of.Limit - of.Remaining, Size: of.Limit,
		Time: c.Unix(now) / 1e6, Resets: c.Unix(now+of.ResetAfter) / 1e6,
	}
	subject = append([]byte(nil), subject...)
	label := l.Label()
	c.AfterCommit(func() {
		p.Notify.Thresholds(d.Observers.thresholds.report(p, subject, label, crossing), func(share int64) {
			e.Threshold = share
			d.Observers.Report(c, p, e)
		})
	})
}
