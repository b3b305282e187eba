package simulation

import (
	"fmt"

	"cellserver/internal/store/remote/combine"
)

// charge is a client's charge, which the client then corrects. It repeats each of the two steps, at any process, until
// it is told the outcome. As in the store, a step changes a book, which all charges of a slot share, and a head, which
// has the stage of this charge. The book has open holds, and the bucket that the charges take from: see account.
type charge struct {
	w     *world
	id    int
	keys  []string // the book's key and the head's key
	stage stage    // the stage that the present step should reach
	made  [corrected + 1]int
	lost  bool // a failover has forgotten a step
	none  bool // the present step has found no charge to correct
	ended bool // the client was told that the charge is corrected, or unknown
	again int  // how many steps repeat an earlier step
}

// stage is how far a charge has come.
type stage int

const (
	uncharged stage = iota
	charged
	corrected
)

// beginCharge begins the next charge of a client. When the faults are over, the clients finish what they have begun.
func (w *world) beginCharge() {
	if w.calm {
		return
	}
	c := &charge{w: w, id: len(w.oracle.charges), stage: charged}
	slot := w.below(int64(w.plan.Slots))
	c.keys = []string{fmt.Sprintf("%d:book5", slot), fmt.Sprintf("%d:head%d-5", slot, c.id)}
	w.oracle.charges = append(w.oracle.charges, c)
	w.oracle.heads[c.keys[1]] = c
	c.submit()
}

// submit submits a step at any process.
func (c *charge) submit() {
	w := c.w
	p := w.processes[w.below(int64(len(w.processes)))]
	s := w.oracle.newStep(p, "charge", c.keys)
	p.machine.Submit(p.time(), &combine.Step{Keys: c.keys, Deadline: s.deadline + began,
		Run: func(now int64, values []combine.Value, changes []combine.Change) error {
			return c.run(s, now, values, changes)
		},
		Done: func(_ any, err error) {
			w.oracle.end(s, err)
			w.after(c.pause(), func() { c.next(err) })
		},
	})
	p.drive()
}

// account returns what the book has after a step of the charge.
func (c *charge) account(seen *version, now int64) (a *account) {
	var from *account
	if seen != nil {
		from = seen.account
	}
	if c.stage == charged {
		a = c.charged(from, now)
	} else {
		a = c.settled(from, now)
	}
	a.check(c.w, now)
	return a
}

// pause returns how long the client waits before its next step. Without faults each step must succeed, so there must
// not be too many steps on one book.
func (c *charge) pause() int64 {
	longest := 10 * ms
	if c.w.calm {
		longest = 100 * max(c.w.plan.Delay, ms)
	}
	return us + c.w.below(longest)
}

// run computes a step. It changes nothing if the head says that it was made.
func (c *charge) run(s *step, now int64, values []combine.Value, changes []combine.Change) error {
	o := c.w.oracle
	s.seen = []*version{o.lookup(values[0].Bytes), o.lookup(values[1].Bytes)}
	is := uncharged
	if s.seen[1] != nil {
		is = s.seen[1].stage
	}
	c.none = is < c.stage-1
	s.changes = is == c.stage-1 || c.w.plan.Forgetful && is == c.stage
	if !s.changes {
		return nil
	}
	for i, key := range c.keys {
		v := o.newVersion(s.seen[i], s, key, 0)
		if v.stage = c.stage; i == 0 && v.account == nil {
			v.account = c.account(s.seen[0], now)
		}
		changes[i] = combine.Change{Op: combine.Set, Bytes: v.bytes, Expires: combine.Never}
	}
	return nil
}

// next goes on when a step has ended.
func (c *charge) next(err error) {
	switch {
	case err != nil:
		if c.again++; !c.w.processes[0].stopped {
			c.submit()
		}
	case c.none && (c.lost || c.w.plan.Split > 0): // another server has the charge
		c.ended = true
		c.w.beginCharge()
	case !c.lost && c.made[c.stage] != 1:
		c.w.violation("charge %d: the client was told of stage %d, which was made %d times", c.id, c.stage, c.made[c.stage])
	case c.stage == charged:
		c.stage = corrected
		c.submit()
	default:
		c.ended = true
		c.w.beginCharge()
	}
}

// checkCharges checks at the end that clients have finished the charges that they have begun.
func (o *oracle) checkCharges() {
	for _, c := range o.charges {
		if !c.ended {
			o.w.violation("charge %d has not ended", c.id)
		}
	}
}

// reached is called when a server writes a head.
func (o *oracle) reached(key string, v *version) {
	c := o.heads[key]
	if c == nil {
		return
	}
	if c.made[v.stage]++; c.made[v.stage] > 1 {
		o.w.violation("charge %d: stage %d was made %d times", c.id, v.stage, c.made[v.stage])
	}
}

// lost is called when a server that is no longer in charge writes a head.
func (o *oracle) lost(key string) {
	if c := o.heads[key]; c != nil {
		c.lost = true
	}
}

// unreached is called when a failover loses the write of a head.
func (o *oracle) unreached(key string, v *version) {
	if c := o.heads[key]; c != nil {
		c.made[v.stage]--
		c.lost = true
	}
}
