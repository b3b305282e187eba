package simulation

import (
	"fmt"
	"slices"

	"cellserver/internal/hold"
)

// account is what a book has: a bucket, the open holds of its charges, and what was taken from it since the first of
// them. An account does not change; each step makes another.
type account struct {
	tat    int64
	book   hold.Book
	before int64 // the TAT before past, if each charge had taken what was used
	past   []spending
}

// spending is what a charge has taken: at first its estimate, and in the end what was used.
type spending struct {
	charge    int // -1 if it is final
	now, took int64
}

// unitOfCharge is the unit of what charges take, in nanoseconds of the bucket's time.
const unitOfCharge = ms / 8

// estimate and used are what a charge takes at first, and what it has used in the end.
func (c *charge) estimate() int64 { return (2 + int64(c.id)%7) * unitOfCharge }
func (c *charge) used() int64     { return int64(c.id) * 5 % 11 * unitOfCharge }

func (a *account) copy() *account {
	next := &account{}
	if a != nil {
		next.tat, next.before, next.past = a.tat, a.before, slices.Clone(a.past)
		next.book = hold.Of(a.book.Append(nil), nil)
	}
	return next
}

func (a *account) level(now int64) int64 { return max(a.tat-now, 0) }

func (a *account) take(charge int, now, quantity int64) {
	a.tat = max(a.tat, now) + quantity
	a.past = append(a.past, spending{charge, now, quantity})
}

// charged returns the account after a charge. Every third time, another call takes, which the book does not see.
func (c *charge) charged(from *account, now int64) *account {
	a := from.copy()
	a.take(c.id, now, c.estimate())
	o := hold.Open{ID: fmt.Append(nil, c.id), Quantity: c.estimate(), Unit: 1, Ends: 1 << 62}
	a.book.Add(o, 1, now, a.level(now), a.tat)
	if c.id%3 == 0 {
		a.take(-1, now, unitOfCharge)
	}
	return a
}

// settled returns the account after the correction of a charge.
func (c *charge) settled(from *account, now int64) *account {
	a := from.copy()
	o, found := a.book.Find(fmt.Append(nil, c.id))
	if !found {
		return a
	}
	excess := c.used() - o.Quantity
	a.book.Edit(1, now, func(p *hold.Path) {
		given := p.Correct(o.Number, o.Counter, -excess)
		if c.w.plan.Refunds {
			given = max(-excess, 0)
		}
		a.tat -= given
		p.Last = a.tat
	})
	a.book.Close(fmt.Append(nil, c.id))
	for i := range a.past {
		if a.past[i].charge == c.id {
			a.past[i].charge, a.past[i].took = -1, min(c.used(), o.Quantity)
		}
	}
	for len(a.past) > 0 && a.past[0].charge < 0 {
		a.before = max(a.before, a.past[0].now) + a.past[0].took
		a.past = a.past[1:]
	}
	if excess > 0 {
		a.take(-1, now, excess)
	}
	return a
}

// check checks that the bucket holds at least what it would if each corrected charge had taken at first what it has
// used.
func (a *account) check(w *world, now int64) {
	tat := a.before
	for _, t := range a.past {
		tat = max(tat, t.now) + t.took
	}
	if least := max(tat-now, 0); a.level(now) < least {
		w.violation("a correction has left %d in a bucket that would have %d", a.level(now), least)
	}
}
